"""Files of containers, as Python's files."""

from __future__ import annotations

import io
from typing import Any

from ._core import Node


class Readable(io.RawIOBase):
    """A file in a container or a folder: seekable, binary, read-only."""

    def __init__(self, node: Node) -> None:
        self._node, self._at, self._size = node, 0, node.size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._checkClosed()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._checkClosed()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}.get(whence)
        if start is None:
            raise ValueError(f"whence {whence}: 0, 1 or 2")
        if start + offset < 0:
            raise ValueError(f"a position before the start: {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._checkClosed()
        view = memoryview(buffer)
        if view.nbytes == 0:
            return 0
        # Bytes, whatever the elements of the buffer are.
        view = view.cast("B")
        data = self._node.read(self._at, len(view))
        view[:len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._checkClosed()
        data = self._node.read(self._at, max(self._size - self._at, 0))
        self._at += len(data)
        return data
