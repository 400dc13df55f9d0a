//! The memory of an array, which numpy looks at without a copy.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use memmap2::{Advice, MmapMut};
use pyo3::{
    exceptions::{PyMemoryError, PyRuntimeError},
    prelude::*,
    types::{PyDict, PyTuple},
};
use shardfs::Leased;

use crate::error::guarded;

/// Smallest memory in bytes that is a map of its own, with large pages, which the system gets back at once. For a new map
/// each small page costs a fault: reading 256 KiB into one took ten times as long as into memory that was used before.
const LARGE: usize = 4 << 20;

/// Bytes that are filled once. Then the arrays that view them own them.
pub(crate) enum Bytes {
    Heap(Vec<u8>),
    Map(MmapMut),
    /// In place in a file, read-only.
    Leased(Leased),
}

impl Bytes {
    /// Returns zeros.
    ///
    /// # Errors
    /// The size, if there is no memory for it.
    pub(crate) fn zeroed(size: u64) -> Result<Self, u64> {
        let length = usize::try_from(size).map_err(|_| size)?;
        if length >= LARGE
            && let Ok(map) = MmapMut::map_anon(length)
        {
            // Only a hint: without large pages it is slower.
            let _ = map.advise(Advice::HugePage);
            return Ok(Self::Map(map));
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| size)?;
        bytes.resize(length, 0);
        Ok(Self::Heap(bytes))
    }

    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Map(map) => map,
            // Never written to.
            Self::Leased(_) => &mut [],
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Map(map) => map,
            Self::Leased(leased) => leased.bytes(),
        }
    }
}

/// Returns the error of missing memory.
pub(crate) fn no_memory(size: u64) -> PyErr {
    PyMemoryError::new_err(format!("no memory for {size} bytes"))
}

/// Elements of an array with their type and shape, for `numpy.asarray`, which keeps this object alive and uses its
/// memory without a copy. It can be asked once: numpy may write to it, so it is not shared.
#[pyclass(module = "shardfs._core", frozen)]
pub(crate) struct Memory {
    address: usize,
    taken: AtomicBool,
    typestr: String,
    shape: Py<PyTuple>,
    bytes: Bytes,
}

impl Memory {
    pub(crate) fn new(bytes: Bytes, typestr: &str, shape: Py<PyTuple>) -> Self {
        // The address stays the same when the owner moves, for every kind of memory.
        let address = bytes.as_slice().as_ptr() as usize;
        Self { address, taken: AtomicBool::new(false), typestr: typestr.into(), shape, bytes }
    }
}

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        if self.taken.swap(true, Relaxed) {
            return Err(PyRuntimeError::new_err("this memory belongs to an array already"));
        }
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", &self.typestr)?;
        interface.set_item("shape", &self.shape)?;
        interface.set_item("data", (self.address, matches!(self.bytes, Bytes::Leased(_))))?;
        Ok(interface)
    }

    /// Returns whether the elements are in the file, and not in memory of their own.
    #[getter]
    fn is_in_file(&self) -> bool {
        matches!(&self.bytes, Bytes::Leased(leased) if leased.is_in_file())
    }
}

/// Called before a fork: gives arrays that lie in files memory of their own.
#[pyfunction]
pub(crate) fn before_fork(py: Python<'_>) -> PyResult<()> {
    guarded(py, shardfs::before_fork)
}

/// Called in the parent after a fork.
#[pyfunction]
pub(crate) fn forked() {
    shardfs::forked();
}
