"""Groups: mappings of names to groups, arrays and rows."""

from __future__ import annotations

import os
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from typing import Any, Literal, NamedTuple, overload

from numpy.typing import NDArray

from . import _process
from ._array import Array, read_many
from ._core import Node
from ._dataset import Dataset
from ._entry import Member, Place, decoded, joined, parsed
from ._errors import NotAContainer, NotFound
from ._files import BUFFERING, File, Readable
from ._null import Null
from ._rows import Rows


class Tree(Place):
    """A place whose files can be opened."""

    __slots__ = ()

    @overload
    def open(self, path: str | bytes | os.PathLike[Any], *, buffering: Literal[0]) -> Readable: ...  # type: ignore[overload-overlap]
    @overload
    def open(self, path: str | bytes | os.PathLike[Any], *, buffering: int = ...) -> File: ...

    def open(self, path: str | bytes | os.PathLike[Any], *, buffering: int = -1) -> Readable | File:
        """Opens a file below this as a seekable binary file, read-only.

        Args:
            path: a path as in docs/TREE.md: 'signal/joint_pos.npy', 'images/cam0/rgb/000.png', '.raw/signal/x.bin'.
            buffering: bytes that are read at a time, by default 256 KiB; 0 reads exactly what is asked for.

        Raises:
            shardfs.NotFound, IsADirectoryError; when it is read also `shardfs.DamagedBlock` and `shardfs.Changed`.
        """
        path = os.fsdecode(path)
        node = self._get(path)
        if node.kind == "folder":
            raise IsADirectoryError(21, "is a folder", f"{self.path}/{path}")
        raw = Readable(Place(self._source, node.path, node.state, node))
        return File(raw, BUFFERING if buffering < 0 else buffering) if buffering else raw

    def read_bytes(self, path: str | bytes | os.PathLike[Any]) -> bytes:
        """Returns all bytes of a file below this. Raises the same errors as `open`."""
        node = self._get(os.fsdecode(path))
        return node.read(0, node.size)

    def _json(self, path: str) -> Any:
        return parsed(self.read_bytes(path), f"{self.path}/{path}")


class HardLink(NamedTuple):
    """What `get(name, getlink=True)` returns for a group or array that is there."""


class SoftLink(NamedTuple):
    """What `get(name, getlink=True)` returns for a link.

    Attributes:
        path: where it leads, relative to its group.
    """

    path: str


