"""Arrays: type and shape are known at once, elements are decoded when they are asked for."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _core, _process
from ._dataset import Dataset
from ._dtypes import of_name, with_names
from ._errors import Error, NotAnArray
from ._selection import Selection, leaves_axes, select

if TYPE_CHECKING:
    from ._core import Memory, Node
    from ._group import Group

#: Bytes of a stored `.npy` file that are read for its header, at first and at most. Parsing takes some 500 times as much.
_HEADER = 1024
_MOST = 256 << 10
#: Texts in such a header, and numbers of Python 2 with their suffix.
_LONG = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\b[0-9]+L\b""")


class _Known(NamedTuple):
    """What is known of an array before anything is decoded."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    items: int
    itemsize: int
    typestr: str
    codec: str | None = None
    stored_size: int | None = None
    inferred: bool = False
    chunks: tuple[int, ...] | None = None


class Array(Dataset):
    """An array of a container. Its type and shape are known at once; elements are decoded when they are asked for.

    - `a[10:20]`, `a[3]`, `a[:, 0, ::2]`, `a[[5, 1]]`, `a[:, mask]` return new, writable numpy arrays and decode only the
      blocks, chunks, frames or rows that they touch. `a["x"]` is a field of records. A list chooses along its axis, as
      in h5py and zarr; several lists together, as in numpy.
    - `numpy.asarray(a)` decodes the whole array once. The result is read-only. This object keeps it and shares its
      memory, so the next `asarray` costs nothing. `numpy.array(a)` and `a[...]` copy.
    - `torch.from_dlpack(a)`, `jax.numpy.from_dlpack(a)` and all else that knows `__dlpack__` or `__array__` work.
      numpy exports no types that it lacks: for those of ml_dtypes, such as bf16, `from_dlpack` raises `BufferError`.

    - `a.mapped()` returns the whole array without a copy if its elements are stored uncompressed.

    Elements that were read stay as they were, even if the file changes. A read after the file has changed or was
    truncated raises `shardfs.Changed`.

    Attributes, in addition to those of `Dataset`:
        dtype: numpy's dtype. Types that numpy lacks (bf16, 8-bit floats) are those of ml_dtypes if it is installed,
            otherwise their bits as unsigned integers.
        nbytes: bytes of the elements, decoded.
        stored_size: bytes that it takes in the container, or None.
        inferred: whether dtype or shape is a guess, because the container does not say.

    Raises, when elements are asked for: `shardfs.DamagedBlock`, `shardfs.Changed`, `MemoryError`, `OSError`.
    """

    __slots__ = ("_known", "_held", "_start", "_fortran")

    def __init__(self, source: _process.Where, path: str, state: str | None = None, node: Node | None = None) -> None:
        super().__init__(source, path, state, node)
        self._known: _Known | None = None
        self._held: NDArray[Any] | None = None
        self._start, self._fortran = 0, False

    def _info(self) -> _Known:
        if self._known is None:
            node = self._node
            known = node.array()
            if known is None:
                self._known, self._start, self._fortran = _stored_file(node, self.path)
                return self._known
            name, descr, itemsize, shape, codec, stored, inferred, chunks, names = known
            dtype, typestr = of_name(name, descr)
            if names is not None:
                dtype = with_names(dtype, json.loads(names))
            items = math.prod(shape)
            # The elements stand at the end of the .npy file, behind its header.
            self._start = node.size - items * itemsize
            self._known = _Known(dtype, shape, items, itemsize, typestr, codec, stored, inferred, chunks)
        return self._known

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        return self._info().dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self._info().shape

    @property
    def size(self) -> int:
        """Number of elements."""
        return self._info().items

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._info().itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._info().items * self._info().itemsize

    @property
    def codec(self) -> str | None:
        """How it is stored."""
        return self._info().codec

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the chunks that it is stored in, or None."""
        return self._info().chunks

    @property
    def stored_size(self) -> int | None:
        """Bytes that it takes in the container."""
        return self._info().stored_size

    @property
    def inferred(self) -> bool:
        """Whether dtype or shape is a guess."""
        return self._info().inferred

    def __repr__(self) -> str:
        try:
            return f"<shardfs.Array {self.path}: {self.dtype} {self.shape}>"
        except (OSError, NotAnArray) as error:
            return f"<shardfs.Array {self.path}: {error}>"

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy:
            return np.array(self._whole(), dtype=dtype)
        whole = self._whole()
        if dtype is None or np.dtype(dtype) == whole.dtype:
            return whole
        if copy is False:
            raise ValueError(f"elements are {whole.dtype}: another type needs a copy")
        return whole.astype(dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        dtype = self._info().dtype
        if dtype.kind == "V" or dtype.isbuiltin == 2:
            # The protocol has no names for types of ml_dtypes, and knows no gaps between the fields of records:
            # `__array__` returns both.
            raise AttributeError("__array_interface__")
        return dict(self._whole().__array_interface__)

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        # A consumer of before DLPack 1.0 can't be told that memory is read-only: it gets memory of its own.
        if max_version is None or tuple(max_version) < (1, 0):
            return np.array(self._whole()).__dlpack__(stream=stream)
        return self._whole().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return "shardfs", self._source, self._path, self._state or self._node.state

    def mapped(self) -> NDArray[Any]:
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

    def _whole(self) -> NDArray[Any]:
        """Returns all elements, read-only. This object keeps them."""
        if self._held is None:
            whole = self._read(0, self._info().shape)
            whole.flags.writeable = False
            self._held = whole
        return self._held

    def _read(self, first: int, shape: tuple[int, ...]) -> NDArray[Any]:
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
            return whole if shape == self.shape else whole.reshape(-1)[first:first + items].reshape(shape)
        return _as_array(node.elements(self._start + first * itemsize, items * itemsize, typestr, shape), dtype)

    def _rows(self, first: int, numbers: Sequence[int], shape: tuple[int, ...]) -> NDArray[Any]:
        """Returns rows of this shape by their numbers, counted from element number `first` on."""
        dtype, _, _, itemsize, typestr, *_ = self._info()
        row = itemsize * math.prod(shape)
        if self._fortran:
            return self._read(0, self.shape).reshape(-1)[first:].reshape(-1, *shape)[numbers]
        if row == 0 or not len(numbers):
            return np.empty((len(numbers), *shape), dtype)
        memory = self._node.rows(self._start + first * itemsize, row, list(numbers), typestr, (len(numbers), *shape))
        return _as_array(memory, dtype)

    def __getitem__(self, key: Any) -> Any:
        if key is Ellipsis and self._held is None:
            return self._read(0, self._info().shape)
        names = None
        if self._info().dtype.names is not None:
            key, names = without_names(key)
        selection = select(key, self._info().shape)
        if self._held is not None:
            found = np.array(self._held[key] if selection is None else selection.of(self._held))
        elif selection is None:
            found = np.array(self._read(0, self._info().shape)[key])
        else:
            found = selection.with_new(self._chosen(selection))
        found = found if names is None else found[names]
        return found if leaves_axes(key) and not self._info().shape else found[()]

    def _chosen(self, selection: Selection) -> NDArray[Any]:
        """Reads what is chosen, in memory of its own."""
        axes, whole = selection.axes, self._info().shape
        if 0 in selection.shape:
            return np.empty(selection.shape, self._info().dtype)
        # Numbers of the first axes leave them out: what follows is an array that begins elsewhere.
        first, at, inner = 0, 0, whole
        while at < len(axes) and isinstance(number := axes[at], int):
            inner = inner[1:]
            first, at = first + number * math.prod(inner), at + 1
        rest = axes[at:]
        if all(isinstance(axis, range) and axis == range(length) for axis, length in zip(rest[1:], inner[1:])):
            if not rest:
                return self._read(first, ())
            return self._first_axis(first, rest[0], inner[1:])
        if self._info().chunks is not None and not self._fortran:
            return self._of_chunks(selection)
        # What lies between the first and the last row that is chosen.
        axis = rest[0]
        assert not isinstance(axis, int)
        if isinstance(axis, range) and abs(axis.step) == 1:
            low, last = _ends(axis)
            high = last + 1
            found = self._read(first + low * math.prod(inner[1:]), (high - low, *inner[1:]))
            front: range | list[int] = range(axis.start - low, axis.stop - low, axis.step)
        else:
            found = self._rows(first, list(axis), inner[1:])
            front = range(len(axis))
        return np.array(Selection([front, *rest[1:]], ()).of(found))

    def _first_axis(self, first: int, axis: int | range | list[int], inner: tuple[int, ...]) -> NDArray[Any]:
        """Reads rows of this shape, counted from element number `first` on."""
        if isinstance(axis, range) and axis.step in (1, -1):
            found = self._read(first + _ends(axis)[0] * math.prod(inner), (len(axis), *inner))
            return found[::axis.step]
        assert not isinstance(axis, int)
        return self._rows(first, list(axis), inner)

    def _of_chunks(self, selection: Selection) -> NDArray[Any]:
        """Reads slices along all axes, which decode only the chunks that they touch."""
        axes = selection.axes
        listed = next((number for number, axis in enumerate(axes) if isinstance(axis, list)), None)
        if listed is None:
            found = self._slices([axis if isinstance(axis, range) else range(axis, axis + 1)
                                  for axis in axes if not isinstance(axis, list)])
        else:
            # Each number once, in order, and numbers that follow each other together.
            numbers = axes[listed]
            assert isinstance(numbers, list)
            once, back = np.unique(numbers, return_inverse=True)
            runs = np.split(once, np.flatnonzero(np.diff(once) != 1) + 1)
            others = [axis if isinstance(axis, range) else range(axis, axis + 1) if isinstance(axis, int) else range(0)
                      for axis in axes]
            parts = []
            for run in runs:
                others[listed] = range(int(run[0]), int(run[-1]) + 1)
                parts.append(self._slices(others))
            found = np.concatenate(parts, listed).take(back.reshape(-1), listed)
        return found.reshape(selection.shape)

    def _slices(self, axes: list[range]) -> NDArray[Any]:
        dtype, _, _, itemsize, typestr, *_ = self._info()
        # Steps go up while it is read.
        up = [axis if axis.step > 0 else axis[::-1] for axis in axes]
        shape = tuple(len(axis) for axis in axes)
        slices = [(axis.start, axis.step, len(axis)) for axis in up]
        found = _as_array(self._node.slices(slices, itemsize, typestr, shape), dtype)
        turn = tuple(slice(None, None, 1 if axis.step > 0 else -1) for axis in axes)
        return found[turn] if any(axis.step < 0 for axis in axes) else found


def _ends(axis: range) -> tuple[int, int]:
    """Returns the smallest and the largest number of a range that is not empty, without going through it."""
    return min(axis[0], axis[-1]), max(axis[0], axis[-1])


def without_names(key: Any) -> tuple[Any, Any]:
    """Returns an index without the names of fields in it, and those."""
    keys = list(key) if isinstance(key, tuple) else [key]
    names = [each for each in keys if isinstance(each, str)]
    lists = [each for each in keys if isinstance(each, list) and each and all(isinstance(name, str) for name in each)]
    if not names and not lists:
        return key, None
    rest = tuple(each for each in keys if not isinstance(each, str) and not any(each is known for known in lists))
    chosen = names + [name for each in lists for name in each]
    return rest, chosen[0] if len(chosen) == 1 and not lists else chosen


def _stored_file(node: Node, path: str) -> tuple[_Known, int, bool]:
    """Returns what the header of a stored `.npy` file says: what `Array` knows, where the elements begin, and whether
    they are in Fortran order."""
    front = node.read(0, _HEADER) if node.name.endswith(".npy") else b""
    if front[:6] != b"\x93NUMPY" or len(front) < 12:
        raise NotAnArray("not an array", container=path)
    wide = front[6] > 1
    begin = 12 if wide else 10
    start = begin + int.from_bytes(front[8:begin], "little")
    if start > _MOST:
        raise NotAnArray(f"a header of {start} bytes; at most {_MOST} are read", container=path)
    try:
        text = (front[begin:start] if start <= len(front) else node.read(begin, start - begin)).decode(
            "utf-8" if front[6] > 2 else "latin-1")
        try:
            header = ast.literal_eval(text)
        except SyntaxError:
            if front[6] > 2:
                raise
            # Python 2 wrote some numbers as 3L.
            header = ast.literal_eval(_LONG.sub(lambda found: found[0].removesuffix("L"), text))
        dtype, shape, fortran = np.lib.format.descr_to_dtype(header["descr"]), header["shape"], header["fortran_order"]
        if len(header) != 3 or type(shape) is not tuple or type(fortran) is not bool or dtype.subdtype is not None:
            raise ValueError("other values than numpy writes")
        # Raises what numpy says of axes that no array has.
        np.ndarray(shape, dtype, np.empty(1, dtype), strides=(0,) * len(shape))
        items = math.prod(shape)
        if min(shape, default=0) < 0 or items >= 1 << 63:
            raise ValueError(f"no array has the shape {shape}")
    except (SyntaxError, TypeError, ValueError, LookupError, OverflowError, RecursionError, MemoryError) as error:
        raise NotAnArray(f"its header is not one of .npy files: {error}", container=path) from None
    if dtype.hasobject:
        raise NotAnArray("an array of objects, stored as a pickle: only numpy.load(allow_pickle=True) reads it, by executing "
                         "it", container=path)
    if start + items * dtype.itemsize > node.size:
        raise NotAnArray(f"{items} elements of {dtype} do not fit its {node.size} bytes", container=path)
    typestr = dtype.str if dtype.fields is None and dtype.kind in "biufcmMSUV" else f"|V{dtype.itemsize}"
    known = _Known(dtype, shape, items, dtype.itemsize, typestr)
    return known, start, fortran and len(shape) > 1


def _as_array(memory: Memory, dtype: np.dtype[Any]) -> NDArray[Any]:
    array = np.asarray(memory)
    return array if array.dtype == dtype else array.view(dtype)


def read_many(arrays: Iterable[Array | tuple[Group, str] | Group], *, threads: int | None = None,
              errors: Literal["raise", "return"] = "raise") -> list[Any]:
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
    if threads is not None and threads < 0:
        raise ValueError(f"threads={threads}: a number, or None for one for each core")
    jobs: list[Any] = []
    shapes: list[tuple[int | None, Any]] = []

    def add(group: Any, name: str | None) -> None:
        try:
            prepare(group if name is None else group[name])
        except (Error, OSError, KeyError, MemoryError) as error:
            if errors == "raise":
                raise
            shapes.append((None, error))

    def prepare(array: Array) -> None:
        dtype, shape, items, itemsize, typestr, *_ = array._info()
        if items == 0:
            shapes.append((None, np.empty(shape, dtype)))
            return
        job = (array._node, array._start, items * itemsize, typestr, shape[::-1] if array._fortran else shape)
        shapes.append((len(jobs), (dtype, array._fortran)))
        jobs.append(job)

    plan: list[list[str] | None] = []
    for wanted in arrays:
        try:
            if isinstance(wanted, tuple):
                group, name = wanted
                wanted = group[name]
            if not isinstance(wanted, Array) and not hasattr(wanted, "_array_names"):
                raise TypeError(f"a list of arrays, containers and pairs (container, name), not of {type(wanted).__name__}")
            names = None if isinstance(wanted, Array) else wanted._array_names()
        except (Error, OSError, KeyError, MemoryError) as error:
            if errors == "raise":
                raise
            shapes.append((None, error))
            plan.append(None)
            continue
        for each in (None,) if names is None else names:
            add(wanted, each)
        plan.append(names)
    done = _core.read_many(jobs, threads or _process.cores())
    failed = next((result for result in done if isinstance(result, BaseException)), None)
    if failed is not None and errors == "raise":
        raise failed

    def finished(memory: Memory, dtype: np.dtype[Any], fortran: bool) -> NDArray[Any]:
        array = _as_array(memory, dtype)
        return array.T if fortran else array

    found = iter([made if job is None else done[job] if isinstance(done[job], BaseException)
                  else finished(done[job], *made) for job, made in shapes])
    return [next(found) if names is None else {name: next(found) for name in names} for names in plan]
