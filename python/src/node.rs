//! Files and folders: list, read, decode.

use std::{
    borrow::Cow,
    ffi::OsString,
    ops::ControlFlow,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::UNIX_EPOCH,
};

use pyo3::{
    IntoPyObjectExt,
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyList, PyTuple},
};
use shardfs::{AttributeValue, Entry, EntryKind, Error, ItemInfo, Member, MemberKind, ObjectField, Slice};

use crate::{
    error::{Panicked, caught, detached, fault, to_python},
    memory::{Bytes, Memory, no_memory},
    owned::Owned,
    waiting::{interruptible, is_far, waited},
};

/// Bytes of a file that are read before memory for all of it is taken, if that is much: more than a block that is
/// decoded whole has.
const FIRST: usize = 4 << 10;
const LARGE: usize = 64 << 20;

/// Smallest read in bytes that signals end, of files of this machine. Handing it to another thread takes 5 µs.
const LONG: u64 = 4 << 20;

/// A file or folder, as a mount would show it.
#[pyclass(module = "shardfs._core", frozen)]
pub(crate) struct Node {
    entry: Owned<Entry>,
    source: Arc<str>,
}

impl Node {
    pub(crate) fn new(entry: Entry, source: Arc<str>) -> Self {
        Self { entry: Owned::new(entry), source }
    }

    /// Runs work that may wait, without the interpreter's lock. Signals end it if it may wait for a server.
    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Entry) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        self.run_as(py, is_far(&self.source), work)
    }

    /// Does the same, with the choice whether signals end it.
    fn run_as<T: Send + 'static>(
        &self,
        py: Python<'_>,
        is_long: bool,
        work: impl FnOnce(&Entry) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let entry = self.entry.get()?;
        if is_long {
            let entry = entry.clone();
            return waited(py, &self.source, move || work(&entry));
        }
        detached(py, &self.source, || work(entry))
    }

    /// Returns so many bytes, which `fill` writes.
    fn filled(
        &self,
        py: Python<'_>,
        length: u64,
        fill: impl FnOnce(&Entry, &mut [u8]) -> Result<(), Error> + Send + 'static,
    ) -> PyResult<Bytes> {
        let bytes = self.run_as(py, length >= LONG || is_far(&self.source), move |entry| {
            let Ok(mut bytes) = Bytes::zeroed(length) else { return Ok(None) };
            fill(entry, bytes.as_mut())?;
            Ok(Some(bytes))
        })?;
        bytes.ok_or_else(|| no_memory(length))
    }
}

/// What is known of an array: dtype, shape, codec, stored size, whether dtype or shape is a guess, shape of chunks, names of
/// numbers.
type Info<'py> = (
    Cow<'static, str>,
    Cow<'static, str>,
    u64,
    Bound<'py, PyTuple>,
    Option<Cow<'static, str>>,
    Option<u64>,
    bool,
    Option<Bound<'py, PyTuple>>,
    Option<String>,
);

/// What is known of a stored item: type, shape, codec, shape of chunks, dtype, bytes of the fill value, fields of
/// records.
type ItemOf<'py> = (
    Option<&'static str>,
    Option<Bound<'py, PyTuple>>,
    Option<Cow<'static, str>>,
    Option<Bound<'py, PyTuple>>,
    Option<(Cow<'static, str>, Cow<'static, str>)>,
    Option<Bound<'py, PyBytes>>,
    Option<Vec<FieldOf>>,
);

/// A field of records: its name; short name and type string of its elements, and their axes.
type FieldOf = (String, Option<(Cow<'static, str>, Cow<'static, str>, Vec<u64>)>);

/// Returns the word for a kind of members.
fn word(kind: MemberKind) -> &'static str {
    match kind {
        MemberKind::Group => "group",
        MemberKind::Array => "array",
        MemberKind::Lines => "lines",
        MemberKind::Text => "text",
        MemberKind::Bytes => "bytes",
        MemberKind::Rows => "rows",
        MemberKind::Null => "null",
        _ => "link",
    }
}

/// Returns the word for a kind of entries.
fn word_of(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Folder => "folder",
        EntryKind::Link => "link",
        _ => "file",
    }
}

