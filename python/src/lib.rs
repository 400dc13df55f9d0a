//! `shardfs._core`: the library's face for the Python package. What users see is written in Python on top of it
//! (`python/shardfs`); this module opens, walks, reads and decodes, without the interpreter's lock.

mod error;
mod memory;
mod node;
mod owned;
mod volume;

use pyo3::prelude::*;

/// Opens, walks, reads and decodes containers.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<volume::Cache>()?;
    module.add_class::<volume::Volume>()?;
    module.add_class::<node::Node>()?;
    module.add_class::<node::Nodes>()?;
    module.add_class::<memory::Memory>()?;
    module.add_function(wrap_pyfunction!(node::read_many, module)?)?;
    module.add_function(wrap_pyfunction!(memory::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(memory::forked, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
