"""Errors. All derive from `shardfs.Error`, and from the fitting exceptions of Python."""

from __future__ import annotations

import errno
import os
from typing import Any


class Error(Exception):
    """Base of all errors of this package.

    Attributes:
        container: path or address of the container or file, or None.
        path: the path in the container; empty for the container itself.
        block: the stored name of the block, or None.
        offset: where in the container the error is, in bytes, or None.
        reason: what was wrong.
    """

    def __init__(self, reason: str = "", *, container: Any = None, path: str = "", block: str | None = None,
                 offset: int | None = None) -> None:
        self.reason, self.container, self.path, self.block, self.offset = reason, container, path, block, offset
        super().__init__(reason)

    def __str__(self) -> str:
        place = [self.path] if self.path else []
        place += [f"block {self.block!r}"] if self.block else []
        place += [f"byte {self.offset}"] if self.offset is not None else []
        parts = ([str(self.container)] if self.container else []) + ([", ".join(place)] if place else [])
        return ": ".join([*parts, self.reason])

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: getattr(self, name) for name in ("container", "path", "block", "offset")}
        return _again, (type(self), self.reason, fields)


def _again(kind: type[Error], reason: str, fields: dict[str, Any]) -> Error:
    return kind(reason, **fields)


class _OsError(Error, OSError):
    """An error that is also an `OSError`, so that code that handles errors of files handles it."""

    _errno = errno.EIO

    def __init__(self, reason: str = "", **fields: Any) -> None:
        Error.__init__(self, reason, **fields)
        self.errno, self.strerror = self._errno, reason
        self.filename = fields.get("container")


class DamagedBlock(_OsError):
    """A block does not decode, or its checksum is wrong. Other blocks of the container are not affected. (EIO)"""


class Changed(_OsError):
    """The container has changed since it was opened. Open it again with `shardfs.open`. (ESTALE)"""

    _errno = errno.ESTALE


class NotFound(_OsError, FileNotFoundError):
    """There is no such file, folder or container. (ENOENT)"""

    _errno = errno.ENOENT


class NotAContainer(_OsError, ValueError):
    """The file is not a container of a known format, or too damaged to be opened. (EINVAL)"""

    _errno = errno.EINVAL


class NotAnArray(Error, TypeError):
    """The file or picture cannot be read as an array."""


_KINDS = {"Damaged": DamagedBlock, "Changed": Changed, "NotFound": NotFound, "NotAContainer": NotAContainer,
          "NotAnArray": NotAnArray}
_SYSTEM = {"PermissionDenied": (PermissionError, errno.EACCES), "NotAFolder": (NotADirectoryError, errno.ENOTDIR),
           "IsAFolder": (IsADirectoryError, errno.EISDIR), "Io": (OSError, errno.EIO)}


def make(kind: str, reason: str, **fields: Any) -> Exception:
    """Returns the exception for an error of the library, by the name of its kind."""
    if kind == "NotFound" and not fields:
        # Its text begins with the path.
        fields["container"], _, reason = reason.rpartition(": ")
    if kind in _KINDS:
        return _KINDS[kind](reason, **fields)
    text = str(Error(reason, **fields))
    if kind in _SYSTEM:
        made, number = _SYSTEM[kind]
        failed = made(number, text)
        failed.container = fields.get("container")  # type: ignore[attr-defined]
        return failed
    if kind != "OutOfMemory":
        return ValueError(text)
    refused = MemoryError(text)
    refused.path = fields.get("path")  # type: ignore[attr-defined]
    return refused


def missing(path: str) -> NotFound:
    """Returns the error for a path that does not exist."""
    return NotFound(os.strerror(errno.ENOENT), container=path)