#[pymethods]
impl Node {
    /// The path below the volume's top.
    #[getter]
    fn path(&self) -> PyResult<OsString> {
        Ok(self.entry.get()?.path().as_os_str().to_owned())
    }

    /// The last part of the path.
    #[getter]
    fn name(&self) -> PyResult<OsString> {
        Ok(self.entry.get()?.name().to_owned())
    }

    /// 'folder', 'file' or 'link'.
    #[getter]
    fn kind(&self) -> PyResult<&'static str> {
        Ok(word_of(self.entry.get()?.kind()))
    }

    /// Bytes of a file.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.entry.get()?.size())
    }

    /// Permission bits.
    #[getter]
    fn mode(&self) -> PyResult<u32> {
        Ok(self.entry.get()?.mode())
    }

    /// Modification time in seconds.
    #[getter]
    fn mtime(&self) -> PyResult<f64> {
        let modified = self.entry.get()?.modified();
        Ok(match modified.duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_secs_f64(),
            Err(before) => -before.duration().as_secs_f64(),
        })
    }

    /// The node at a path below this folder.
    fn get(&self, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Ok(Self::new(self.run(py, move |entry| entry.get(path))?, self.source.clone()))
    }

    /// The names that the folder lists, each with its kind. Nothing is looked up.
    fn names(&self, py: Python<'_>) -> PyResult<Vec<(OsString, &'static str)>> {
        self.run(py, |entry| {
            let mut found = Vec::new();
            entry.names(&mut |name, kind| {
                found.push((name.to_owned(), word_of(kind)));
                ControlFlow::Continue(())
            })?;
            Ok(found)
        })
    }

    /// The listed entries of the folder.
    fn children(&self) -> PyResult<Nodes> {
        let entries: Found = Box::new(self.entry.get()?.entries());
        Ok(Nodes::new(entries, self.source.clone()))
    }

    /// Everything below the folder, folders before their contents.
    fn walk(&self) -> PyResult<Nodes> {
        let entries: Found = Box::new(self.entry.get()?.walk());
        Ok(Nodes::new(entries, self.source.clone()))
    }

    /// Name of the format of the container that contains this, or that this is.
    #[getter]
    fn format(&self) -> PyResult<Option<&'static str>> {
        Python::attach(|py| self.run(py, |entry| entry.format()))
    }

    /// Whether this folder is a container.
    #[getter]
    fn is_container(&self) -> PyResult<bool> {
        Python::attach(|py| self.run(py, |entry| entry.is_container()))
    }

    /// Paths of the containers that this one shows joined as one; None if its format joins none. Opens only a container
    /// that is known to name other files.
    fn joins(&self, py: Python<'_>) -> PyResult<Option<Vec<PathBuf>>> {
        self.run(py, Entry::joins_at_sight)
    }

    /// A name of the state of the file, or of the container that contains this.
    #[getter]
    fn state(&self) -> PyResult<Option<String>> {
        Python::attach(|py| self.run(py, |entry| entry.state()))
    }

    /// The text of container.json.
    fn description<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.run(py, Entry::description)?.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Paths of the arrays that are stored as items of the container, in its order.
    fn arrays(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let mut paths = self.run(py, Entry::items)?;
        paths.retain(|path| path.ends_with(".npy"));
        Ok(paths)
    }

    /// Number of recorded episodes in the container.
    fn episodes(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, Entry::episodes)
    }

    /// The path of an episode's folder below the container.
    fn episode_folder(&self, py: Python<'_>, position: u64) -> PyResult<String> {
        self.run(py, move |entry| entry.episode_folder(position))
    }

    /// Number of frames of an episode.
    fn episode_frames(&self, py: Python<'_>, position: u64) -> PyResult<u64> {
        self.run(py, move |entry| entry.episode_frames(position))
    }

    /// Description of the array that the file shows: short name of the element type, numpy's type string, bytes of an
    /// element, shape, codec, stored size, whether dtype or shape is a guess, shape of chunks, and the names of an
    /// enumeration as JSON. None for all other files.
    fn array<'py>(&self, py: Python<'py>) -> PyResult<Option<Info<'py>>> {
        let Some(info) = self.run(py, Entry::item_info)? else { return Ok(None) };
        let ItemInfo { dtype: Some(dtype), shape: Some(shape), codec, stored_size, inferred, chunks, names, .. } = info
        else {
            return Ok(None);
        };
        let shape = PyTuple::new(py, shape)?;
        let chunks = chunks.map(|chunks| PyTuple::new(py, chunks)).transpose()?;
        let names = names.map(String::from);
        Ok(Some((dtype.name(), dtype.descr(), dtype.size(), shape, codec, stored_size, inferred, chunks, names)))
    }

    /// Description of the stored item that a file or folder shows: type, shape, codec, shape of chunks,
    /// short name and type string of the elements, bytes of the fill value, and the fields of records. None for all
    /// others.
    fn item<'py>(&self, py: Python<'py>) -> PyResult<Option<ItemOf<'py>>> {
        let Some(ItemInfo { stored_type, dtype, shape, codec, chunks, fill, fields, .. }) =
            self.run(py, Entry::item_info)?
        else {
            return Ok(None);
        };
        let tuple = |axes: Option<Vec<u64>>| axes.map(|axes| PyTuple::new(py, axes)).transpose();
        let dtype = dtype.map(|dtype| (dtype.name(), dtype.descr()));
        let fill = fill.map(|fill| PyBytes::new(py, &fill));
        let field =
            |(name, of): ObjectField| (name.into(), of.map(|(dtype, axes)| (dtype.name(), dtype.descr(), axes)));
        let fields = fields.map(|fields| fields.into_iter().map(field).collect());
        Ok(Some((stored_type, tuple(shape)?, codec, tuple(chunks)?, dtype, fill, fields)))
    }

    /// Some rows of a file of lines of JSON, with marks for what JSON has no form for. None for files whose lines have
    /// nothing to mark.
    fn exact_rows<'py>(&self, py: Python<'py>, low: u64, high: u64) -> PyResult<Option<Bound<'py, PyBytes>>> {
        Ok(self.run(py, move |entry| entry.exact_rows(low..high))?.map(|lines| PyBytes::new(py, &lines)))
    }

    /// Whether the container that contains this has groups of its own.
    #[getter]
    fn has_groups(&self) -> PyResult<bool> {
        Python::attach(|py| self.run(py, Entry::has_groups))
    }

    /// The names of the groups and arrays in this folder.
    fn member_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.run(py, Entry::member_names)
    }

    /// The groups and arrays in this folder: name, kind, node of each.
    fn members(&self, py: Python<'_>) -> PyResult<Vec<(String, &'static str, Self)>> {
        let found = self.run(py, |entry| entry.members()?.into_iter().collect::<Result<Vec<_>, _>>())?;
        let made = |Member { name, kind, entry, .. }| (name, word(kind), Self::new(entry, self.source.clone()));
        Ok(found.into_iter().map(made).collect())
    }

    /// The kind and node of the group or array of a name in this folder; None if there is none.
    fn member(&self, py: Python<'_>, name: String) -> PyResult<Option<(&'static str, Self)>> {
        let found = self.run(py, move |entry| entry.member(&name))?;
        Ok(found.map(|member| (word(member.kind), Self::new(member.entry, self.source.clone()))))
    }

    /// What a link leads to; what is no link is itself.
    fn followed(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self::new(self.run(py, Entry::followed)?, self.source.clone()))
    }

    /// Where a link leads, as a path relative to its folder.
    fn link_target(&self, py: Python<'_>) -> PyResult<OsString> {
        Ok(self.run(py, Entry::link_target)?.into_os_string())
    }

    /// The attributes of a group or array: name and value of each. An array is short name and type string of its
    /// elements, shape and bytes; elements of other types are shape and JSON; other values are their JSON, with marks for
    /// what JSON has no form for; why one cannot be read is a text.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
        let found = self.run(py, Entry::attribute_values)?;
        let made = |(name, value)| {
            let value = match value {
                AttributeValue::Array(array) => {
                    let (dtype, descr) = (array.dtype().name(), array.dtype().descr());
                    let shape = PyTuple::new(py, array.shape())?;
                    (dtype, descr, shape, PyBytes::new(py, array.data())).into_bound_py_any(py)?
                }
                AttributeValue::Elements(shape, json) => {
                    (PyTuple::new(py, shape)?, PyBytes::new(py, &json)).into_bound_py_any(py)?
                }
                AttributeValue::Json(json) => PyBytes::new(py, &json).into_any(),
                AttributeValue::Failed(reason) => reason.into_bound_py_any(py)?,
                _ => py.None().into_bound(py),
            };
            Ok((name, value))
        };
        found.into_iter().map(made).collect()
    }

    /// The path below the container that contains this.
    #[getter]
    fn inside(&self, py: Python<'_>) -> PyResult<String> {
        self.run(py, |entry| Ok(entry.inside()))
    }

    /// Elements of an array in a slice (start, step, count) of each axis, as one array of that type and shape.
    fn slices(
        &self,
        py: Python<'_>,
        slices: Vec<(u64, u64, u64)>,
        itemsize: u64,
        typestr: &str,
        shape: Py<PyTuple>,
    ) -> PyResult<Memory> {
        let too_many = || PyValueError::new_err("slices beyond what an array can hold");
        let count = slices.iter().try_fold(itemsize, |size, (.., count)| size.checked_mul(*count));
        let slices: Vec<_> = slices.into_iter().map(|(start, step, count)| Slice { start, step, count }).collect();
        let read = move |entry: &Entry, out: &mut [u8]| entry.read_slices(&slices, out);
        let bytes = self.filled(py, count.ok_or_else(too_many)?, read)?;
        Ok(Memory::new(bytes, typestr, shape))
    }

    /// Up to `length` bytes of the file; fewer only at its end.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.min(self.entry.get()?.size().saturating_sub(offset));
        if is_far(&self.source) {
            let bytes = self.filled(py, length, move |entry, out| entry.read_into(offset, out).map(drop))?;
            return Ok(PyBytes::new(py, bytes.as_slice()));
        }
        let length = usize::try_from(length).map_err(|_| no_memory(length))?;
        // The interpreter writes zeros to all of it first. A size that a damaged file states is no reason for that.
        let mut first = [0; FIRST];
        let first = if length > LARGE { &mut first[..] } else { &mut [] };
        let entry = self.entry.get()?;
        detached(py, &self.source, || entry.read_into(offset, first))?;
        PyBytes::new_with(py, length, |out| {
            let (front, rest) = out.split_at_mut(first.len());
            front.copy_from_slice(first);
            detached(py, &self.source, || entry.read_into(offset + front.len() as u64, rest))
        })
    }

    /// Bytes of the file as the elements of an array of that type and shape, `length` bytes in all.
    fn elements(
        &self,
        py: Python<'_>,
        offset: u64,
        length: u64,
        typestr: &str,
        shape: Py<PyTuple>,
    ) -> PyResult<Memory> {
        let bytes = self.filled(py, length, move |entry, out| entry.read_into(offset, out).map(drop))?;
        Ok(Memory::new(bytes, typestr, shape))
    }

    /// As `elements`, but read-only and in place in the file; None if that is not possible.
    fn mapped(
        &self,
        py: Python<'_>,
        offset: u64,
        length: u64,
        typestr: &str,
        shape: Py<PyTuple>,
    ) -> PyResult<Option<Memory>> {
        let leased = self.run(py, move |entry| entry.leased(offset, length))?;
        Ok(leased.map(|leased| Memory::new(Bytes::Leased(leased), typestr, shape)))
    }

    /// Rows of `row` bytes each, which begin at `offset`, by their numbers, as one array of that type and shape.
    fn rows(
        &self,
        py: Python<'_>,
        offset: u64,
        row: u64,
        numbers: Vec<u64>,
        typestr: &str,
        shape: Py<PyTuple>,
    ) -> PyResult<Memory> {
        let too_far = || PyValueError::new_err("rows beyond what a file can hold");
        let length = row.checked_mul(numbers.len() as u64).ok_or_else(too_far)?;
        let bytes = self.filled(py, length, move |entry, mut rest| {
            // Consecutive rows are read together.
            for run in numbers.chunk_by(|here, next| here.checked_add(1) == Some(*next)) {
                let (here, after) = rest.split_at_mut((row * run.len() as u64) as usize);
                entry.read_into(offset.saturating_add(row.saturating_mul(run[0])), here)?;
                rest = after;
            }
            Ok(())
        })?;
        Ok(Memory::new(bytes, typestr, shape))
    }
}

