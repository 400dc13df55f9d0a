"""Arrays: type and shape are known at once, elements are decoded when they are asked for."""

import ast
import functools
import math

import numpy as np

from . import _core, _process
from ._entry import Place
from ._errors import NotAnArray

#: Bytes of a stored `.npy` file that are read for its header, at first.
_HEADER = 1024
#: Types that numpy lacks, by their short names: what ml_dtypes calls them.
_ML_DTYPES = {"bf16": "bfloat16", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
              "f8_e8m0fnu": "float8_e8m0fnu", "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz"}


@functools.lru_cache(256)
def _dtype(name, descr):
    """Returns numpy's dtype of an element type, and the type string that memory is shown with."""
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
            return np.dtype(getattr(ml_dtypes, _ML_DTYPES[name])), descr
        except (ImportError, AttributeError):
            pass
    if not descr.startswith("["):
        return np.dtype(descr), descr
    record = np.lib.format.descr_to_dtype(ast.literal_eval(descr))
    return record, f"|V{record.itemsize}"


class Array(Place):
    """An array of a container. Its type and shape are known at once; elements are decoded when they are asked for.

    - `a[10:20]`, `a[3]`, `a[:, 0]`, `a[[5, 1]]`, `a[mask]` return new, writable numpy arrays. Indices of the first axes
      decode only the blocks, frames or rows that they touch; indices of later axes are applied afterwards.
    - `numpy.asarray(a)` decodes the whole array once. The result is read-only. This object keeps it and shares its
      memory, so the next `asarray` costs nothing. `numpy.array(a)` and `a[...]` copy.
    - `torch.from_dlpack(a)`, `jax.numpy.from_dlpack(a)` and all else that knows `__dlpack__` or `__array__` work.

    - `a.mapped()` returns the whole array without a copy if its elements are stored uncompressed.

    Elements that were read stay as they were, even if the file changes. A read after the file has changed or was
    truncated raises `shardfs.Changed`.

    Attributes:
        dtype: numpy's dtype. Types that numpy lacks (bf16, 8-bit floats) are those of ml_dtypes if it is installed,
            otherwise their bits as unsigned integers.
        shape: elements along each axis, the outermost first.
        ndim, size, nbytes: as in numpy; bytes are those of the elements, decoded.
        codec: how it is stored: 'none', 'zstd', 'lz4', 'deflate', ...; None if it is put together from several parts.
        stored_size: bytes that it takes in the container, or None.
        inferred: whether dtype or shape is a guess, because the container does not say.

    Raises, when elements are asked for: `shardfs.DamagedBlock`, `shardfs.Changed`, `MemoryError`, `OSError`.
    """

    __slots__ = ("_known", "_held", "_start", "_fortran")

    def __init__(self, source, path, state=None, node=None):
        super().__init__(source, path, state, node)
        self._known, self._held, self._start, self._fortran = None, None, 0, False

    def _info(self):
        if self._known is None:
            node = self._node
            known = node.array()
            if known is None:
                self._known, self._start, self._fortran = _stored_file(node, self.path)
                return self._known
            name, descr, itemsize, shape, codec, stored, inferred = known
            dtype, typestr = _dtype(name, descr)
            items = math.prod(shape)
            # The elements stand at the end of the .npy file, behind its header.
            self._start = node.size - items * itemsize
            self._known = dtype, shape, items, itemsize, typestr, codec, stored, inferred
        return self._known

    dtype = property(lambda self: self._info()[0], doc="Type of the elements.")
    shape = property(lambda self: self._info()[1], doc="Elements along each axis.")
    size = property(lambda self: self._info()[2], doc="Number of elements.")
    itemsize = property(lambda self: self._info()[3], doc="Bytes of an element.")
    codec = property(lambda self: self._info()[5], doc="How it is stored.")
    stored_size = property(lambda self: self._info()[6], doc="Bytes that it takes in the container.")
    inferred = property(lambda self: self._info()[7], doc="Whether dtype or shape is a guess.")
    nbytes = property(lambda self: self._info()[2] * self._info()[3], doc="Bytes of all elements.")
    ndim = property(lambda self: len(self._info()[1]), doc="Number of axes.")

    @property
    def name(self):
        """The name of the array: its path without the suffix, from the last '/' on."""
        return self._path.rpartition("/")[2].removesuffix(".npy")

    def __repr__(self):
        try:
            return f"<shardfs.Array {self.path}: {self.dtype} {self.shape}>"
        except OSError as error:
            return f"<shardfs.Array {self.path}: {error}>"

    def __len__(self):
        shape = self._info()[1]
        if not shape:
            raise TypeError("len() of an array without axes")
        return shape[0]

    def __iter__(self):
        # Each row by itself: what was read of a block stays in the cache while its other rows are read.
        return (self[row] for row in range(len(self)))

    def __array__(self, dtype=None, copy=None):
        if copy:
            return np.array(self._whole(), dtype=dtype)
        whole = self._whole()
        if dtype is None or np.dtype(dtype) == whole.dtype:
            return whole
        if copy is False:
            raise ValueError(f"elements are {whole.dtype}: another type needs a copy")
        return whole.astype(dtype)

    @property
    def __array_interface__(self):
        interface = dict(self._whole().__array_interface__)
        if self._info()[0].kind == "V" and self._info()[0].fields is None:
            # An element type that numpy's protocol has no name for, such as bf16: `__array__` knows it.
            raise AttributeError("__array_interface__")
        return interface

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        # A consumer of before DLPack 1.0 can't be told that memory is read-only: it gets memory of its own.
        if copy or max_version is None or tuple(max_version) < (1, 0):
            return np.array(self._whole()).__dlpack__(stream=stream)
        return self._whole().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self):
        return 1, 0  # the CPU

    def __dask_tokenize__(self):
        return "shardfs", self._source, self._path, self._state or self._node.state

    def mapped(self):
        """Returns all elements as a read-only numpy array that maps the file, if that is safe; otherwise the same as
        `numpy.asarray`.

        Nothing is copied, and processes that map the same file share its pages. Only uncompressed arrays can be mapped,
        in files of this machine that are yours (or any user's, for root) and that no program has open for writing.
        While such an array is held, a program that wants to write to the file or truncate it waits some milliseconds
        until the elements have been copied into memory. They stay as they were, and there is no SIGBUS. Before a fork
        they are copied too. A stopped process delays writers for as long as the kernel allows, which is 45 seconds. If
        the file is truncated after that, SIGBUS may end the stopped process when it continues.
        """
        if self._held is None:
            dtype, shape, items, itemsize, typestr, *_ = self._info()
            has_elements = items and not self._fortran
            memory = self._node.mapped(self._start, items * itemsize, typestr, shape) if has_elements else None
            if memory is not None:
                self._held = _as_array(memory, dtype)
        return self._whole()

    def _whole(self):
        """Returns all elements, read-only. This object keeps them."""
        if self._held is None:
            whole = self._read(0, self._info()[1])
            whole.flags.writeable = False
            self._held = whole
        return self._held

    def _read(self, first, shape):
        """Returns elements from number `first` on as a new array of this shape."""
        dtype, _, _, itemsize, typestr, *_ = self._info()
        items = math.prod(shape)
        if items == 0:
            return np.empty(shape, dtype)
        node = self._node
        if self._fortran:
            elements = node.elements(self._start, self.nbytes, typestr, self.shape[::-1])
            # As numpy.load gives it; parts are taken in C order.
            whole = _as_array(elements, dtype).T
            return whole if items == self.size else whole.reshape(-1)[first:first + items].reshape(shape)
        return _as_array(node.elements(self._start + first * itemsize, items * itemsize, typestr, shape), dtype)

    def _rows(self, first, numbers, shape):
        """Returns rows of this shape by their numbers, counted from element number `first` on."""
        dtype, _, _, itemsize, typestr, *_ = self._info()
        row = itemsize * math.prod(shape)
        if self._fortran:
            return self._read(0, self.shape).reshape(-1)[first:].reshape(-1, *shape)[numbers]
        if row == 0 or not len(numbers):
            return np.empty((len(numbers), *shape), dtype)
        memory = self._node.rows(self._start + first * itemsize, row, numbers, typestr, (len(numbers), *shape))
        return _as_array(memory, dtype)

    def __getitem__(self, key):
        if self._held is not None:
            return np.array(self._held[key])[()]
        keys = list(key) if isinstance(key, tuple) else [key]
        shape = self._info()[1]
        if not all(isinstance(each, (slice, int, np.integer)) and not isinstance(each, bool) or each is None
                   or each is Ellipsis for each in keys):
            numbers = _row_numbers(keys, shape)
            return self._read(0, shape)[key] if numbers is None else self._rows(0, numbers, shape[1:])
        first = 0
        # An integer leaves out an axis: what follows is an array that begins elsewhere.
        while keys and shape and isinstance(keys[0], (int, np.integer)):
            number, length, inner = int(keys.pop(0)), shape[0], shape[1:]
            if not -length <= number < length:
                axis = self.ndim - len(shape)
                raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
            first, shape = first + number % length * math.prod(inner), inner
        if not (keys and shape and isinstance(keys[0], slice)):
            # The rest of the array, with indices that numpy applies.
            return self._read(first, shape)[tuple(keys)]
        numbers, inner = range(shape[0])[keys[0]], shape[1:]
        if len(numbers) and numbers.step in (1, -1):
            low = min(numbers[0], numbers[-1])
            found = self._read(first + low * math.prod(inner), (len(numbers), *inner))[::numbers.step]
        else:
            found = self._rows(first, list(numbers), inner)
        return found[(slice(None), *keys[1:])] if keys[1:] else found


