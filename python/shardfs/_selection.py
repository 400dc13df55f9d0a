"""What an index chooses: of each axis a number, a range, or a list of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


class BadIndex(IndexError, TypeError, ValueError):
    """An index that makes no sense. numpy, zarr and h5py have different errors for it; this is all of them."""


@dataclass
class Selection:
    """The numbers that are chosen along each axis.

    Attributes:
        axes: for each axis a number, which leaves out the axis; a range; or a list of numbers, of at most one axis.
        new: places of the result that get an axis of one element.
    """

    axes: list[int | range | list[int]]
    new: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what is chosen, without `new`."""
        return tuple(len(axis) for axis in self.axes if not isinstance(axis, int))

    def of(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns what is chosen of an array in memory: a view if there is no list."""
        listed = [number for number, axis in enumerate(self.axes) if isinstance(axis, list)]
        index = tuple(axis if isinstance(axis, int) else _slice(axis) if isinstance(axis, range) else slice(None)
                      for axis in self.axes)
        # An object gets axes as an array of one.
        array = array[(*index, ...) if self.new else index]
        for number in listed:
            behind = sum(1 for axis in self.axes[:number] if not isinstance(axis, int))
            array = array.take(self.axes[number], behind)
        return self.with_new(array)

    def with_new(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Returns the array with the axes of `new`."""
        return np.expand_dims(array, self.new) if self.new else array


def _slice(axis: range) -> slice:
    stop = axis.stop if axis.step > 0 or axis.stop >= 0 else None
    return slice(axis.start, stop, axis.step) if len(axis) else slice(0, 0)


def is_number(key: Any) -> bool:
    return isinstance(key, (int, np.integer)) and not isinstance(key, (bool, np.bool_)) or (
        isinstance(key, np.ndarray) and key.ndim == 0 and key.dtype.kind in "iu")


def leaves_axes(key: Any) -> bool:
    """Returns whether an index leaves axes to `...`: of an array without axes it chooses an array, not a value."""
    return key is Ellipsis or isinstance(key, tuple) and any(each is Ellipsis for each in key)


def select(key: Any, shape: tuple[int, ...]) -> Selection | None:
    """Returns what an index chooses of an array of a shape; None if numpy has to say it.

    A list of numbers, a `range` or a mask along one axis chooses along that axis, as in h5py and zarr:
    `a[0, :, [1, 2]]` has two elements along its last axis. Of several lists, and lists of several axes, numpy says what
    they choose.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(each, (str, bytes)) for each in keys):
        raise BadIndex("only records have fields")
    used = sum(1 for each in keys if each is not None and each is not Ellipsis)
    if sum(1 for each in keys if each is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if any(isinstance(each, np.ndarray) and each.dtype.kind == "b" and each.ndim != 1 for each in keys):
        return None
    if used > len(shape):
        raise BadIndex(f"too many indices: the array has {len(shape)} axes, but {used} were indexed")
    if not any(each is Ellipsis for each in keys):
        keys.append(Ellipsis)
    axes: list[int | range | list[int]] = []
    new: list[int] = []
    shown, lists = 0, 0
    for each in keys:
        if each is None:
            new.append(shown)
            shown += 1
        elif each is Ellipsis:
            rest = len(shape) - used
            axes += [range(length) for length in shape[len(axes):len(axes) + rest]]
            shown += rest
        elif is_number(each):
            axes.append(_number(int(each), len(axes), shape))
        elif isinstance(each, slice):
            chosen = range(shape[len(axes)])[each]
            # A step that leads out at once may be of any size.
            axes.append(range(chosen.start, chosen.start + 1) if len(chosen) == 1 else chosen)
            shown += 1
        else:
            numbers = _numbers(each, len(axes), shape)
            if numbers is None:
                return None
            axes.append(numbers)
            lists, shown = lists + 1, shown + 1
    return Selection(axes, tuple(new)) if lists <= 1 else None


def _number(number: int, axis: int, shape: tuple[int, ...]) -> int:
    length = shape[axis]
    if not -length <= number < length:
        raise IndexError(f"index {number} is out of bounds for axis {axis} with size {length}")
    return number % length


def _numbers(chosen: Any, axis: int, shape: tuple[int, ...]) -> range | list[int] | None:
    """Returns the numbers that a list, range or mask along an axis chooses; None if it is none of one axis."""
    length = shape[axis]
    if isinstance(chosen, range) and chosen:
        # Like a list of its numbers: one below zero counts from the end, and none is left out.
        first, last = _number(chosen[0], axis, shape), _number(chosen[-1], axis, shape)
        if (chosen[0] < 0) == (chosen[-1] < 0):
            return range(first, last + (1 if chosen.step > 0 else -1), chosen.step)
    if all(hasattr(chosen, name) for name in ("start", "stride", "count", "block", "indices")):
        # h5py.MultiBlockSlice.
        start, stride, count, block = chosen.indices(length)
        chosen = [start + at * stride + number for at in range(count) for number in range(block)]
    if not isinstance(chosen, (list, tuple, range, np.ndarray)):
        return None
    numbers = np.asarray(chosen)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iub" and numbers.size:
        return None
    if numbers.dtype.kind == "b":
        if len(numbers) != length:
            raise BadIndex(f"a mask of {len(numbers)} elements for axis {axis} with size {length}")
        return [int(number) for number in np.flatnonzero(numbers)]
    return [_number(int(number), axis, shape) for number in numbers.tolist()]