class Group(Tree, Member, Mapping[str, Any]):
    """A group of a container: a mapping of names to groups (`Group`), arrays (`Array`) and values of varying length
    (`Rows`).

    A name may be a path of several steps, such as `group['obs/state']`; one that begins with '/' is looked up from the
    container on. Links are followed. An unknown name raises KeyError.

    Attributes: `name`, `attrs`, `parent`, `file`, `tables`.
    """

    __slots__ = ()
    __hash__ = Tree.__hash__
    __eq__ = Tree.__eq__

    def __iter__(self) -> Iterator[str]:
        return iter(self._node.member_names())

    def __len__(self) -> int:
        return len(self._node.member_names())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        name = decoded(name)
        if not isinstance(name, str):
            return False
        if self._whole(name) is not None:
            return True
        if not name:
            return False
        top = self.file if name.startswith("/") else self
        steps = top._steps(name)
        if not steps:
            return True
        try:
            group = Group._walk(top, "/".join(steps[:-1]))
            # A link that leads nowhere is there, too.
            if isinstance(group, Group) and group._found(steps[-1]) is not None:
                return True
        except KeyError:
            pass
        try:
            Group._walk(top, name)
        except KeyError:
            return False
        return True

    def values(self) -> ValuesView[Any]:
        """The groups and arrays. A link that leads nowhere is None."""
        return _Values(self)

    def items(self) -> ItemsView[str, Any]:
        """The groups and arrays with their names. A link that leads nowhere is None."""
        return _Items(self)

    def __getitem__(self, name: str) -> Any:
        name = decoded(name)
        if not isinstance(name, str):
            raise TypeError(f"groups and arrays are named by text, not by {type(name).__name__}")
        whole = self._whole(name)
        if whole is not None and whole[0] != "link":
            return self._member(*whole)
        if not name:
            raise KeyError(name)
        if name.startswith("/"):
            return Group._walk(self.file, name)
        return Group._walk(self, name)

    def _whole(self, name: str) -> tuple[str, Node] | None:
        """Returns the member whose stored name is a name that would be split at slashes, or that is empty. Formats with
        groups of their own have no such names but empty ones, of damaged links."""
        is_path = "/" in name or name == "."
        return self._found(name) if not name or is_path and not self._node.has_groups else None

    def _steps(self, name: str) -> list[str]:
        """Returns the parts of a path below this. Those that say nothing are names in formats without groups."""
        steps = name.removeprefix("/").split("/") if name not in ("", "/") else []
        return [step for step in steps if step not in ("", ".")] if self._node.has_groups else steps

    def _walk(self, name: str) -> Any:
        at: Any = self
        steps = self._steps(name)
        for number, step in enumerate(steps):
            found = at._step(step) if isinstance(at, Group) else None
            if found is None and step in ("", ".") and isinstance(at, Group):
                continue
            if found is None:
                whole = at._whole("/".join(steps[number:])) if isinstance(at, Group) else None
                if whole is None or whole[0] == "link":
                    raise KeyError(name)
                return at._member(*whole)
            at = found
        return at

    def _step(self, name: str) -> Group | Dataset | None:
        """Returns the member of a name; None if there is none, or it is a link that leads nowhere."""
        found = self._found(name)
        return None if found is None or found[0] == "link" else self._member(*found)

    def _found(self, name: str) -> tuple[str, Node] | None:
        """Returns the kind and the node of the member of a name; None if there is none."""
        try:
            return self._node.member(name)
        except (NotADirectoryError, UnicodeEncodeError):
            # Names of members are Unicode; half a surrogate pair is in none.
            return None

    def _member(self, kind: str, node: Node) -> Group | Dataset:
        path, state = joined(self._path, node.name), self._state
        if node.kind == "link":
            node = node.followed()
            # Links may lead to another container.
            path, state = node.path, node.state
        made: type[Any] = {"group": Group, "array": Array, "bytes": Array, "null": Null}.get(kind, Rows)
        if kind == "bytes" and (node.item() or (None,))[0] == "bytes":
            # One row of bytes; other files of bytes are arrays that cannot be shown as such.
            made = Rows
        found: Group | Dataset = made(self._source, path, state, node)
        return found

    def get(self, name: str, default: Any = None, getclass: bool = False, getlink: bool = False) -> Any:
        """Returns a group or array, or `default` if there is none.

        Args:
            getclass: return its class instead.
            getlink: return what kind of link leads to it instead: a `HardLink` or a `SoftLink`.
        """
        if getlink:
            above, _, last = name.rstrip("/").rpartition("/")
            group = self.get(above or "/") if above or name.startswith("/") else self
            found = self._whole(name) or (group._found(last) if isinstance(group, Group) else None)
            if found is None:
                return default
            is_link = found[1].kind == "link"
            if getclass:
                return SoftLink if is_link else HardLink
            return SoftLink(_without_suffix(found[1].link_target(), found[0])) if is_link else HardLink()
        try:
            thing = self[name]
        except KeyError:
            return default
        return type(thing) if getclass else thing

    def visititems(self, func: Callable[[str, Any], Any]) -> Any:
        """Calls `func(name, group_or_array)` with everything below, groups before what is in them, until it returns
        something other than None, and returns that. Links are left out.
        """
        return self._visit("", func)

    def visit(self, func: Callable[[str], Any]) -> Any:
        """Does the same as `visititems` with the names alone."""
        return self.visititems(lambda name, _: func(name))

    def _visit(self, above: str, func: Callable[[str, Any], Any]) -> Any:
        for name, kind, node in self._node.members():
            if kind == "link" or node.kind == "link":
                continue
            thing = self._member(kind, node)
            answer = func(above + name, thing)
            if answer is None and isinstance(thing, Group):
                answer = thing._visit(f"{above}{name}/", func)
            if answer is not None:
                return answer
        return None

    def groups(self) -> Iterator[tuple[str, Group]]:
        """Yields the groups in this one, with their names."""
        for name, kind, node in self._node.members():
            if kind == "group":
                yield name, self._member(kind, node)  # type: ignore[misc]

    def arrays(self) -> Iterator[tuple[str, Dataset]]:
        """Yields the arrays and rows in this group, with their names."""
        for name, kind, node in self._node.members():
            if kind not in ("group", "link"):
                yield name, self._member(kind, node)  # type: ignore[misc]

    def group_keys(self) -> Iterator[str]:
        """Yields the names of `groups`."""
        return (name for name, _ in self.groups())

    def array_keys(self) -> Iterator[str]:
        """Yields the names of `arrays`."""
        return (name for name, _ in self.arrays())

    @property
    def tables(self) -> Tables:
        """The tables in this group: `group.tables['obs']` is a pyarrow Table."""
        return Tables(self)

    def _array_names(self) -> list[str]:
        """The names of all arrays below, as `read` gives them: in formats without groups the paths of their files."""
        names: list[str] = []
        has_groups, own = self._node.has_groups, self._inside()
        skip = len(own) + 1 if own else 0

        def add(name: str, thing: Any) -> None:
            if isinstance(thing, Array) and thing._path.endswith(".npy"):
                names.append(name if has_groups else thing._inside_stem()[skip:])

        self.visititems(add)
        return names

    def read(self, names: Iterable[str] | None = None, *, threads: int | None = None) -> dict[str, NDArray[Any]]:
        """Reads arrays on all cores at once: those of some names or of one name, by default all. Returns a dict of numpy
        arrays by name."""
        chosen = self._array_names() if names is None else [names] if isinstance(names, str) else list(names)
        return dict(zip(chosen, read_many([self[name] for name in chosen], threads=threads)))

    def __repr__(self) -> str:
        return f"<shardfs.Group {self.path}>"


