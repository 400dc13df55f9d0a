"""Cameras and their pictures."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ._entry import stored
from ._errors import DamagedBlock, NotAnArray, NotFound

if TYPE_CHECKING:
    from ._array import Array
    from ._core import Node
    from ._group import Group

_SUFFIXES = (".jpg", ".png", ".npy", ".bin")


class Picture:
    """One picture of a camera, decoded when its pixels are asked for.

    `numpy.asarray(picture)` and `picture[...]` return the pixels, of shape (height, width, channels).

    Attributes:
        bytes: the picture as a file: JPEG and PNG as they are stored, raw pixels as a PNG file.
        path: the path of that file, as a mount would show it.
        shape, dtype: of the pixels.
    """

    __slots__ = ("_camera", "_frame")

    def __init__(self, camera: Camera, frame: int) -> None:
        self._camera, self._frame = camera, frame

    def _pixels(self) -> NDArray[Any]:
        if self._camera.array is None:
            return _decoded(self._camera, self._frame)
        return self._camera.array[self._frame]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        pixels = self._pixels()
        return pixels if dtype is None else pixels.astype(dtype, copy=False)

    def __getitem__(self, key: Any) -> Any:
        if self._camera.array is None:
            return self._pixels()[key]
        return self._camera.array[(self._frame, *(key if isinstance(key, tuple) else (key,)))]

    def __dlpack__(self, **options: Any) -> Any:
        return self._pixels().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the pixels."""
        array = self._camera.array
        return self._pixels().shape if array is None else array.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pixels."""
        array = self._camera.array
        return self._pixels().dtype if array is None else array.dtype

    @property
    def path(self) -> str:
        """The path of its file, as a mount would show it."""
        return f"{self._camera.path}/{self._camera._file(self._frame).name}"

    @property
    def bytes(self) -> bytes:
        """The picture as a file."""
        node = self._camera._file(self._frame)
        return node.read(0, node.size)

    def __repr__(self) -> str:
        return f"<shardfs.Picture {self._frame} of {self._camera.path}>"


def _decoded(camera: Camera, frame: int) -> NDArray[Any]:
    """Returns the pixels of a single picture, of shape (height, width, channels)."""
    node = camera._file(frame)
    path = f"{camera.path}/{node.name}"
    data, suffix = node.read(0, node.size), node.name.rpartition(".")[2]
    if suffix == "npy":
        return np.load(io.BytesIO(data))
    if suffix == "bin":
        raise NotAnArray("a picture of which nothing is known but its bytes", container=path)
    try:
        from PIL import Image
    except ImportError:
        reason = "pictures that are not of one size are decoded by Pillow, which is not installed; see .bytes"
        raise NotAnArray(reason, container=path) from None
    try:
        with Image.open(io.BytesIO(data)) as picture:
            pixels = np.asarray(_in_colours(picture))
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        reason = f"picture {frame} does not decode: {error}"
        raise DamagedBlock(reason, container=camera._container.file.path, path=node.inside) from None
    return pixels if pixels.ndim == 3 else pixels[..., None]


def _in_colours(picture: Any) -> Any:
    """Returns a picture of Pillow with colours instead of numbers of a palette, and grey instead of bits."""
    if picture.mode in ("P", "PA"):
        return picture.convert("RGBA" if picture.mode == "PA" or "transparency" in picture.info else "RGB")
    return picture.convert("L") if picture.mode == "1" else picture


class Camera(Sequence[Picture]):
    """The pictures of a camera in the order of frames.

    `camera[7]` is a `Picture`. `camera[10:20]` and `camera[[5, 1]]` are numpy arrays of pixels, of shape (n, height,
    width, channels); no other frames are decoded. If pictures are missing or differ in size, only single ones can be
    read, and Pillow decodes them.

    Attributes:
        array: all pictures as one `Array`, or None if some are missing or they differ in size.
    """

    def __init__(self, container: Group, folder: str, array: Array | None, frames: int) -> None:
        self._container, self._folder, self._array, self._frames = container, folder, array, frames
        self._width = max(3, len(str(max(frames - 1, 0))))

    @property
    def array(self) -> Array | None:
        """All pictures as one `Array`, or None."""
        return self._array

    @property
    def path(self) -> str:
        """The folder of the pictures, as a mount would show it."""
        return f"{self._container.path}/{self._folder}"

    def _stack(self) -> Array:
        if self._array is None:
            raise NotAnArray("pictures that are not all there, or not of one size: see .bytes", container=self.path)
        return self._array

    def _file(self, frame: int) -> Node:
        for suffix in _SUFFIXES:
            try:
                return self._container._get(f"{self._folder}/{frame:0{self._width}}{suffix}")
            except NotFound:
                pass
        raise NotFound(f"there is no picture of frame {frame}", container=self.path)

    def _has_all(self) -> bool:
        """Returns whether each frame has a picture."""
        if self._array is not None:
            return True
        names = (node.name for node in self._container._get(self._folder).children())
        return sum(name.partition(".")[0].isdigit() for name in names) >= self._frames

    def __len__(self) -> int:
        return self._frames

    @overload  # type: ignore[override]
    def __getitem__(self, frame: int) -> Picture: ...
    @overload
    def __getitem__(self, frame: slice | list[int] | NDArray[Any]) -> NDArray[Any]: ...

    def __getitem__(self, frame: Any) -> Any:
        if isinstance(frame, (int, np.integer)):
            if not -self._frames <= frame < self._frames:
                raise IndexError(f"frame {frame} of {self._frames}")
            return Picture(self, int(frame) % self._frames)
        return self._stack()[frame]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        return self._stack().__array__(dtype, copy)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the pixels of all pictures."""
        return self._stack().shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pixels."""
        return self._stack().dtype

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._container, self._folder, self._array, self._frames)

    def __repr__(self) -> str:
        return f"<shardfs.Camera {self.path}: {self._frames} frames>"


class Cameras(Mapping[str, Camera]):
    """Cameras by name: the path of their folder, or the stored name."""

    def __init__(self, names: list[str], make: Callable[[str], Camera]) -> None:
        self._names, self._make = names, make

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Camera:
        if name in self._names:
            return self._make(name)
        for known in self._names:
            if "/".join(map(stored, known.split("/"))) == name:
                return self._make(known)
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"<shardfs.Cameras {list(self._names)}>"
