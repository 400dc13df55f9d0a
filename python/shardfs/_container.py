"""Containers and folders of them."""

from collections.abc import Mapping, Sequence
import io
from typing import NamedTuple

from . import _core, _process
from ._array import Array
from ._entry import Place, parsed, reason_of_refusal
from ._errors import NotFound
from ._pictures import Camera, Cameras


class Readable(io.RawIOBase):
    """A file in a container or a folder: seekable, binary, read-only."""

    def __init__(self, node):
        self._node, self._at, self._size = node, 0, node.size

    def readable(self):
        return True

    def seekable(self):
        return True

    def tell(self):
        return self._at

    def seek(self, offset, whence=io.SEEK_SET):
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"a position before the start: {start + offset}")
        self._at = start + offset
        return self._at

    def readinto(self, buffer):
        data = self._node.read(self._at, len(buffer))
        buffer[:len(data)] = data
        self._at += len(data)
        return len(data)

    def readall(self):
        data = self._node.read(self._at, max(self._size - self._at, 0))
        self._at += len(data)
        return data


class _Tree(Place):
    """A place whose files can be opened."""

    __slots__ = ()

    def open(self, path, *, buffering=256 << 10):
        """Opens a file below this as a seekable binary file, read-only.

        Args:
            path: a path as in docs/TREE.md: 'signal/joint_pos.npy', 'images/cam0/rgb/000.png', '.raw/signal/x.bin'.
            buffering: bytes that are read at a time; 0 reads exactly what is asked for.

        Raises:
            shardfs.NotFound, IsADirectoryError; when it is read also `shardfs.DamagedBlock` and `shardfs.Changed`.
        """
        node = self._get(path)
        if node.kind == "folder":
            raise IsADirectoryError(21, "is a folder", f"{self.path}/{path}")
        raw = Readable(node)
        return io.BufferedReader(raw, buffering) if buffering else raw

    def read_bytes(self, path):
        """Returns all bytes of a file below this. Raises the same errors as `open`."""
        node = self._get(path)
        return node.read(0, node.size)

    def _json(self, path):
        return parsed(self.read_bytes(path), f"{self.path}/{path}")


class _Arrays(_Tree, Mapping):
    """Arrays by name: the path of their `.npy` file without the suffix."""

    __slots__ = ()
    __hash__ = _Tree.__hash__
    __eq__ = _Tree.__eq__

    def __getitem__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"arrays are named by text, not by {type(name).__name__}")
        for path in (f"{name}.npy", name) if name.endswith(".npy") else (f"{name}.npy",):
            try:
                node = self._get(path)
            except (NotFound, NotADirectoryError, ValueError):
                continue
            if node.kind == "file":
                return Array(self._source, f"{self._path}/{path}", self._state, node)
        raise KeyError(name)

    def __contains__(self, name):
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __len__(self):
        return sum(1 for _ in self)

    def read(self, names=None, *, threads=None):
        """Reads arrays on all cores at once, by default all. Returns a dict of numpy arrays by name."""
        from ._array import read_many
        names = list(self) if names is None else list(names)
        return dict(zip(names, read_many([self[name] for name in names], threads=threads)))


