"""Values of varying length: texts, rows of numbers, references."""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _process
from ._array import Array, without_names
from ._attributes import as_rows, decoded
from ._dataset import Dataset
from ._dtypes import of_name
from ._errors import NotFound
from ._selection import Selection, leaves_axes, select

if TYPE_CHECKING:
    from ._core import Node


class Rows(Dataset):
    """Values of varying length, as arrays of objects.

    - Texts are `bytes`, as h5py gives them; `rows.asstr()[...]` gives `str`.
    - Rows of numbers are numpy arrays.
    - References are the path of what they lead to, or None: `file[reference]` is that.
    - Records that hold such values are records of objects: `rows["name"]` is a field.

    `rows[3]` is one value, `rows[10:20]` and `rows[[5, 1]]` are arrays of them. Texts and rows of numbers are read from
    the first to the last row that is chosen, other values from the front.

    Attributes: those of `Dataset`. `dtype` is object, with what the values are in its metadata.
    """

    __slots__ = ("_item_",)

    def __init__(self, source: _process.Where, path: str, state: str | None = None, node: Node | None = None) -> None:
        super().__init__(source, path, state, node)
        self._item_: tuple[Any, ...] | None = None

    @property
    def _item(self) -> tuple[Any, ...]:
        if self._item_ is None:
            self._item_ = self._node.item() or ("text" if self._path.endswith((".txt", ".jsonl")) else None, None, None,
                                                None, None, None, None)
        return self._item_

    @property
    def _is_single(self) -> bool:
        return self._path.endswith((".txt", ".bin"))

    @property
    def dtype(self) -> np.dtype[Any]:
        """object; its metadata say what the values are, as h5py has it."""
        kind = self._item[0]
        if kind == "text":
            return np.dtype("O", metadata={"vlen": str})
        if kind in ("sequence", "bytes"):
            return np.dtype("O", metadata={"vlen": np.dtype("u1") if self._is_single else self._values().dtype})
        if kind == "compound":
            return np.dtype([(name, "O") if of is None else (name, of_name(of[0], of[1])[0], tuple(of[2]))
                             for name, of in self._item[6]])
        return np.dtype("O")

    @property
    def shape(self) -> tuple[int, ...]:
        """Values along each axis."""
        if self._is_single:
            return ()
        shape: tuple[int, ...] | None = self._item[1]
        return (sum(1 for _ in self._lines()),) if shape is None else shape

    @property
    def codec(self) -> str | None:
        """How it is stored."""
        codec: str | None = self._item[2]
        return codec

    @property
    def chunks(self) -> tuple[int, ...] | None:
        """The shape of the chunks that it is stored in, or None."""
        chunks: tuple[int, ...] | None = self._item[3]
        return chunks

    @property
    def fillvalue(self) -> Any:
        """What elements have that were never written."""
        fill = self._item[5] or b""
        if self._item[0] == "bytes":
            return np.frombuffer(bytearray(fill), "u1")
        return fill if self._are_texts() else super().fillvalue

    def _are_texts(self) -> bool:
        return bool(self._item[0] == "text")

    def _folder(self) -> str:
        """The folder with the bytes of all values, and where each begins."""
        return self._path.removesuffix(".jsonl")

    def _array(self, name: str) -> Array:
        return Array(self._source, f"{self._folder()}/{name}", self._state)

    def _values(self) -> Array:
        return self._array("values.npy")

    def _lines(self, low: int = 0, high: int = 2**63) -> list[Any]:
        node = self._node
        exact = node.exact_rows(low, high)
        if exact is not None:
            return [as_rows(decoded(line)) for line in exact.splitlines()]
        values = [_value(json.loads(line)) for line in node.read(0, node.size).splitlines()[low:high]]
        return [value.encode() if isinstance(value, str) else value for value in values] if self._are_texts() else values

    def _flat(self, low: int, high: int) -> NDArray[Any]:
        """Reads values by their numbers in C order."""
        if self._item[0] == "compound":
            fields = self.dtype
            rows = np.empty(high - low, fields)
            texts = {name for name in fields.names or () if fields[name].kind == "S"}
            for number, row in enumerate(self._lines(low, high)):
                rows[number] = tuple(value.encode() if name in texts and isinstance(value, str) else as_rows(value)
                                     for name, value in row.items())
            return rows
        found = np.empty(high - low, object)
        if self._is_single:
            data = self._node.read(0, self._node.size)
            found[0] = data if self._are_texts() else np.frombuffer(bytearray(data), "u1")
            return found
        try:
            offsets = self._array("offsets.npy")[low:high + 1].tolist()
            begin, end = offsets[0], offsets[-1]
            values: Any
            if self._are_texts():
                node = _process.node(self._source, f"{self._folder()}/utf8.bin")
                if self._state is not None and node.state != self._state:
                    raise self._changed()
                values = node.read(begin, end - begin)
            else:
                values = self._values()[begin:end]
        except (NotFound, NotADirectoryError):
            for number, value in enumerate(self._lines(low, high)):
                found[number] = value
            return found
        for number, (start, stop) in enumerate(zip(offsets, offsets[1:])):
            found[number] = values[start - begin:stop - begin]
        return found

    def __getitem__(self, key: Any) -> Any:
        names, shape = None, self.shape
        if self._item[0] == "compound":
            key, names = without_names(key)
        found = self._chosen(key, shape)
        return found if names is None else found[names]

    def _chosen(self, key: Any, shape: tuple[int, ...]) -> Any:
        selection = select(key, shape)
        if selection is None:
            return self._flat(0, math.prod(shape)).reshape(shape)[key]
        if 0 in selection.shape:
            return selection.with_new(np.empty(selection.shape, self.dtype))
        if not shape:
            rows = self._flat(0, 1)
            return selection.with_new(rows.reshape(())) if leaves_axes(key) or selection.new else rows[0]
        axis, inner = selection.axes[0], math.prod(shape[1:])
        low, high = (axis, axis + 1) if isinstance(axis, int) else (min(axis), max(axis) + 1)
        rows = self._flat(low * inner, high * inner).reshape(high - low, *shape[1:])
        front: int | range | list[int] = (
            0 if isinstance(axis, int) else [number - low for number in axis] if isinstance(axis, list)
            else range(axis.start - low, axis.stop - low, axis.step))
        return Selection([front, *selection.axes[1:]], selection.new).of(rows)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        found: NDArray[Any] = self[...]
        return found if dtype is None else found.astype(dtype)

    def __repr__(self) -> str:
        try:
            return f"<shardfs.Rows {self.path}: {self._item[0] or 'values'} {self.shape}>"
        except OSError as error:
            return f"<shardfs.Rows {self.path}: {error}>"


def _value(value: Any) -> Any:
    """Returns what a line of JSON stands for. A text is bytes, except in records."""
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return base64.b64decode(value["base64"])
    return as_rows(value)
