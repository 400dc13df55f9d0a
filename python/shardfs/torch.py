"""Windows of episodes as a map-style data set for `torch.utils.data.DataLoader`.

    from torch.utils.data import DataLoader
    import shardfs.torch

    data = shardfs.torch.Dataset("data/", {"state": "signal/joint_pos", "action": "action/ctrl"},
                                 cameras={"rgb": "cam0/rgb"}, length=8)
    for batch in DataLoader(data, batch_size=32, shuffle=True, num_workers=4):
        batch["state"], batch["rgb"]               # tensors of (32, 8, ...)

Windows are dicts of numpy arrays, which the loader's own `default_collate` turns into tensors. So this module does not
import torch, and other loaders can use it as well.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from . import _dataset, _process
from ._container import Container, Episode, Found, walk
from ._errors import Error, NotAnArray


class Dataset:
    """All windows of `length` successive steps of all episodes.

    Only names are pickled for a worker. Each worker opens the containers itself, and decodes only what it uses.

    Args:
        source: a folder or container on this machine, its address, or an iterable of `Container` and `Episode` objects.
        arrays: names of arrays whose first axis are steps: a mapping from a name of your own to the array's name, a
            list of arrays' names, or one name.
        cameras: names of cameras (`Container.images`), given in the same way.
        length: steps of a window, at least 1.
        stride: steps from the begin of a window to that of the next one in the same episode, at least 1.
        transform: called with each window; what it returns is the item.
        formats, follow_links: as in `shardfs.open`.

    Attributes:
        episodes: the episodes that have windows, in the order of their paths.
        left_out: a reason for each other container or episode, by its path: it lacks an array or a camera, is
            damaged, lacks pictures, is shorter than a window, or has arrays of different numbers of steps. Also for each
            folder or file that could not be read.

    Raises:
        ValueError: nothing to load is named, or `length` or `stride` is less than 1.
    """

    def __init__(self, source: _process.Source | Iterable[Container | Episode],
                 arrays: Mapping[str, str] | Iterable[str] = (), *, cameras: Mapping[str, str] | Iterable[str] = (),
                 length: int = 1, stride: int = 1, transform: Callable[[dict[str, Any]], Any] | None = None,
                 formats: str | Iterable[str] | None = None, follow_links: _process.Links = "no") -> None:
        self.arrays, self.cameras = _named(arrays), _named(cameras)
        if not self.arrays and not self.cameras:
            raise ValueError("name at least one array or camera")
        if twice := self.arrays.keys() & self.cameras.keys():
            raise ValueError(f"names of an array and of a camera: {', '.join(sorted(twice))}")
        if length < 1 or stride < 1:
            raise ValueError(f"length {length} and stride {stride} must be at least 1")
        self.length, self.stride, self.transform = length, stride, transform
        self.episodes: list[Container | Episode] = []
        self.left_out: dict[str, str] = {}
        counts = []
        search = partial(walk, formats=formats, onerror=self._leave_out, follow_links=follow_links)
        for episode in _episodes(source, search):
            try:
                steps = {name: self._steps(name, rows) for name, rows in self._rows(episode)}
            except (KeyError, Error) as error:
                self.left_out[episode.path] = f"no {error}" if isinstance(error, KeyError) else str(error)
                continue
            if len(set(steps.values())) > 1:
                self.left_out[episode.path] = f"different numbers of steps: {steps}"
            elif (least := next(iter(steps.values()))) < length:
                self.left_out[episode.path] = f"{least} steps"
            else:
                self.episodes.append(episode)
                counts.append((least - length) // stride + 1)
        self._ends = list(accumulate(counts))

    def _leave_out(self, error: OSError) -> None:
        """Notes a place that the walk could not read."""
        self.left_out[str(getattr(error, "container", None) or error)] = str(error)

    def _steps(self, name: str, rows: Any) -> int:
        if name in self.cameras:
            if not rows._has_all():
                raise NotAnArray("pictures are missing", container=rows.path)
        elif not isinstance(rows, _dataset.Dataset) or not rows.ndim:
            raise NotAnArray("not an array of steps", container=rows.path)
        steps: int = len(rows)
        return steps

    def _rows(self, episode: Container | Episode) -> Iterator[tuple[str, Any]]:
        for name, array in self.arrays.items():
            yield name, episode[array]
        images: Mapping[str, Any] = episode.images if self.cameras else {}
        for name, camera in self.cameras.items():
            yield name, images[camera]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        """Returns a window: numpy arrays of shape (length, ...) by name, or what `transform` makes of them."""
        try:
            index = operator.index(index)
        except TypeError:
            raise TypeError(f"the number of a window, not {index!r}") from None
        if not -len(self) <= index < len(self):
            raise IndexError(f"window {index} of {len(self)}")
        number, start = self.place(index)
        span = range(start, start + self.length)
        window = {}
        for name, rows in self._rows(self.episodes[number]):
            array = rows if name in self.arrays else rows.array
            # Pictures without an array have different sizes or are stored one by one.
            window[name] = array[span.start:span.stop] if array is not None else np.stack([rows[at] for at in span])
        return window if self.transform is None else self.transform(window)

    def place(self, index: int) -> tuple[int, int]:
        """Returns which of `episodes` a window is in, and at which step it begins."""
        index %= len(self)
        number = bisect_right(self._ends, index)
        return number, (index - (self._ends[number - 1] if number else 0)) * self.stride

    def __repr__(self) -> str:
        return f"<shardfs.torch.Dataset {len(self)} windows of {len(self.episodes)} episodes>"


def _named(names: Mapping[str, str] | Iterable[str]) -> dict[str, str]:
    """Returns a mapping of names; a name by itself or in a list stands for itself."""
    names = [names] if isinstance(names, str) else names
    return dict(names) if isinstance(names, Mapping) else {name: name for name in names}


def _episodes(source: Any, search: Callable[[Any], Iterator[Found]]) -> Iterator[Container | Episode]:
    """Yields the episodes of containers, or the container itself if it has none."""
    if isinstance(source, (Container, Episode)):
        source = [source]
    is_place = isinstance(source, str) or hasattr(source, "__fspath__")
    for found in (found.container for found in search(source)) if is_place else source:
        yield from (isinstance(found, Container) and found.episodes) or [found]
