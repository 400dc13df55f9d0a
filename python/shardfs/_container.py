"""Containers and folders of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, overload

from . import _core, _process
from ._array import Array
from ._core import Node
from ._dataset import Dataset
from ._entry import Place, joined, parsed, reason_of_refusal
from ._errors import NotFound
from ._group import Arrays, Group, Tree, of_node, refused
from ._pictures import Camera, Cameras
from ._topics import Topics


class Container(Arrays):
    """A container: a mapping of its arrays by name, in stored order. Nothing is decoded until elements are asked for.

    `list(container)` returns the names, `container['signal/joint_pos']` an `Array`; an unknown name raises `KeyError`.
    A name is the path of the array's `.npy` file (docs/TREE.md) without the suffix. `container['signal']` is a `Group`.

    Containers of formats with groups of their own (HDF5, NetCDF, Zarr) are such a group: `list(container)` returns what
    is in the root, as h5py and zarr do. `with shardfs.open(path) as f:` works; nothing has to be closed.

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

    __slots__ = ("_info", "_topics")

    def __init__(self, source: _process.Where, path: str, state: str | None = None, node: Node | None = None) -> None:
        super().__init__(source, path, state, node)
        self._info: dict[str, Any] | None = None
        self._topics: Topics | None = None

    def __enter__(self) -> Container:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes files that are gone or were replaced, of this or another container. Objects are names, and what they
        opened belongs to the process: they can be used further."""
        _process.sweep()

    @property
    def filename(self) -> str:
        """The same as `path`."""
        return self.path

    @property
    def mode(self) -> str:
        """'r'."""
        return "r"

    @property
    def format(self) -> str:
        """The name of its format."""
        return self._node.format or ""

    @property
    def info(self) -> dict[str, Any]:
        """`container.json`, parsed."""
        if self._info is None:
            self._info = parsed(self._node.description(), f"{self.path}/container.json")
        return self._info

    @property
    def meta(self) -> dict[str, Any]:
        """The files `meta/*.json`, parsed, by name without the suffix."""
        return {name.removesuffix(".json"): parsed(node.read(0, node.size), f"{self.path}/meta/{name}")
                for name, node in _files(self, "meta") if name.endswith(".json")}

    @property
    def episodes(self) -> Episodes:
        """The recorded episodes, by position."""
        return Episodes(self, self._node.episodes())

    @property
    def topics(self) -> Topics:
        """The topics of a recording, by name."""
        if self._topics is None:
            self._topics = Topics(self)
        return self._topics

    @property
    def images(self) -> Cameras:
        """Cameras by name."""
        return Cameras(list(_camera_folders(self, "images")), self._camera)

    def _camera(self, name: str) -> Camera:
        folder = f"images/{name}"
        places = [folder] if self._node.has_groups else [folder, f"signal/{name}", name]
        array = next((found for place in places if (found := _stack(self, place)) is not None), None)
        frames = array.shape[0] if array is not None else sum(1 for _ in self._get(folder).children())
        return Camera(self, folder, array, frames)

    def __getitem__(self, name: str) -> Any:
        if not self._node.has_groups:
            return Arrays.__getitem__(self, name)
        try:
            return Group.__getitem__(self, name)
        except KeyError:
            # Arrays beside others, such as the offsets of texts, have paths and no names.
            found = self._find(name) if isinstance(name, str) else None
            if found is None:
                raise
            return found

    def __len__(self) -> int:
        return Group.__len__(self) if self._node.has_groups else Arrays.__len__(self)

    def _array_names(self) -> list[str]:
        return Group._array_names(self) if self._node.has_groups else list(self)

    def __iter__(self) -> Iterator[str]:
        if self._node.has_groups:
            yield from Group.__iter__(self)
            return
        for episode in self.episodes:
            yield from (f"{episode._below}/{name}" for name in episode)
        paths: Iterable[str] = self._node.arrays()
        if not paths and not self.episodes:
            # Its items are shown as folders, like the columns of a table.
            paths = (path for path, _ in _files(self, "") if path.endswith(".npy"))
        yield from (path.removesuffix(".npy") for path in paths)

    def __repr__(self) -> str:
        return f"<shardfs.Container {self.path}>"


class Episode(Arrays):
    """One episode of a container: a mapping of its arrays, such as 'state', 'action' and 'images/<camera>'.

    Attributes:
        number: its position in the index.
        meta: its `meta.json`, parsed.
        images: cameras by name.
    """

    __slots__ = ("_container", "_below", "number")

    def __init__(self, container: Container, number: int) -> None:
        self._below = container._node.episode_folder(number)
        super().__init__(container._source, joined(container._path, self._below), container._state)
        self._container, self.number = container, number

    def _look_up(self) -> Node:
        return self._container._get(self._below)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._container, self.number)

    @property
    def meta(self) -> dict[str, Any]:
        """Its `meta.json`, parsed."""
        found: dict[str, Any] = self._json("meta.json")
        return found

    @property
    def images(self) -> Cameras:
        """Cameras by name."""
        return Cameras(list(_camera_folders(self, "images")), self._camera)

    def _camera(self, name: str) -> Camera:
        return Camera(self, f"images/{name}", _stack(self, f"images/{name}"),
                      self._container._node.episode_frames(self.number))

    def __iter__(self) -> Iterator[str]:
        return iter(Group._array_names(self))

    def __repr__(self) -> str:
        return f"<shardfs.Episode {self.path}>"


class Episodes(Sequence["Episode"]):
    """Episodes of a container by their position in it. An episode is read when it is first used."""

    def __init__(self, container: Container, count: int) -> None:
        self._container, self._count = container, count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Episode: ...
    @overload
    def __getitem__(self, number: slice) -> list[Episode]: ...

    def __getitem__(self, number: int | slice) -> Episode | list[Episode]:
        if isinstance(number, slice):
            return [self[at] for at in range(self._count)[number]]
        if not -self._count <= number < self._count:
            raise IndexError(f"episode {number} of {self._count}")
        return Episode(self._container, number % self._count)

    def __repr__(self) -> str:
        return f"<shardfs.Episodes {self._count} of {self._container.path}>"


class Folder(Tree, Mapping[str, Any]):
    """A folder: a mapping of names to containers and folders. `open` opens the other files.

    A key may be a path of several steps, such as `folder['2026/ep_001.wshard']`.
    """

    __slots__ = ()
    __hash__ = Tree.__hash__
    __eq__ = Tree.__eq__

    def __iter__(self) -> Iterator[str]:
        return (node.name for node in self._node.children() if node.kind == "folder")

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, path: str) -> Container | Folder:
        try:
            node = self._get(path)
        except (NotFound, NotADirectoryError, ValueError):
            # ValueError: not a path below a folder.
            raise KeyError(path) from None
        if node.kind != "folder" or (node.format is not None and not node.is_container):
            raise KeyError(path)
        return _of(node, self._source, "/".join(filter(None, (self._path, path.strip("/")))))

    def __repr__(self) -> str:
        return f"<shardfs.Folder {self.path}>"


def _of(node: Node, source: _process.Where, path: str) -> Container | Folder:
    if node.is_container:
        return Container(source, path, node.state, node)
    return Folder(source, path, None, node)


def _files(place: Place, path: str) -> Iterator[tuple[str, Node]]:
    """Yields the files below a folder, with their paths below it; none if the folder is missing."""
    try:
        top = place._get(path) if path else place._node
    except NotFound:
        return
    length = len(top.path) + 1
    for node in top.walk():
        if node.kind == "file":
            yield node.path[length:], node


def _camera_folders(place: Place, path: str) -> Iterator[str]:
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


def _stack(place: Arrays, folder: str) -> Array | None:
    """Returns the array of the pictures that a folder of this path has; None if there is none."""
    found = place._find(folder)
    above, escaped, below = folder.rpartition("%2E")
    if found is None and escaped and "/" not in below:
        # A folder named like a file has one dot escaped, and its array does not.
        found = place._find(f"{above}.{below}")
    return found


def open(source: _process.Source, mode: str = "r", *,  # noqa: A001 - named as the thing that it does
         formats: str | Iterable[str] | None = None, follow_links: _process.Links = "no") -> Any:
    """Opens a container, or a folder of them. Nothing is decoded.

    Args:
        source: a path on this machine, or an address such as 's3://bucket/ep_001.wshard'. It may lead into a container:
            'robot.h5/data/demo_0' or 'cells.zarr/image'.
        mode: 'r', for programs that say it.
        formats: which formats are containers: their names ('kdb,idv', or a list of names), or names with '-' or '+' in
            front, which are removed from the default or added to it. `shardfs.formats()` lists them.
        follow_links: which symbolic links below the source are shown as what they lead to: 'no', 'inside' for those that
            lead to a place inside the source, or 'outside' for all. Files that belong together and are links to
            elsewhere, as in the caches of Hugging Face and DVC, need 'outside'; anyone who may write to the source then
            chooses which of your files are read.

    Returns:
        A `Container` for a container, a `Folder` for a folder; for a path in a container a `Group`, `Array` or `Rows`.

    Raises:
        shardfs.NotFound: there is no such file.
        shardfs.NotAContainer: the file is of no known format, or too damaged to be opened; the error says why.
        ValueError: `formats` names an unknown format, `follow_links` is none of these, or `mode` is for writing.
        OSError: the operating system or the server reports an error.
    """
    if mode not in ("r", "rb"):
        raise ValueError(f"mode {mode!r}: everything is read-only")
    where, path = _process.split(source, formats, follow_links)
    try:
        return _opened(source, where, path)
    except (NotFound, NotADirectoryError, PermissionError):
        place = _process.inside(where, path)
        if place in (None, (where, path)):
            raise
        return _opened(source, *place)


def _opened(source: _process.Source, where: _process.Where, path: str) -> Any:
    """Opens what is at a path of a source; `source` is what the user named."""
    try:
        node = _process.node(where, path, anew=True)
    except (NotFound, NotADirectoryError):
        found = _named(where, path)
        if found is None:
            raise
        return found
    if node.kind == "link":
        node = node.followed()
        path = node.path
    if node.format is not None and not node.is_container:
        # A folder beside an array has its name.
        found = _named(where, path) or of_node(node, where, path)
        if found is None:
            raise refused(where, path)
        return found
    if node.kind != "folder":
        is_link = _process.parts(where)[2] != "outside" and os.path.islink(source)
        hint = "; {} is a link to it, which follow_links='outside' opens by its own name".format(os.fsdecode(source))
        reason_of_refusal(where, path, hint if is_link else "")
    return _of(node, where, path)


def _named(where: _process.Where, path: str) -> Group | Dataset | None:
    """Returns the array or group of a container whose name is the last part of a path; None if there is none."""
    above, _, name = path.rpartition("/")
    try:
        node = _process.node(where, above)
        if node.kind != "folder" or node.format is None:
            return None
        return Group(where, above, node.state, node)._step(name)
    except (NotFound, NotADirectoryError):
        return None


class Format(NamedTuple):
    """A container format.

    Attributes:
        name: the name, as in `formats` of `open` and in `Container.format`.
        suffixes: suffixes that its files usually have.
        shown: whether its files are containers by default.
        summary: what it is.
    """

    name: str
    suffixes: list[str]
    shown: bool
    summary: str


def formats() -> list[Format]:
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
        part_of: path of the container that shows this one joined with others, such as a manifest; None for all others.
    """

    __slots__ = ("container", "part_of")

    def __init__(self, container: Container, part_of: str | None = None) -> None:
        self.container = container
        self.part_of = part_of

    @property
    def path(self) -> str:
        """Where it is."""
        return self.container.path

    @property
    def format(self) -> str:
        """The name of its format."""
        return self.container.format

    @property
    def info(self) -> dict[str, Any]:
        """Its `container.json`, parsed."""
        return self.container.info

    @property
    def items(self) -> list[dict[str, Any]]:
        """What is stored."""
        found: list[dict[str, Any]] = self.container.info.get("items", [])
        return found

    def __repr__(self) -> str:
        return f"<shardfs.Found {self.format} {self.path}>"


