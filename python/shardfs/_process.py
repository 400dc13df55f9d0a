"""State of the process: a cache with a budget, and the open folders and addresses.

After a fork the child begins with empty state, because its parent's locks may be held by threads that the child does
not have. Objects know their place by name (source, path, state), and look it up again when `generation` has changed.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Literal

from . import _core, _errors

#: What users name: a path, or an address.
Source = str | bytes | os.PathLike[Any]
#: Which symbolic links below a source are followed.
Links = Literal["no", "inside", "outside"]
#: What paths count from: '/' for this machine, or an address; or one of them or a folder, the formats and the links.
Where = str | tuple[str, str | None, Links]

#: Changes after a fork and after `set_cache_size`; what was opened before is then opened again.
generation = 0

_size: int | None = None
_cache: _core.Cache | None = None
_volumes: dict[Where, _core.Volume] = {}
_lock = threading.Lock()
#: When files that are gone were last closed.
_swept = 0.0
#: Most folders and addresses that are kept open. The least recently used are closed first.
_KEPT = 32


def _forked() -> None:
    global generation, _cache, _volumes, _lock
    generation += 1
    # The native objects dropped here are not freed: they belong to the parent.
    _cache, _volumes, _lock = None, {}, threading.Lock()


os.register_at_fork(before=_core.before_fork, after_in_parent=_core.forked, after_in_child=_forked)


#: What a process that decodes videos runs: this package's module and nothing else. Its arguments are the module's file
#: and the codec.
_DECODER = """
import sys, importlib.util
spec = importlib.util.spec_from_file_location("_core", sys.argv[1])
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
sys.exit(core.run_decoder(sys.argv[2]))
"""
if sys.executable:
    _core.set_decoder(
        sys.executable, ["-I", "-S", "-c", _DECODER, _core.__file__], ["LD_LIBRARY_PATH", "PYTHONHOME"]
    )


def set_cache_size(size: int | None) -> None:
    """Sets the budget of this process's cache of decoded blocks, in bytes; None for the default.

    The default is an eighth of the machine's memory, between 64 MiB and 4 GiB. The cache begins empty. Memory of arrays
    that were read belongs to them and does not count. Worker processes have a cache of their own. In a spawned worker
    it has the default size until the worker calls this; in a forked one it has the size that its parent had set.
    """
    global generation, _size, _cache, _volumes
    if size is not None and (not isinstance(size, int) or not 0 <= size < 1 << 63):
        raise ValueError(f"a cache of {size!r} bytes")
    with _lock:
        _size = size
        _cache, _volumes = None, {}
        generation += 1


def cache_usage() -> tuple[int, int]:
    """Returns the budget of this process's cache and how much of it is in use, in bytes: `(budget, used)`."""
    with _lock:
        return _shared_cache().usage()


def _shared_cache() -> _core.Cache:
    global _cache
    if _cache is None:
        _cache = _core.Cache(_size)
    return _cache


def node(source: Where, path: str, anew: bool = False) -> _core.Node:
    """Returns the node at a path of a source.

    With `anew`, containers that are folders are checked for changes first, as files always are. Otherwise a change that
    is less than 250 ms old may not be seen.
    """
    address, formats, links = parts(source)
    with _lock:
        volume = _volumes.pop(source, None)
        if volume is not None:
            _volumes[source] = volume
        cache = _shared_cache()
    if volume is None or not volume.is_for(path):
        # Outside of the lock, because a server may be slow.
        volume = _core.Volume(address, cache, formats, path, links)
        with _lock:
            _volumes[source] = volume
            while len(_volumes) > _KEPT:
                del _volumes[next(iter(_volumes))]
    found = volume.get(path, anew)
    sweep()
    return found


def sweep() -> None:
    """Closes files that are gone or were replaced, so that their space is given back; once a second at most."""
    global _swept
    now = time.monotonic()
    if now - _swept < 1:
        return
    _swept = now
    with _lock:
        volumes = list(_volumes.values())
    for volume in volumes:
        volume.sweep()


def parts(source: Where) -> tuple[str, str | None, Links]:
    """Returns what a source consists of: where it is, the formats, and which links are followed."""
    return source if isinstance(source, tuple) else (source, None, "no")


def split(source: Source, formats: str | Iterable[str] | None = None, follow_links: Links = "no") -> tuple[Where, str]:
    """Returns a user's source and choices as `node` takes them: `(source, path)`."""
    if follow_links not in ("no", "inside", "outside"):
        raise ValueError(f"follow_links={follow_links!r}: 'no', 'inside' or 'outside'")
    source = os.fsdecode(source)
    formats = formats if formats is None or isinstance(formats, str) else ",".join(formats)
    if "://" in source and not source.startswith("file://"):
        where, path = _of_address(source, formats)
    else:
        where, path = _of_machine(source.removeprefix("file://"), follow_links)
    return (where, path) if formats is None and follow_links == "no" else ((where, formats, follow_links), path)


def _of_address(source: str, formats: str | None) -> tuple[str, str]:
    scheme, _, place = source.rstrip("/").partition("://")
    if not place:
        # The core says what an address has to name.
        return source, ""
    if scheme == "hf":
        # A repository of the Hub has two parts, behind `datasets/` or `spaces/`. It may be a container itself.
        steps = place.split("/")
        most = 2 + (steps[0] in ("datasets", "spaces"))
        return f"hf://{'/'.join(steps[:most])}", "/".join(steps[most:])
    return _core.place(source, formats) or (source, "")


def inside(source: Where, path: str) -> tuple[Where, str] | None:
    """Returns the container that a place leads into whose address names more than there is: the nearest of its parents
    that is there, and the path in it. None if that is no container."""
    address, *choices = parts(source)
    above = _core.parent(address)
    # Of this machine, and of a whole store, all that is there was found already.
    if above is None:
        return None
    while True:
        # A slash at the end, before a query, would name a folder.
        address = address.replace("/?", "?", 1).rstrip("/")
        where: Where = (address, *choices) if isinstance(source, tuple) else address  # type: ignore[assignment]
        try:
            return (where, path) if node(where, "").is_container else None
        except (_errors.NotFound, NotADirectoryError, PermissionError):
            # Servers also refuse what is not there.
            if above is None:
                return None
        except OSError:
            return None
        address, path = above[0], f"{above[1]}/{path}"
        above = _core.parent(address)


def _of_machine(source: str, follow_links: Links) -> tuple[str, str]:
    # Links in the path are followed once, here, as open(2) would. Below the source none is followed.
    if follow_links == "no":
        real = _core.real_path(source)
        if real is None and any(len(os.fsencode(part)) > 255 for part in source.split("/")):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), source)
        return "/", (real or os.path.realpath(source))[1:]
    folder, inside = source, list[str]()
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
        inside[:0] = [name] if name else []
    folder = os.path.realpath(folder or ".")
    if follow_links == "outside":
        # A file that is a link keeps its name: what belongs to it lies beside the link.
        return "/", os.path.join(folder, *inside)[1:]
    if inside:
        folder, inside[0] = os.path.split(os.path.realpath(os.path.join(folder, inside[0])))
    return folder, "/".join(inside)


def shown(source: Where, path: str) -> str:
    """Returns a source and a path as one name for messages: a path of this machine, or an address."""
    address, *_ = parts(source)
    if address == "/":
        return "/" + path
    return "/".join(part for part in (_core.shown(address).rstrip("/"), path) if part)


def cores() -> int:
    """Returns how many threads can run at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