class _Values(ValuesView[Any]):
    _mapping: Mapping[str, Any]

    def __iter__(self) -> Iterator[Any]:
        return (self._mapping.get(name) for name in self._mapping)


class _Items(ItemsView[str, Any]):
    _mapping: Mapping[str, Any]

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, self._mapping.get(name)) for name in self._mapping)


class Arrays(Group):
    """A group that lists all arrays below it by name: the path of their `.npy` file without the suffix."""

    __slots__ = ()
    __hash__ = Group.__hash__
    __eq__ = Group.__eq__

    def _find(self, name: str) -> Array | None:
        """Returns the array of a name, which is the path of its file without the suffix."""
        # Parts that say nothing in a path are shown as others (docs/TREE.md, section 2).
        shown = "/".join({"": "%empty", ".": "%2E", "..": "%2E%2E"}.get(part, part) for part in name.split("/"))
        for path in (f"{shown}.npy", shown) if name.endswith(".npy") else (f"{shown}.npy",):
            try:
                node = self._get(path)
            except (NotFound, NotADirectoryError, ValueError):
                continue
            if node.kind == "file":
                return Array(self._source, node.path, self._state, node)
        return None

    def __getitem__(self, name: str) -> Any:
        found = self._find(name) if isinstance(name, str) else None
        return Group.__getitem__(self, name) if found is None else found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None or Group.__contains__(self, name)

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _array_names(self) -> list[str]:
        return list(self)


def _without_suffix(target: str, kind: str) -> str:
    suffix = {"array": ".npy", "lines": ".jsonl", "text": ".txt", "bytes": ".bin"}.get(kind, "")
    return target.removesuffix(suffix)


class Tables(Mapping[str, Any]):
    """Tables by name: the path of their `.parquet` file without the suffix. `tables['steps']` is a pyarrow Table;
    `tables.file('steps')` is the Parquet file, for other readers.

    Raises: ImportError if pyarrow is not installed.
    """

    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        self._group = group

    def _paths(self) -> list[str]:
        return [name for name, kind in self._group._node.names() if kind != "folder" and name.endswith(".parquet")]

    def file(self, name: str) -> File:
        """Opens the Parquet file of a table. Raises KeyError if there is none of that name."""
        try:
            return self._group.open(f"{name}.parquet")
        except (NotFound, NotADirectoryError, IsADirectoryError, ValueError):
            raise KeyError(name) from None

    def __getitem__(self, name: str) -> Any:
        file = self.file(name)
        try:
            import pyarrow.parquet  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("tables are read by pyarrow, which is not installed; tables.file(name) is the Parquet file") \
                from None
        with file:
            return pyarrow.parquet.read_table(file)

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and self._group._get(f"{name}.parquet").kind != "folder"
        except (NotFound, NotADirectoryError, ValueError):
            return False

    def __iter__(self) -> Iterator[str]:
        return (path.removesuffix(".parquet") for path in self._paths())

    def __len__(self) -> int:
        return len(self._paths())

    def __repr__(self) -> str:
        return f"<shardfs.Tables {list(self)} of {self._group.path}>"


def of_node(node: Node, source: Any, path: str) -> Group | Dataset | None:
    """Returns the group or array of a container that a node is; None if it is none of them."""
    if node.kind == "folder":
        kind = "rows" if node.item() is not None else "group"
    elif node.name.endswith(".npy"):
        kind = "array"
    elif node.name.endswith((".jsonl", ".txt")) and node.item() is not None:
        kind = "lines"
    else:
        return None
    made: type[Any] = {"group": Group, "array": Array}.get(kind, Rows)
    found: Group | Dataset = made(source, path, node.state, node)
    return found


def refused(source: _process.Where, path: str) -> NotAContainer:
    """Returns the error for a file in a container that is no array."""
    return NotAContainer("neither a container nor an array; open the container, and the file with `open`",
                         container=_process.shown(source, path))