type Found = Box<dyn Iterator<Item = Result<Entry, Error>> + Send>;

/// Nodes, found during the iteration.
#[pyclass(module = "shardfs._core", frozen)]
pub(crate) struct Nodes {
    entries: Owned<Arc<Mutex<Found>>>,
    source: Arc<str>,
}

impl Nodes {
    fn new(entries: Found, source: Arc<str>) -> Self {
        Self { entries: Owned::new(Arc::new(Mutex::new(entries))), source }
    }
}

#[pymethods]
impl Nodes {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Node>> {
        let entries = self.entries.get()?.clone();
        let next = move || entries.lock().unwrap_or_else(PoisonError::into_inner).next().transpose();
        let entry =
            if is_far(&self.source) { waited(py, &self.source, next)? } else { detached(py, &self.source, next)? };
        Ok(entry.map(|entry| Node::new(entry, self.source.clone())))
    }
}

/// A read of [`read_many`]: file, offset, length, numpy's type string, shape.
type Read = (Py<Node>, u64, u64, String, Py<PyTuple>);

/// Reads many arrays on `threads` threads at once. Returns a list of `Memory`, with an exception for each failed read.
#[pyfunction]
pub(crate) fn read_many<'py>(py: Python<'py>, reads: Vec<Read>, threads: usize) -> PyResult<Bound<'py, PyList>> {
    let mut jobs = Vec::new();
    for (node, offset, length, ..) in &reads {
        jobs.push((node.get().entry.get()?.clone(), *offset, *length));
    }
    let is_given_up = Arc::<AtomicBool>::default();
    let done = interruptible(py, is_given_up.clone(), move || all_read(&jobs, threads, &is_given_up))?;
    let list = PyList::empty(py);
    for ((node, _, length, typestr, shape), result) in reads.iter().zip(done) {
        match result.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(Ok(bytes)) => list.append(Py::new(py, Memory::new(bytes, typestr, shape.clone_ref(py)))?)?,
            Some(Err(Failure::Read(error))) => list.append(to_python(py, &error, &node.get().source).into_value(py))?,
            Some(Err(Failure::Panic)) => list.append(fault().into_value(py))?,
            Some(Err(Failure::Memory(size))) => list.append(no_memory(size).into_value(py))?,
            None => list.append(no_memory(*length).into_value(py))?,
        }
    }
    Ok(list)
}

