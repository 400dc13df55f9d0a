"""Containers of arrays as Python objects, without a mount. `shardfs.formats()` lists the formats.

    import numpy as np
    import shardfs

    ep = shardfs.open("data/ep_001.wshard")    # a container; also a folder
    list(ep)                                   # names of its arrays: 'signal/joint_pos', ...
    ep["signal"]                               # shardfs.Group: a mapping of what is in it
    a = ep["signal/joint_pos"]                 # shardfs.Array: .dtype .shape .nbytes .codec, nothing decoded yet
    a[10:20]                                   # decodes only the blocks that are touched
    np.asarray(a)                              # the whole array
    ep.meta["episode"]                         # meta/episode.json, parsed
    ep.open("signal/joint_pos.npy")            # any path that a mount shows, as a seekable binary file

    kdb = shardfs.open("data/demo.kdb")
    kdb.episodes[3].images["front"][7]         # one picture: an array, or the stored JPEG as .bytes

    with shardfs.open("data/robot.h5") as f:   # as h5py.File: docs/PYTHON.md has both side by side
        f["data/demo_0/actions"][:, 0]
        f["data/demo_0"].attrs["num_samples"]

    drive = shardfs.open("data/drive.mcap")
    drive.topics["/camera/image"].images[7]    # a picture of a topic; .time, .messages, ["header.stamp"]

    for found in shardfs.walk("data/"):        # every container below a folder
        print(found.path, found.format, len(found.items))

    shardfs.read_many([ep["signal/joint_pos"], (ep, "action/ctrl")])   # on all cores

Everything is read-only, may be used by many threads, pickles by name, and works in processes that were forked or
spawned. The same tree is an fsspec filesystem: `fsspec.open("shardfs://data/ep_001.wshard/signal/joint_pos.npy")`.
"""

from ._array import Array, read_many
from ._attributes import Attributes
from ._container import Container, Episode, Episodes, Folder, Format, Found, formats, open, walk
from ._core import __version__
from ._dataset import Dataset
from ._errors import Changed, DamagedBlock, Error, NotAContainer, NotAnArray, NotFound
from ._group import Group, HardLink, SoftLink, Tables
from ._null import Empty, Null
from ._pictures import Camera, Cameras, Picture
from ._process import cache_usage, set_cache_size
from ._rows import Rows
from ._topics import Messages, Topic, Topics

__all__ = [
    "Array", "Attributes", "Camera", "Cameras", "Changed", "Container", "DamagedBlock", "Dataset", "Empty",
    "Episode", "Episodes", "Error", "Folder", "Format", "Found", "Group", "HardLink", "Messages", "NotAContainer",
    "NotAnArray", "NotFound", "Null", "Picture", "Rows", "SoftLink", "Tables", "Topic", "Topics", "__version__",
    "cache_usage", "formats", "open", "read_many", "set_cache_size", "walk",
]
