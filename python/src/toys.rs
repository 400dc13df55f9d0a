//! `shardfs._core` as a program with further formats would build it: the module of the package, which also knows the toy
//! formats of the tests.

mod error;
mod memory;
mod module;
mod node;
mod owned;
#[path = "../../tests/toys/mod.rs"]
mod toys;
mod video;
mod volume;
mod waiting;

use pyo3::prelude::*;

/// Opens, walks, reads and decodes containers, those of the toy formats, too.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    toys::add();
    module::fill(module)
}
