"""What arrays and rows have in common: the face that programs for h5py and zarr know."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._entry import SUFFIXES, Member
from ._selection import is_number, leaves_axes

#: Names in `codec` that are no compression.
_NO_COMPRESSION = {"none", "shuffle", "fletcher32", "nbit", "scaleoffset", "crc32c", "bytes", "transpose"}


class Dataset(Member):
    """An array, or rows of varying length: `shardfs.Array` or `shardfs.Rows`.

    Attributes:
        dtype, shape, ndim, size: as in numpy.
        chunks: the shape of the chunks that it is stored in, or None.
        codec: how it is stored: 'none', 'zstd', 'gzip+shuffle', ...
        compression: the compression in `codec`, or None.
        shuffle, fletcher32: whether `codec` has them.
        maxshape: the shape; nothing grows here.
        fillvalue: what elements have that were never written, if the container says it; otherwise zero.
    """

    __slots__ = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def codec(self) -> str | None:
        raise NotImplementedError

    @property
    def chunks(self) -> tuple[int, ...] | None:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        raise NotImplementedError

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for axis in self.shape:
            size *= axis
        return size

    @property
    def maxshape(self) -> tuple[int, ...]:
        """The shape; nothing grows here."""
        return self.shape

    @property
    def compression(self) -> str | None:
        """The compression in `codec`, or None."""
        return next((name for name in (self.codec or "none").split("+") if name not in _NO_COMPRESSION), None)

    @property
    def shuffle(self) -> bool:
        """Whether bytes were shuffled."""
        return "shuffle" in (self.codec or "").split("+")

    @property
    def fletcher32(self) -> bool:
        """Whether chunks have checksums of this kind."""
        return "fletcher32" in (self.codec or "").split("+")

    @property
    def fillvalue(self) -> Any:
        """What elements have that were never written."""
        item = self._node.item()
        fill = item[5] if item is not None else None
        if fill is None:
            return np.zeros((), self.dtype)[()]
        found = np.frombuffer(bytearray(fill), self.dtype)
        # That of an array type is an array.
        axes = next(self.shape[at:] for at in range(self.ndim, -1, -1) if math.prod(self.shape[at:]) == found.size)
        return found.reshape(axes)[()]

    def _inside_stem(self) -> str:
        inside = self._inside()
        return next((inside.removesuffix(suffix) for suffix in SUFFIXES if inside.endswith(suffix)), inside)

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("len() of an array without axes")
        return shape[0]

    def len(self) -> int:
        """Returns the length of the first axis."""
        return len(self)

    def __iter__(self) -> Iterator[Any]:
        # Each row by itself: what was read of a block stays in the cache while its other rows are read.
        return (self[row] for row in range(len(self)))

    def astype(self, dtype: DTypeLike) -> AsType:
        """Returns a view that gives elements of another type: `a.astype("f8")[10:20]`."""
        return AsType(self, np.dtype(dtype))

    def asstr(self, encoding: str | None = None, errors: str = "strict") -> AsStr:
        """Returns a view that gives texts as `str`: `texts.asstr()[:3]`.

        Raises:
            TypeError: the elements are no texts.
        """
        if not self._are_texts():
            raise TypeError("asstr() is for texts")
        return AsStr(self, encoding or "utf-8", errors)

    def _are_texts(self) -> bool:
        return self.dtype.kind in "SU"

    def fields(self, names: str | list[str]) -> Fields:
        """Returns a view of one field, or some, of records: `a.fields("x")[10:20]`."""
        return Fields(self, names)

    def read_direct(self, dest: NDArray[Any], source_sel: Any = None, dest_sel: Any = None) -> None:
        """Reads into an array: `dest[dest_sel] = self[source_sel]`; without a selection all of it.

        Raises:
            TypeError: the elements do not fit. They are repeated as in numpy, unless a mask or list chooses their places.
        """
        found = np.asarray(self[() if source_sel is None else source_sel])
        keys = dest_sel if isinstance(dest_sel, tuple) else (... if dest_sel is None else dest_sel,)
        if not dest.flags.c_contiguous:
            raise TypeError("the array has to be C-contiguous")
        if not leaves_axes(keys):
            # One element is a place for an array, too.
            keys = (*keys, ...)
        place = np.shape(dest[keys])
        is_simple = all(each is Ellipsis or isinstance(each, slice) or is_number(each) for each in keys)
        if not is_simple and found.size == math.prod(place) and getattr(dest_sel, "dtype", None) == bool:
            found = found.reshape(place)
        if not is_simple and found.shape != place:
            raise TypeError(f"elements of shape {found.shape} do not fit shape {place}")
        try:
            dest[keys] = found
        except ValueError as error:
            raise TypeError(str(error)) from None

    def iter_chunks(self, sel: Any = None) -> Iterator[tuple[slice, ...]]:
        """Returns the slices of each chunk, or of the part of it that is in some slices and numbers.

        Raises:
            TypeError: it is not stored in chunks.
            ValueError: `sel` is for another number of axes, or chooses nothing.
        """
        chunks, shape = self.chunks, self.shape
        if chunks is None:
            raise TypeError("an array that is not stored in chunks")
        parts = tuple(sel) if isinstance(sel, tuple) else (slice(None),) * len(shape) if sel is None else (sel,)
        if len(parts) != len(shape):
            raise ValueError(f"{len(parts)} slices for {len(shape)} axes")
        ends = [(part, part + 1) if is_number(part) else part.indices(length)[:2] for length, part in zip(shape, parts)]
        if sel is not None and not all(0 <= low < high <= length for length, (low, high) in zip(shape, ends)):
            raise ValueError(f"{sel} chooses nothing of shape {shape}")
        firsts = [range(low - low % chunk, high, chunk) for (low, high), chunk in zip(ends, chunks)]
        places = np.ndindex(*map(len, firsts))
        return (tuple(slice(max(first[at], low), min(first[at] + chunk, high), 1)
                      for first, at, chunk, (low, high) in zip(firsts, place, chunks, ends)) for place in places)


class _View:
    """A dataset whose elements are changed when they are read."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def _change(self, found: Any) -> Any:
        raise NotImplementedError

    def __getitem__(self, key: Any) -> Any:
        return self._change(self._dataset[key])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("elements that are changed need a copy")
        found = np.asarray(self._change(self._dataset[...]))
        return found if dtype is None else found.astype(dtype, copy=False)

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[Any]:
        return (self[row] for row in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._dataset.shape

    @property
    def ndim(self) -> int:
        return self._dataset.ndim

    @property
    def size(self) -> int:
        return self._dataset.size


class AsType(_View):
    """What `astype` returns."""

    __slots__ = ("dtype",)

    def __init__(self, dataset: Dataset, dtype: np.dtype[Any]) -> None:
        super().__init__(dataset)
        self.dtype = dtype

    def _change(self, found: Any) -> Any:
        if self._dataset.shape is None:
            return found
        changed = np.asarray(found).astype(self.dtype, copy=False)
        return changed if isinstance(found, np.ndarray) else changed[()]


class AsStr(_View):
    """What `asstr` returns."""

    __slots__ = ("_text",)

    dtype = np.dtype(object)

    def __init__(self, dataset: Dataset, encoding: str, errors: str) -> None:
        super().__init__(dataset)
        self._text = functools.partial(_text, encoding=encoding, errors=errors)

    def _change(self, found: Any) -> Any:
        if not isinstance(found, np.ndarray):
            return self._text(found)
        texts = np.empty(found.shape, object)
        for place in np.ndindex(found.shape):
            texts[place] = self._text(found[place])
        return texts


def _text(found: Any, encoding: str, errors: str) -> str:
    return str(found) if isinstance(found, str) else bytes(found).decode(encoding, errors)


class Fields(_View):
    """What `fields` returns."""

    __slots__ = ("_names",)

    def __init__(self, dataset: Dataset, names: str | list[str]) -> None:
        super().__init__(dataset)
        known = dataset.dtype.names or ()
        for name in [names] if isinstance(names, str) else names:
            if name not in known:
                raise KeyError(name)
        self._names = names

    def _change(self, found: Any) -> Any:
        return found[self._names]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dataset.dtype[self._names]