/// Makes reads (file, offset, length) on `threads` threads at once, until they are given up.
fn all_read(
    jobs: &[(Entry, u64, u64)],
    threads: usize,
    is_given_up: &Arc<AtomicBool>,
) -> Vec<Mutex<Option<Result<Bytes, Failure>>>> {
    let done: Vec<_> = jobs.iter().map(|_| Mutex::default()).collect();
    let next = AtomicUsize::new(0);
    let each = || {
        while !is_given_up.load(Relaxed)
            && let Some((job, (entry, offset, length))) =
                Some(next.fetch_add(1, Relaxed)).and_then(|n| Some((n, jobs.get(n)?)))
        {
            let read = || {
                let mut bytes = Bytes::zeroed(*length).map_err(Failure::Memory)?;
                entry.read_into(*offset, bytes.as_mut()).map_err(Failure::Read)?;
                Ok(bytes)
            };
            let result = caught(read).unwrap_or_else(|Panicked| Err(Failure::Panic));
            *done[job].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    let work = || shardfs::until_given_up(is_given_up.clone(), each);
    thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            // If a thread cannot be started, the others do its part.
            let _ = thread::Builder::new().name("read".into()).spawn_scoped(scope, work);
        }
        work();
    });
    done
}

/// Why a read of [`read_many`] failed.
enum Failure {
    Read(Error),
    Memory(u64),
    Panic,
}
