"""shardfs as an fsspec filesystem: the tree that a mount shows, for every program that uses fsspec.

    fsspec.open("shardfs:///data/ep_001.wshard/signal/joint_pos.npy")               # paths of this machine
    fsspec.open("shardfs://ep_001.wshard/meta/episode.json", source="s3://bucket/set")
    fsspec.open("shardfs://signal/joint_pos.npy::s3://bucket/set/ep_001.wshard")    # chained
    fsspec.filesystem("shardfs", source="data").find("")

If shardfs is chained over a filesystem whose addresses it reads itself, the other filesystem is not used. Over every
other filesystem (or one with options), files are copied into a temporary folder of this process when they are first
opened.
"""

from __future__ import annotations

import datetime
import errno
import hashlib
import os
import posixpath
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from fsspec import filesystem  # type: ignore[import-untyped]
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.utils import isfilelike  # type: ignore[import-untyped]

from . import _core, _process
from ._entry import Place
from ._errors import DamagedBlock, NotFound
from ._files import BUFFERING, File, Readable


#: Bytes by which containers are recognised.
_FRONT = 4096
#: What shardfs reads itself, by fsspec's names of protocols.
_SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "http": "http",
            "https": "https", "hf": "hf"}


class ShardFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The tree that a mount shows, read-only.

    Args:
        source: a folder, a container or an address that paths are relative to. Without it they are paths of this
            machine, relative to the working folder if they do not begin with '/'.
        formats, follow_links: as in `shardfs.open`.
        fo, target_protocol, target_options: what fsspec passes for a chained URL.

    `info` has name, size, type, mode and mtime; for arrays also dtype (numpy's), shape and codec; for containers also
    format. In a listing a file whose size cannot be known, because it is damaged, has the size None. Instances pickle by
    their arguments, and share the cache of their process.
    """

    protocol = "shardfs"
    root_marker = ""

    def __init__(self, source: _process.Source | None = None, fo: Any = None, target_protocol: Any = None,
                 target_options: dict[str, Any] | None = None, formats: str | Iterable[str] | None = None,
                 follow_links: _process.Links = "no", **options: Any) -> None:
        super().__init__(source=source, fo=fo, target_protocol=target_protocol, target_options=target_options,
                         formats=formats, follow_links=follow_links, **options)
        self._machine, _ = _process.split("/", formats, follow_links)
        self._copies: _Copies | None = None
        if source is None and target_protocol is not None:
            source = _address(fo, target_protocol, target_options)
            if source is None:
                self._copies = _Copies(filesystem(target_protocol, **(target_options or {})), fo, self._machine)
        self._top = _process.split(source, formats, follow_links) if source is not None else None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        path = os.fspath(path)
        path = path.removeprefix("shardfs://")
        return path.rstrip("/") or ("/" if path.startswith("/") else cls.root_marker)

    def _node(self, path: str) -> Any:
        path = self._strip_protocol(path)
        try:
            if self._copies is not None:
                return self._copies.node(path)
            if self._top is None:
                return _process.node(self._machine, os.path.abspath(path)[1:] if path else os.getcwd()[1:])
            below = path.strip("/")
            if below == ".." or below.startswith("../") or "/../" in f"{below}/":
                raise ValueError(f"{path}: not a path below a folder")
            try:
                return self._below(below)
            except (NotFound, NotADirectoryError, PermissionError):
                place = _process.inside(*self._top)
                if place in (None, self._top):
                    raise
                self._top = place
                return self._below(below)
        except NotADirectoryError as error:
            # A path below a file does not exist for fsspec.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def _below(self, path: str) -> _core.Node:
        source, top = self._top
        return _process.node(source, "/".join(part for part in (top, path) if part))

    def _describe(self, node: Any, path: str) -> dict[str, Any]:
        kind = {"folder": "directory", "file": "file"}.get(node.kind, "other")
        info = {"name": path, "size": node.size if kind == "file" else 0, "type": kind, "mtime": node.mtime,
                "mode": node.mode}
        if kind == "directory" and node.is_container:
            info["format"] = node.format
        if kind == "file" and node.format and (known := node.array()) is not None:
            _, descr, _, shape, codec, *_ = known
            info.update(dtype=descr, shape=shape, codec=codec)
        return info

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        try:
            return self._describe(self._node(path), path)
        except (DamagedBlock, MemoryError):
            # What its folder lists is there, even if its size cannot be known.
            listed = self.ls(posixpath.dirname(path)) if posixpath.basename(path) else []
            found: dict[str, Any] | None = next((info for info in listed if info["name"] == path), None)
            if found is None:
                raise
            return found

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if self._copies is not None:
            found = self._copies.ls(path)
            if found is not None:
                return found if detail else [info["name"] for info in found]
        node = self._node(path)
        if node.kind != "folder":
            found = [self._describe(node, path)]
        else:
            # Entries that vanish meanwhile are left out.
            join = (lambda name: f"{path}/{name}") if path not in ("", "/") else (lambda name: f"{path}{name}")
            found = list(self._children(node, join))
        return found if detail else [info["name"] for info in found]

    def _children(self, node: Any, join: Callable[[str], str]) -> Iterator[dict[str, Any]]:
        children = iter(node.children())
        while True:
            try:
                child = next(children)
            except StopIteration:
                return
            except (DamagedBlock, MemoryError) as error:
                # A file whose size cannot be known has none; the others are listed.
                inside: str | None = getattr(error, "path", None)
                if not inside or posixpath.dirname(inside) != node.inside:
                    raise
                yield {"name": join(posixpath.basename(inside)), "size": None, "type": "file"}
            else:
                yield self._describe(child, join(child.name))

    def exists(self, path: str, **options: Any) -> bool:
        try:
            self._node(path)
        except (FileNotFoundError, ValueError):
            return False
        except (DamagedBlock, MemoryError):
            self.info(path)
        return True

    def du(self, path: str, total: bool = True, maxdepth: int | None = None, withdirs: bool = False,
           **options: Any) -> Any:
        """As in fsspec; files whose size cannot be known count as 0."""
        sizes = super().du(path, total=False, maxdepth=maxdepth, withdirs=withdirs, **options)
        sizes = {name: size or 0 for name, size in sizes.items()}
        return sum(sizes.values()) if total else sizes

    def isfile(self, path: str) -> bool:
        return self.exists(path) and self.info(path)["type"] == "file"

    def isdir(self, path: str) -> bool:
        return self.exists(path) and self.info(path)["type"] == "directory"

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._node(path).mtime, tz=datetime.timezone.utc)

    created = modified

    def ukey(self, path: str) -> str:
        """Returns a name for the state of the file, or of the container that it lies in."""
        return f"{self._strip_protocol(path)}@{self._node(path).state}"

    checksum = ukey

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **options: Any) -> _File:
        if mode != "rb":
            _read_only(path)
        return _File(self, path, block_size if isinstance(block_size, int) else BUFFERING)

    def _file(self, path: str) -> _core.Node:
        node: _core.Node = self._node(path)
        if node.kind != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        node = self._file(path)
        first, last = _range(start, end, node.size)
        return node.read(first, max(last - first, 0))

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return",
                   **options: Any) -> list[Any]:
        """Reads ranges of files on all cores at once."""
        if not isinstance(paths, list):
            raise TypeError("paths: a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("paths, starts and ends are of different lengths")
        found: list[Any] = [None] * len(paths)
        jobs: list[tuple[int, Any]] = []
        nodes: dict[str, _core.Node] = {}
        for at, (path, start, end) in enumerate(zip(paths, starts, ends)):
            try:
                node = nodes.get(path)
                if node is None:
                    node = nodes[path] = self._file(path)
                first, last = _range(start, end, node.size)
                if first >= last:
                    found[at] = b""
                else:
                    jobs.append((at, (node, first, last - first, "|u1", (last - first,))))
            except (OSError, ValueError) as error:
                found[at] = error
        for (at, _), read in zip(jobs, _core.read_many([job for _, job in jobs], _process.cores())):
            found[at] = read if isinstance(read, BaseException) else _bytes(read)
        failed = next((each for each in found if isinstance(each, BaseException)), None)
        if failed is not None and on_error == "raise":
            raise failed
        return found

    def get_file(self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None, **options: Any) -> None:
        if not isfilelike(lpath) and self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        node = self._file(rpath)
        if callback is not None:
            callback.set_size(node.size)
        if isfilelike(lpath):
            outfile = lpath
        close = outfile is None
        if close:
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            outfile = open(lpath, "wb")
        try:
            for at in range(0, node.size, 8 << 20):
                data = node.read(at, 8 << 20)
                outfile.write(data)
                if callback is not None:
                    callback.relative_update(len(data))
        finally:
            if close:
                outfile.close()

    def mkdir(self, path: Any, *args: Any, **options: Any) -> NoReturn:
        _read_only(path)

    makedirs = rmdir = touch = cp_file = put_file = pipe_file = _rm = rm_file = rm = mv = copy = put = mkdir

    def pipe(self, path: Any, *args: Any, **options: Any) -> NoReturn:
        _read_only(path)


def _read_only(path: Any) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))


def _range(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Returns a range as in slices of Python: negative numbers count from the end."""
    first, last, _ = slice(start, end).indices(size)
    return first, last


def _bytes(memory: _core.Memory) -> bytes:
    import numpy as np
    return np.asarray(memory).tobytes()


class _Cached(Readable):
    """A file whose bytes may come from a cache of fsspec."""

    cache: Any = None

    def _fetch(self, start: int, end: int) -> bytes:
        size = self._place._node.size
        return super()._fetch(start, end) if self.cache is None else self.cache._fetch(min(start, size), min(end, size))


class _File(File):
    """An open file, with what users of fsspec expect of one. Pickles as its name and position."""

    mode = "rb"

    def __init__(self, fs: ShardFileSystem, path: str, block_size: int, position: int = 0) -> None:
        node = fs._file(path)
        source = fs._machine if fs._top is None else fs._top[0]
        super().__init__(_Cached(Place(source, node.path, node.state, node), position), block_size)
        self.fs, self.path, self.size = fs, path, node.size

    @property
    def details(self) -> dict[str, Any]:
        return self.fs.info(self.path)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._place._node.read(start, max(end - start, 0))

    @property
    def cache(self) -> Any:
        """What `blockcache::` has set."""
        return self.raw.cache

    @cache.setter
    def cache(self, cache: Any) -> None:
        self.raw.cache = cache

    @property
    def closed(self) -> bool:
        return super().closed

    @closed.setter
    def closed(self, closed: bool) -> None:
        """What has closed the file says so."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fs, self.path, self.blocksize, self.tell())


def _address(fo: str, protocol: Any, options: Any) -> str | None:
    """Returns the address that a chained URL leads to if shardfs reads it itself; otherwise None."""
    protocol = protocol if isinstance(protocol, str) else protocol[0]
    if protocol in ("file", "local"):
        return fo
    # If there are options, the user means that filesystem.
    if options or protocol not in _SCHEMES:
        return None
    return fo if "://" in fo else f"{_SCHEMES[protocol]}://{fo}"


class _Copies:
    """Files of another filesystem, copied into a temporary folder when they are first opened."""

    def __init__(self, other: Any, top: str, machine: _process.Where) -> None:
        self._other, self._top, self._machine = other, other._strip_protocol(top), machine
        self._lock, self._process = threading.Lock(), -1
        self._folder: tempfile.TemporaryDirectory[str]

    def _theirs(self, path: str) -> str:
        return posixpath.join(self._top, path) if path else self._top

    def ls(self, path: str) -> list[dict[str, Any]] | None:
        """Lists a folder of the other filesystem; None for a path inside one of its files."""
        try:
            if not self._other.isdir(self._theirs(path)):
                return None
        except OSError:
            return None
        found = []
        for info in self._other.ls(self._theirs(path), detail=True):
            name = info["name"].rstrip("/").rsplit("/", 1)[-1]
            below = f"{path}/{name}" if path else name
            kind, size, form = info["type"], info.get("size"), None
            if kind == "file" and self._looks_like_one(info["name"]):
                node = self.node(below)
                kind, form = ("directory", node.format) if node.kind == "folder" else ("file", None)
            entry = {"name": below, "size": size if kind == "file" else 0, "type": kind}
            found.append(entry | ({"format": form} if form else {}))
        return found

    def _looks_like_one(self, theirs: str) -> bool:
        front = self._other.cat_file(theirs, start=0, end=_FRONT)
        # The length of a shorter file is known.
        size = self._other.size(theirs) if len(front) == _FRONT else len(front)
        return _core.likeness(front, size or 0, posixpath.basename(theirs.rstrip("/"))) is not None

    def node(self, path: str) -> _core.Node | _Elsewhere:
        """Returns the node at a path. The first file of the other filesystem on the way is copied."""
        parts = [part for part in path.split("/") if part]
        if ".." in parts:
            raise ValueError(f"{path}: not a path below a folder")
        for end in range(len(parts) + 1):
            theirs = self._theirs("/".join(parts[:end]))
            if self._other.isfile(theirs):
                return _process.node(self._machine, "/".join([self._copy(theirs)[1:], *parts[end:]]))
        if self._other.isdir(self._theirs(path)):
            return _Elsewhere(self._theirs(path))
        raise NotFound(os.strerror(errno.ENOENT), container=self._theirs(path))

    def _copy(self, theirs: str) -> str:
        with self._lock:
            if self._process != os.getpid():
                # A child of a fork must not remove its parent's folder.
                self._process, self._folder = os.getpid(), tempfile.TemporaryDirectory(prefix="shardfs-")
            # The name contains the file's state, so a changed file is copied again.
            name = _name_of_copy(theirs, self._other.ukey(theirs))
            ours = os.path.join(self._folder.name, name)
            if not os.path.exists(ours):
                self._other.get_file(theirs, ours + ".part")
                os.rename(ours + ".part", ours)
            return os.path.realpath(ours)


def _name_of_copy(path: str, state: Any) -> str:
    """Returns a name for a file in a state, with as many bytes of the end of its own name as fit."""
    digest = hashlib.sha256(f"{path}\0{state}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    # Characters that the cut has split, and invalid bytes, are left out.
    return f"{digest}-{os.fsencode(posixpath.basename(path))[-200:].decode('utf-8', 'ignore')}"


class _Elsewhere:
    """A folder of the other filesystem."""

    kind, size, mode, mtime, format, is_container, state = "folder", 0, 0o555, 0.0, None, False, None

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = posixpath.basename(path)