def _stored_file(node, path):
    """Returns what the header of a stored `.npy` file says: what `Array` knows, where the elements begin, and whether
    they are in Fortran order."""
    front = node.read(0, _HEADER) if node.name.endswith(".npy") else b""
    if front[:6] != b"\x93NUMPY" or len(front) < 12:
        raise NotAnArray("not an array", container=path)
    wide = front[6] > 1
    begin = 12 if wide else 10
    start = begin + int.from_bytes(front[8:begin], "little")
    try:
        header = ast.literal_eval((front[begin:start] if start <= len(front) else node.read(begin, start - begin))
                                  .decode("utf-8" if front[6] > 2 else "latin-1"))
        dtype, shape, fortran = np.lib.format.descr_to_dtype(header["descr"]), header["shape"], header["fortran_order"]
        items = math.prod(shape)
    except (SyntaxError, TypeError, ValueError, KeyError, RecursionError, MemoryError) as error:
        raise NotAnArray(f"its header is not one of .npy files: {error}", container=path) from None
    if dtype.hasobject:
        raise NotAnArray("an array of objects, stored as a pickle: only numpy.load(allow_pickle=True) reads it, by executing "
                         "it", container=path)
    if start + items * dtype.itemsize > node.size:
        raise NotAnArray(f"{items} elements of {dtype} do not fit its {node.size} bytes", container=path)
    typestr = dtype.str if dtype.fields is None and dtype.kind in "biufcmMSUV" else f"|V{dtype.itemsize}"
    known = dtype, tuple(shape), items, dtype.itemsize, typestr, None, None, False
    return known, start, bool(fortran) and len(shape) > 1