def walk(source: _process.Source, *, formats: str | Iterable[str] | None = None, parts: bool = False,
         onerror: Callable[[OSError], object] | None = None, follow_links: _process.Links = "no") -> Iterator[Found]:
    """Yields every container below a folder (or the container itself), in the order of listings.

    Containers that another one beside them shows joined, such as the chunks of an episode that has a manifest, are left
    out, because their arrays and frames would come twice. On a server, containers are recognised by their names, and
    those of a manifest that was never opened are yielded.

    Args:
        source: as in `open`.
        formats, follow_links: as in `open`.
        parts: also yield containers that another one shows joined; their `part_of` is its path.
        onerror: called with the error of each folder or entry that cannot be read; if it raises, that ends the walk.

    Yields:
        `Found` objects: path, format, items. The content of a container is read when it is asked for.

    Raises:
        The same as `open`. Folders and entries that cannot be read are left out and passed to `onerror`, as in
        `os.walk`.
    """
    top = open(source, formats=formats, follow_links=follow_links)
    if isinstance(top, Container):
        yield Found(top)
        return
    folders: list[Folder] = [top] if isinstance(top, Folder) else []
    joined: dict[str, str] = {}
    while folders:
        folder = folders.pop()
        below: list[Folder] = []
        # Whether a container is a part of another one is known when the folder was listed to its end.
        waiting: list[Container] = []
        nodes = folder._node.children()
        while True:
            try:
                node = next(nodes, None)
            except OSError as error:
                # Of one entry, behind which the listing goes on, or of the folder, at whose end it is then.
                if onerror is not None:
                    onerror(error)
                continue
            if node is None:
                break
            if node.kind != "folder":
                continue
            path = "/".join(filter(None, (folder._path, node.name)))
            if not node.is_container:
                below.append(Folder(folder._source, path, None, node))
                continue
            container = Container(folder._source, path, node.state, node)
            try:
                joins = node.joins()
            except (OSError, MemoryError):
                joins = []
            if joins is None and not waiting:
                yield Found(container)
                continue
            waiting.append(container)
            joined.update((os.fspath(part), container.path) for part in joins or ())
        for container in waiting:
            part_of = joined.pop(container._node.path, None)
            if parts or part_of is None:
                yield Found(container, part_of)
        folders.extend(reversed(below))
