"""Topics of recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

from ._array import Array
from ._core import Node
from ._entry import joined
from ._errors import NotFound
from ._group import Arrays
from ._pictures import Camera

if TYPE_CHECKING:
    from ._container import Container


class Messages(Sequence[Any]):
    """The messages of a topic in order, each as `messages.jsonl` has it: a dict, or None if it does not decode or is not
    JSON. Messages of JSON may be other values.

    Going through them reads the file from front to back; `messages[7]` reads it up to that message.
    """

    def __init__(self, topic: Topic) -> None:
        self._topic = topic

    def __len__(self) -> int:
        return len(self._topic.time)

    def __iter__(self) -> Iterator[Any]:
        with self._topic.open("messages.jsonl") as lines:
            for line in lines:
                yield _message(line)

    @overload
    def __getitem__(self, number: int) -> Any: ...
    @overload
    def __getitem__(self, number: slice) -> list[Any]: ...

    def __getitem__(self, number: int | slice) -> Any:
        if isinstance(number, slice):
            wanted = range(len(self))[number]
            several = self._find(set(wanted)) if wanted else {}
            return [several[at] for at in wanted]
        count = len(self)
        at = number + count if number < 0 else number
        if not 0 <= at < count:
            raise IndexError(f"message {number} of {count}")
        return self._find({at})[at]

    def _find(self, wanted: set[int]) -> dict[int, Any]:
        found: dict[int, Any] = {}
        last = max(wanted)
        with self._topic.open("messages.jsonl") as lines:
            for at, line in enumerate(lines):
                if at in wanted:
                    found[at] = _message(line)
                if at == last:
                    return found
        raise IndexError(f"message {last}")

    def __repr__(self) -> str:
        return f"<shardfs.Messages of {self._topic.path}>"


def _message(line: bytes) -> Any:
    """Returns the value of a line of `messages.jsonl`. Messages of JSON are there as they were recorded."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


class Topic(Arrays):
    """A topic of a recording: a mapping of its arrays, such as 'time' and 'angular_velocity.x'.

    Attributes:
        name: the topic.
        time: when each message was recorded, in nanoseconds since 1970; nothing is decoded for it.
        messages: the messages, decoded.
        images: the pictures in the messages, in order; `images[7]` is a `Picture`. Empty if the topic has none.
        info: `channel.json`, parsed.
    """

    __slots__ = ("_container", "_below", "_name")
    __hash__ = Arrays.__hash__
    __eq__ = Arrays.__eq__

    def __init__(self, container: Container, name: str, below: str) -> None:
        self._below = below
        super().__init__(container._source, joined(container._path, below), container._state)
        self._container, self._name = container, name

    @property
    def name(self) -> str:
        """The topic."""
        return self._name

    def _look_up(self) -> Node:
        return self._container._get(self._below)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._container, self.name, self._below)

    @property
    def time(self) -> Array:
        """When each message was recorded, in nanoseconds since 1970."""
        found: Array = self["time"]
        return found

    @property
    def messages(self) -> Messages:
        """The messages, decoded."""
        return Messages(self)

    @property
    def images(self) -> Camera:
        """The pictures in the messages, in order."""
        try:
            self._get("images")
        except NotFound:
            return Camera(self._container, f"{self._below}/images", None, 0)
        return Camera(self._container, f"{self._below}/images", None, len(self.time))

    @property
    def info(self) -> dict[str, Any]:
        """`channel.json`, parsed."""
        found: dict[str, Any] = self._json("channel.json")
        return found

    def __iter__(self) -> Iterator[str]:
        for name, kind in self._node.names():
            if kind == "file" and name.endswith(".npy"):
                yield name.removesuffix(".npy")

    def __repr__(self) -> str:
        return f"<shardfs.Topic {self.name} of {self._container.path}>"


class Topics(Mapping[str, Topic]):
    """Topics by name. Of several with one name the first has it; all can be had by their folders, as 'topics/a%_2'.

    Topics that `container.json` does not describe, because there are too many, are found by their folders, which takes
    longer once.
    """

    def __init__(self, container: Container) -> None:
        self._container = container
        self._folders: dict[str, Any] = {}
        self._names: dict[str, str] = {}
        for item in container.info["items"]:
            if "messages" in item:
                self._add(item["path"], item["name"])
        self._is_whole = not container.info.get("items_left_out")

    def _add(self, folder: str, name: Any) -> None:
        self._folders[folder] = name
        if isinstance(name, str):
            self._names.setdefault(name, folder)

    def _find_others(self) -> None:
        """Looks through the folders of topics for those that are not described."""
        open_folders = [] if self._is_whole else ["topics"]
        while open_folders:
            folder = open_folders.pop()
            node = self._container._get(folder)
            for name, kind in reversed(node.names()):
                # The folders of pictures have this name, and no others.
                if kind == "folder" and name != "images":
                    open_folders.append(f"{folder}/{name}")
                elif name == "channel.json" and folder not in self._folders:
                    self._add(folder, self._container._json(f"{folder}/{name}")["topic"])
        self._is_whole = True

    def __getitem__(self, name: str) -> Topic:
        if name not in self:
            raise KeyError(name)
        folder = self._names.get(name, name)
        return Topic(self._container, self._folders[folder], folder)

    def __contains__(self, name: object) -> bool:
        if name not in self._names and name not in self._folders:
            self._find_others()
        return name in self._names or name in self._folders

    def __iter__(self) -> Iterator[str]:
        self._find_others()
        return iter(self._names)

    def __len__(self) -> int:
        self._find_others()
        return len(self._names)

    def __repr__(self) -> str:
        return f"<shardfs.Topics {list(self)} of {self._container.path}>"