class Container(_Arrays):
    """A container: a mapping of its arrays by name, in stored order. Nothing is decoded until elements are asked for.

    `list(container)` returns the names, `container['signal/joint_pos']` an `Array`; an unknown name raises `KeyError`.
    A name is the path of the array's `.npy` file (docs/TREE.md) without the suffix.

    Attributes:
        path: its path on this machine, or its address.
        format: the name of its format; `shardfs.formats()` lists them.
        info: `container.json`, parsed: format, version, and under 'items' what is stored.
        meta: the files `meta/*.json`, parsed, by name without the suffix; empty if there are none.
        images: cameras by name; empty if there are none.
        episodes: the recorded episodes, by position; empty if the container has none in folders of their own.
        topics: the topics of a recording, by name; empty if the container is none.

    Pickles as (source, path, state); see `shardfs.Changed`.
    """

    __slots__ = ("_info",)

    def __init__(self, source, path, state=None, node=None):
        super().__init__(source, path, state, node)
        self._info = None

    @property
    def format(self):
        return self._node.format

    @property
    def info(self):
        if self._info is None:
            self._info = parsed(self._node.description(), f"{self.path}/container.json")
        return self._info

    @property
    def meta(self):
        return {name.removesuffix(".json"): parsed(node.read(0, node.size), f"{self.path}/meta/{name}")
                for name, node in _files(self, "meta") if name.endswith(".json")}

    @property
    def episodes(self):
        return Episodes(self, self._node.episodes())

    @property
    def topics(self):
        from ._topics import Topics
        return Topics(self)

    @property
    def images(self):
        return Cameras(list(_camera_folders(self, "images")), self._camera)

    def _camera(self, name):
        array = self.get(f"signal/{name}")
        array = self.get(name) if array is None else array
        folder = f"images/{name}"
        frames = array.shape[0] if array is not None else sum(1 for _ in self._get(folder).children())
        return Camera(self, folder, array, frames)

    def __iter__(self):
        for episode in self.episodes:
            yield from (f"{episode._below}/{name}" for name in episode)
        paths = self._node.arrays()
        if not paths and not self.episodes:
            # Its items are shown as folders, like the columns of a table.
            paths = (path for path, _ in _files(self, "") if path.endswith(".npy"))
        yield from (path.removesuffix(".npy") for path in paths)

    def __repr__(self):
        return f"<shardfs.Container {self.path}>"


class Episode(_Arrays):
    """One episode of a container: a mapping of its arrays, such as 'state', 'action' and 'images/<camera>'.

    Attributes:
        number: its position in the index.
        meta: its `meta.json`, parsed.
        images: cameras by name.
    """

    __slots__ = ("_container", "_below", "number")

    def __init__(self, container, number):
        self._below = container._node.episode_folder(number)
        super().__init__(container._source, f"{container._path}/{self._below}", container._state)
        self._container, self.number = container, number

    def _look_up(self):
        return self._container._get(self._below)

    def __reduce__(self):
        return type(self), (self._container, self.number)

    @property
    def meta(self):
        return self._json("meta.json")

    @property
    def images(self):
        return Cameras(list(_camera_folders(self, "images")), self._camera)

    def _camera(self, name):
        return Camera(self, f"images/{name}", self.get(f"images/{name}"),
                      self._container._node.episode_frames(self.number))

    def __iter__(self):
        for path in ("", "images"):
            try:
                folder = self._get(path) if path else self._node
            except NotFound:
                return
            names = (node.name for node in folder.children())
            yield from ("/".join(filter(None, (path, name.removesuffix(".npy")))) for name in names
                        if name.endswith(".npy"))

    def __repr__(self):
        return f"<shardfs.Episode {self.path}>"


class Episodes(Sequence):
    """Episodes of a container by their position in it. An episode is read when it is first used."""

    def __init__(self, container, count):
        self._container, self._count = container, count

    def __len__(self):
        return self._count

    def __getitem__(self, number):
        if isinstance(number, slice):
            return [self[at] for at in range(self._count)[number]]
        if not -self._count <= number < self._count:
            raise IndexError(f"episode {number} of {self._count}")
        return Episode(self._container, number % self._count)

    def __repr__(self):
        return f"<shardfs.Episodes {self._count} of {self._container.path}>"


class Folder(_Tree, Mapping):
    """A folder: a mapping of names to containers and folders. `open` opens the other files.

    A key may be a path of several steps, such as `folder['2026/ep_001.wshard']`.
    """

    __slots__ = ()
    __hash__ = _Tree.__hash__
    __eq__ = _Tree.__eq__

    def __iter__(self):
        return (node.name for node in self._node.children() if node.kind == "folder")

    def __len__(self):
        return sum(1 for _ in self)

    def __getitem__(self, path):
        try:
            node = self._get(path)
        except (NotFound, NotADirectoryError):
            raise KeyError(path) from None
        if node.kind != "folder" or (node.format is not None and not node.is_container):
            raise KeyError(path)
        return _of(node, self._source, "/".join(filter(None, (self._path, path.strip("/")))))

    def __repr__(self):
        return f"<shardfs.Folder {self.path}>"


