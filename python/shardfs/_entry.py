"""Base of all objects here: a place that is looked up when it is needed, and pickles by name."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NoReturn

from . import _process
from ._attributes import Attributes
from ._errors import Changed, NotAContainer, NotFound

if TYPE_CHECKING:
    from ._container import Container
    from ._core import Node
    from ._group import Group


class Place:
    """A file or folder by name: source, path below it, and the state that the container had when it was opened.

    Pickles as these three. Another process opens it again when it is first used; if the container has changed by then,
    that raises `shardfs.Changed`.
    """

    __slots__ = ("_source", "_path", "_state", "_node_", "_generation", "__weakref__")

    def __init__(self, source: _process.Where, path: str, state: str | None = None, node: Node | None = None) -> None:
        self._source, self._path, self._state = source, path, state
        self._node_, self._generation = node, _process.generation

    @property
    def _node(self) -> Node:
        if self._node_ is None or self._generation != _process.generation:
            generation = _process.generation
            try:
                node = self._look_up()
            except (NotFound, NotADirectoryError):
                self._check_way()
                raise
            if self._state is not None and node.state != self._state:
                raise self._changed()
            self._node_, self._generation = node, generation
        return self._node_

    def _changed(self) -> Changed:
        return Changed("the container has changed since this was opened", container=self.path)

    def _check_way(self) -> None:
        """Raises `Changed` if this is gone because its container has changed, and the container still exists."""
        path = self._path
        while self._state is not None and path:
            path = path.rpartition("/")[0]
            try:
                state = _process.node(self._source, path).state
            except (NotFound, NotADirectoryError):
                continue
            # Folders outside of containers have no state: then the container is gone too.
            if state not in (None, self._state):
                raise self._changed()
            return

    def _look_up(self) -> Node:
        return _process.node(self._source, self._path)

    def _get(self, path: str) -> Node:
        """Returns the node at a path below."""
        return self._node.get(path)

    @property
    def path(self) -> str:
        """Its path on this machine, or its address."""
        return _process.shown(self._source, self._path)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._source, self._path, self._state)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Place):
            return NotImplemented
        return (self._source, self._path, self._state) == (other._source, other._path, other._state)

    def __hash__(self) -> int:
        return hash((self._source, self._path, self._state))


class Member(Place):
    """A group or array of a container.

    Attributes:
        name: in formats with groups of their own (HDF5, NetCDF, Zarr) the path of its name in the file, such as
            '/data/demo_0/actions'; in others the last part of it.
        attrs: its attributes, by name.
        parent: the group that it is in; of the container itself the container.
        file: the container.
    """

    __slots__ = ()

    def _inside(self) -> str:
        """Returns the path in the container."""
        return self._node.inside

    def _inside_stem(self) -> str:
        """Returns the same without the suffix of a file."""
        return self._inside()

    @property
    def name(self) -> str:
        """Its name."""
        parts = [stored(part) for part in self._inside_stem().split("/") if part]
        return "/" + "/".join(parts) if self._node.has_groups else (parts or [""])[-1]

    @property
    def attrs(self) -> Attributes:
        """Its attributes, by name."""
        return Attributes(self._node.attributes(), self.path)

    @property
    def file(self) -> Container:
        """The container that it is in."""
        from ._container import Container
        inside = self._inside()
        path = self._path[:len(self._path) - len(inside)].rstrip("/") if inside else self._path
        return Container(self._source, path, self._state)

    @property
    def parent(self) -> Group:
        """The group that it is in."""
        from ._group import Group
        above, _, _ = self._inside().rpartition("/")
        file = self.file
        return Group(self._source, joined(file._path, above), self._state) if above else file


def joined(above: str, below: str) -> str:
    """Returns the path of what is below a place, which may be the source itself: its path is empty."""
    return f"{above}/{below}" if above else below


#: Suffixes of files that show arrays.
SUFFIXES = (".npy", ".jsonl", ".txt", ".bin")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def stored(part: str) -> str:
    """Returns the stored name that a part of a path stands for (docs/TREE.md, section 2)."""
    if part == "%empty":
        return ""
    name = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), part.encode())
    return name.decode(errors="backslashreplace")


def decoded(name: Any) -> Any:
    """Returns a name of bytes as text; bytes that are not UTF-8 as `%` and two digits."""
    if not isinstance(name, bytes):
        return name
    text = name.decode(errors="surrogateescape")
    return re.sub("[\udc80-\udcff]", lambda byte: f"%{ord(byte[0]) - 0xDC00:02X}", text)


def parsed(data: bytes | None, what: str) -> Any:
    """Returns the JSON of a container, parsed."""
    try:
        return json.loads(data or b"")
    except ValueError as error:
        raise ValueError(f"{what}: not JSON: {error}") from None


def reason_of_refusal(source: _process.Where, path: str, hint: str = "") -> NoReturn:
    """Raises the error that says why a file is not a container, with a hint at its end."""
    shown = _process.shown(source, path)
    try:
        from . import _core
        _, formats, links = _process.parts(source)
        _core.Volume(shown, _core.Cache(1 << 20), formats, follow_links=links)
    except NotFound:
        raise
    except (NotAContainer, OSError) as error:
        raise NotAContainer(getattr(error, "reason", str(error)) + hint, container=shown) from None
    raise NotAContainer("not a container of any known format" + hint, container=shown)