def _as_array(memory, dtype):
    array = np.asarray(memory)
    return array if array.dtype == dtype else array.view(dtype)


def _row_numbers(keys, shape):
    """Returns the rows that a list or mask along the first axis chooses, if that is the whole index; otherwise None."""
    if len(keys) != 1 or not shape or not isinstance(keys[0], (list, np.ndarray)):
        return None
    chosen, length = np.asarray(keys[0]), shape[0]
    if chosen.ndim != 1 or chosen.dtype.kind not in "iub":
        return None
    if chosen.dtype.kind == "b":
        return np.flatnonzero(chosen).tolist() if len(chosen) == length else None
    chosen = chosen.tolist()
    for number in chosen:
        if not -length <= number < length:
            raise IndexError(f"index {number} is out of bounds for axis 0 with size {length}")
    return [number % length for number in chosen]


def read_many(arrays, *, threads=None, errors="raise"):
    """Reads arrays, or whole containers, on all cores at once.

    Args:
        arrays: `Array`s; pairs `(container, name)`; or containers and episodes, which mean all of their arrays.
        threads: how many threads decode; by default one for each core.
        errors: 'raise' raises the first error after all have been read; 'return' puts each in its array's place.

    Returns:
        A list with a numpy array for each array, and a dict of them by name for each container; all writable.

    Raises:
        The same as reading one of them.
    """
    if errors not in ("raise", "return"):
        raise ValueError(f"errors={errors!r}: 'raise' or 'return'")
    jobs, shapes = [], []

    def add(array):
        dtype, shape, items, itemsize, typestr, *_ = array._info()
        if items == 0:
            shapes.append((None, np.empty(shape, dtype)))
            return
        shapes.append((len(jobs), (dtype, array._fortran)))
        jobs.append((array._node, array._start, items * itemsize, typestr, shape[::-1] if array._fortran else shape))

    plan = []
    for wanted in arrays:
        if isinstance(wanted, tuple):
            wanted = wanted[0][wanted[1]]
        if isinstance(wanted, Array):
            add(wanted)
            plan.append(None)
        else:
            names = list(wanted)
            for name in names:
                add(wanted[name])
            plan.append(names)
    done = _core.read_many(jobs, threads or _process.cores())
    failed = next((result for result in done if isinstance(result, BaseException)), None)
    if failed is not None and errors == "raise":
        raise failed

    def finished(memory, dtype, fortran):
        array = _as_array(memory, dtype)
        return array.T if fortran else array

    found = iter([made if job is None else done[job] if isinstance(done[job], BaseException)
                  else finished(done[job], *made) for job, made in shapes])
    return [next(found) if names is None else {name: next(found) for name in names} for names in plan]