def _of(node, source, path):
    if node.is_container:
        return Container(source, path, node.state, node)
    return Folder(source, path, None, node)


def _files(place, path):
    """Yields the files below a folder, with their paths below it; none if the folder is missing."""
    try:
        top = place._get(path) if path else place._node
    except NotFound:
        return
    length = len(top.path) + 1
    for node in top.walk():
        if node.kind == "file":
            yield node.path[length:], node


def _camera_folders(place, path):
    """Yields the folders below a folder that hold numbered files, by their paths below it."""
    try:
        folders = [("", place._get(path))]
    except NotFound:
        return
    while folders:
        name, folder = folders.pop(0)
        below = []
        for node in folder.children():
            if node.kind != "folder":
                if name and node.name.partition(".")[0].isdigit():
                    yield name
                    break
                continue
            below.append((f"{name}/{node.name}" if name else node.name, node))
        folders[:0] = below


def open(source, *, formats=None):  # noqa: A001 - named as the thing that it does
    """Opens a container, or a folder of them. Nothing is decoded.

    Args:
        source: a path on this machine, or an address such as 's3://bucket/ep_001.wshard'.
        formats: which formats are containers: their names ('kdb,idv', or a list of names), or names with '-' or '+' in
            front, which are removed from the default or added to it. `shardfs.formats()` lists them.

    Returns:
        A `Container` for a container, a `Folder` for a folder.

    Raises:
        shardfs.NotFound: there is no such file.
        shardfs.NotAContainer: the file is of no known format, or too damaged to be opened; the error says why.
        ValueError: `formats` names an unknown format.
        OSError: the operating system or the server reports an error.
    """
    source, path = _process.split(source, formats)
    node = _process.node(source, path)
    if node.kind != "folder":
        reason_of_refusal(source, path)
    return _of(node, source, path)


class Format(NamedTuple):
    """A container format.

    Attributes:
        name: the name, as in `formats` of `open` and in `Container.format`.
        suffixes: suffixes that its files usually have.
        shown: whether its files are containers by default.
        summary: what it is.
    """

    name: str
    suffixes: list
    shown: bool
    summary: str


def formats():
    """Returns the container formats that this version knows, as `Format` tuples."""
    return [Format(*row) for row in _core.formats()]


class Found:
    """A container that `walk` found.

    Attributes:
        path: where it is.
        format: the name of its format.
        container: the `Container`.
        info: its `container.json`, parsed.
        items: the 'items' of `info`: what is stored.
    """

    __slots__ = ("container",)

    def __init__(self, container):
        self.container = container

    path = property(lambda self: self.container.path)
    format = property(lambda self: self.container.format)
    info = property(lambda self: self.container.info)
    items = property(lambda self: self.container.info.get("items", []))

    def __repr__(self):
        return f"<shardfs.Found {self.format} {self.path}>"


def walk(source, *, formats=None):
    """Yields every container below a folder (or the container itself), in the order of listings.

    Yields:
        `Found` objects: path, format, items. The content of a container is read when it is asked for.

    Raises:
        The same as `open`. Folders that cannot be read are left out, as in `os.walk`.
    """
    top = open(source, formats=formats)
    if isinstance(top, Container):
        yield Found(top)
        return
    folders = [top]
    while folders:
        folder = folders.pop()
        below = []
        nodes = folder._node.children()
        while True:
            try:
                node = next(nodes, None)
            except OSError:
                break
            if node is None:
                break
            if node.kind != "folder":
                continue
            path = "/".join(filter(None, (folder._path, node.name)))
            if node.is_container:
                yield Found(Container(folder._source, path, node.state, node))
            else:
                below.append(Folder(folder._source, path, None, node))
        folders.extend(reversed(below))
