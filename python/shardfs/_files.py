"""Files of containers, as Python's files."""

from __future__ import annotations

import io
from typing import Any

from ._entry import Place


#: Bytes that are read at a time by default.
BUFFERING = 256 << 10


class Readable(io.RawIOBase):
    """A file in a container or a folder: seekable, binary, read-only. Pickles as its place and position."""

    def __init__(self, place: Place, position: int = 0) -> None:
        self._place, self._at = place, position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._checkClosed()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._checkClosed()
        if whence not in (io.SEEK_SET, io.SEEK_CUR, io.SEEK_END):
            raise ValueError(f"whence {whence}: 0, 1 or 2")
        start = 0 if whence == io.SEEK_SET else self._at if whence == io.SEEK_CUR else self._place._node.size
        if start + offset < 0:
            raise ValueError(f"a position before the start: {start + offset}")
        self._at = start + offset
        return self._at

    def _fetch(self, start: int, end: int) -> bytes:
        """Returns bytes by where they begin and end."""
        return self._place._node.read(start, max(end - start, 0))

    def readinto(self, buffer: Any) -> int:
        self._checkClosed()
        view = memoryview(buffer)
        if view.nbytes == 0:
            return 0
        # Bytes, whatever the elements of the buffer are.
        view = view.cast("B")
        data = self._fetch(self._at, self._at + len(view))
        view[:len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self) -> bytes:
        self._checkClosed()
        data = self._fetch(self._at, self._place._node.size)
        self._at += len(data)
        return data

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._place, self.tell())

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # Files of Python refuse to be pickled here.
        return self.__reduce__()


class File(io.BufferedReader):
    """The same with a buffer."""

    def __init__(self, raw: Readable, buffering: int) -> None:
        super().__init__(raw, buffering)
        self._place, self.blocksize = raw._place, buffering

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (Readable(self._place, self.tell()), self.blocksize)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return self.__reduce__()
