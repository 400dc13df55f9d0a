//! What the module of the package has in it.

use pyo3::prelude::*;

use crate::{memory, node, video, volume};

/// Fills the module.
pub(crate) fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<volume::Cache>()?;
    module.add_class::<volume::Volume>()?;
    module.add_class::<node::Node>()?;
    module.add_class::<node::Nodes>()?;
    module.add_class::<memory::Memory>()?;
    module.add_function(wrap_pyfunction!(node::read_many, module)?)?;
    module.add_function(wrap_pyfunction!(volume::formats, module)?)?;
    module.add_function(wrap_pyfunction!(volume::likeness, module)?)?;
    module.add_function(wrap_pyfunction!(volume::parent, module)?)?;
    module.add_function(wrap_pyfunction!(volume::place, module)?)?;
    module.add_function(wrap_pyfunction!(volume::shown, module)?)?;
    module.add_function(wrap_pyfunction!(volume::real_path, module)?)?;
    module.add_function(wrap_pyfunction!(memory::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(memory::forked, module)?)?;
    module.add_function(wrap_pyfunction!(video::set_decoder, module)?)?;
    module.add_function(wrap_pyfunction!(video::run_decoder, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
