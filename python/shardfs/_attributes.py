"""Attributes of groups and arrays."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ._dtypes import of_name
from ._errors import DamagedBlock


class Attributes(Mapping[str, Any]):
    """The attributes of a group or array, by name, in stored order.

    Numbers are numpy's scalars and arrays of the stored type, texts `str`, arrays of texts arrays of objects, references
    the path of what they lead to, and attributes of Zarr what their JSON says. Without a value (HDF5's null dataspace)
    it is None.

    Raises, when one is asked for: KeyError if there is none of that name, `shardfs.DamagedBlock` if it cannot be read.
    """

    __slots__ = ("_values", "_place")

    def __init__(self, values: list[tuple[str, Any]], place: str) -> None:
        self._values, self._place = dict(values), place

    def __getitem__(self, name: str) -> Any:
        value = self._values[name.decode() if isinstance(name, bytes) else name]
        if isinstance(value, str):
            raise DamagedBlock(f"the attribute {name!r} cannot be read: {value}", container=self._place)
        if isinstance(value, bytes):
            return decoded(value)
        if len(value) == 2:
            shape, text = value
            return _nested(shape, decoded(text))
        short, descr, shape, data = value
        dtype, _ = of_name(short, descr)
        return np.frombuffer(bytearray(data), dtype).reshape(shape)[()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"<shardfs.Attributes {list(self)} of {self._place}>"


def decoded(text: bytes) -> Any:
    """Returns a value of JSON in which objects whose only key is empty stand for what JSON has no form for."""
    return json.loads(text, object_hook=_meant)


def _meant(found: dict[str, Any]) -> Any:
    """Returns what an object of JSON stands for: {"": [kind, ...]}, or itself."""
    match found.get("") if len(found) == 1 else None:
        case ["path", path]:
            return path
        case ["base64", data]:
            return base64.b64decode(data)
        case ["number", number]:
            return float(number)
        case ["record", value]:
            return {"": value}
        case ["array", [name, descr, shape, data]]:
            dtype, _ = of_name(name, descr)
            return np.frombuffer(bytearray(base64.b64decode(data)), dtype).reshape(shape)[()]
        case _:
            return found


def _nested(shape: tuple[int, ...], value: Any) -> Any:
    """Returns elements of a shape, from lists in lists, as an array of objects; without axes the one element."""
    array = np.empty(shape, object)
    for place in np.ndindex(shape):
        element = value
        for at in place:
            element = element[at]
        element = as_rows(element)
        array[place] = np.array(element, object) if isinstance(element, list) else element
    return array[()]


def as_rows(element: Any) -> Any:
    """Returns a row of numbers as an array, and one of arrays as an array of objects."""
    if not isinstance(element, list):
        return element
    if all(type(each) in (int, float, bool) for each in element):
        return np.array(element)
    inner = [as_rows(each) for each in element]
    if not any(isinstance(each, np.ndarray) for each in inner):
        return element
    rows = np.empty(len(inner), object)
    for number, each in enumerate(inner):
        rows[number] = each
    return rows
