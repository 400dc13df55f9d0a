"""Base of all objects here: a place that is looked up when it is needed, and pickles by name."""

import json

from . import _process
from ._errors import Changed, NotAContainer, NotFound


class Place:
    """A file or folder by name: source, path below it, and the state that the container had when it was opened.

    Pickles as these three. Another process opens it again when it is first used; if the container has changed by then,
    that raises `shardfs.Changed`.
    """

    __slots__ = ("_source", "_path", "_state", "_node_", "_generation", "__weakref__")

    def __init__(self, source, path, state=None, node=None):
        self._source, self._path, self._state = source, path, state
        self._node_, self._generation = node, _process.generation

    @property
    def _node(self):
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

    def _changed(self):
        return Changed("the container has changed since this was opened", container=self.path)

    def _check_way(self):
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

    def _look_up(self):
        return _process.node(self._source, self._path)

    def _get(self, path):
        """Returns the node at a path below."""
        return self._node.get(path)

    @property
    def path(self):
        """Its path on this machine, or its address."""
        return _process.shown(self._source, self._path)

    def __reduce__(self):
        return type(self), (self._source, self._path, self._state)

    def __eq__(self, other):
        if type(other) is not type(self):
            return NotImplemented
        return (self._source, self._path, self._state) == (other._source, other._path, other._state)

    def __hash__(self):
        return hash((self._source, self._path, self._state))


def parsed(data, what):
    """Returns the JSON of a container, parsed."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise ValueError(f"{what}: not JSON: {error}") from None


def reason_of_refusal(source, path):
    """Raises the error that says why a file is not a container."""
    shown = _process.shown(source, path)
    try:
        from . import _core
        _core.Volume(shown, _core.Cache(1 << 20), source[1] if isinstance(source, tuple) else None)
    except NotFound:
        raise
    except (NotAContainer, OSError) as error:
        raise NotAContainer(getattr(error, "reason", str(error)), container=shown) from None
    raise NotAContainer("not a container of any known format", container=shown)
