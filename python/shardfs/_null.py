"""Datasets that have a type and no elements: null dataspaces of HDF5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._dataset import Dataset
from ._dtypes import of_name

if TYPE_CHECKING:
    from collections.abc import Iterator


class Empty(NamedTuple):
    """What a dataset without elements and axes holds: its type. Equal to `h5py.Empty` of the same type.

    Attributes:
        dtype: numpy's dtype.
    """

    dtype: np.dtype[Any]

    @property
    def shape(self) -> None:
        """None: there are no axes."""

    @property
    def size(self) -> None:
        """None: there are no elements."""

    def __eq__(self, other: object) -> bool:
        return type(other).__name__ == "Empty" and bool(getattr(other, "dtype", None) == self.dtype)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.dtype)


class Null(Dataset):
    """A dataset without elements and axes, such as what `h5py.Empty` writes: `null[()]` is an `Empty` with its dtype.

    Attributes: those of `Dataset`. `shape` and `size` are None.
    """

    __slots__ = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements that it could have; object if no array has it."""
        item = self._node.item()
        if item is None or item[4] is None:
            return np.dtype("O")
        return of_name(*item[4])[0]

    @property
    def shape(self) -> None:  # type: ignore[override]
        """None: it has no axes."""

    @property
    def size(self) -> None:  # type: ignore[override]
        """None: it has no elements."""

    @property
    def ndim(self) -> int:
        """0."""
        return 0

    @property
    def nbytes(self) -> int:
        """0."""
        return 0

    @property
    def codec(self) -> str | None:
        """None: nothing is stored."""

    @property
    def chunks(self) -> None:
        """None: it has no chunks."""

    def __len__(self) -> int:
        raise TypeError("len() of a dataset without elements")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a dataset without elements")

    def __getitem__(self, key: Any) -> Empty:
        if key is Ellipsis or key in ((), (Ellipsis,)):
            return Empty(self.dtype)
        raise ValueError("a dataset without elements")

    def __repr__(self) -> str:
        return f"<shardfs.Null {self.path}: {self.dtype}>"
