"""PyTorch checkpoints, as `torch.save` writes them since 1.6 (docs/formats/pt.md)."""

import math
import struct

import numpy as np

from .zip import archive

CLASSES = {"<f8": "Double", "<f4": "Float", "<f2": "Half", "<i8": "Long", "<i4": "Int", "|u1": "Byte", "|b1": "Bool"}


class View:
    """A tensor by its strides, in elements, in the storage of an array."""

    def __init__(self, array, shape, strides, offset=0):
        self.array, self.shape, self.strides, self.offset = array, shape, strides, offset


class WithAttributes:
    """A tensor with attributes: a parameter, or one of a class of its own."""

    def __init__(self, array, attributes, is_parameter=False):
        self.array, self.attributes, self.is_parameter = array, attributes, is_parameter


def checkpoint(value, root="checkpoint"):
    """A file of nested dicts, lists, numbers, texts, and arrays. One array is one storage, however often it is used."""
    storages = []
    members = {f"{root}/data.pkl": b"\x80\2" + dumps(value, storages) + b".", f"{root}/byteorder": b"little"}
    members |= {f"{root}/data/{key}": array.tobytes() for key, array in enumerate(storages)}
    return archive(members | {f"{root}/version": b"3\n"}, align=64)


def dumps(value, storages):
    """Instructions that put a value on the stack, and its storages."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"\x8a\x08" + struct.pack("<q", value)
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        case list() | tuple():
            begin, end = (b"](", b"e") if isinstance(value, list) else (b"(", b"t")
            return begin + b"".join(dumps(each, storages) for each in value) + end
        case dict():
            return b"}(" + b"".join(dumps(each, storages) for pair in value.items() for each in pair) + b"u"
        case WithAttributes(is_parameter=True):
            return (b"ctorch._utils\n_rebuild_parameter_with_state\n(" + dumps(value.array, storages)
                    + b"\x88ccollections\nOrderedDict\n)R" + dumps(value.attributes, storages) + b"tR")
        case WithAttributes():
            return (b"ctorch._tensor\n_rebuild_from_type_v2\n(" + REBUILD + b"cmy_module\nMyTensor\n"
                    + arguments(whole(value.array), storages) + dumps(value.attributes, storages) + b"tR")
        case np.ndarray():
            return dumps(whole(value), storages)
    return REBUILD + arguments(value, storages) + b"R"


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"


def whole(array):
    return View(array, array.shape, [math.prod(array.shape[axis + 1:]) for axis in range(array.ndim)])


def arguments(value, storages):
    """The arguments of the function that makes a tensor."""
    key = next((key for key, array in enumerate(storages) if array is value.array), len(storages))
    if key == len(storages):
        storages.append(value.array)
    name = f"ctorch\n{CLASSES[value.array.dtype.str]}Storage\n".encode()
    storage = (b"(" + dumps("storage", storages) + name + dumps(str(key), storages) + dumps("cpu", storages)
               + dumps(value.array.size, storages) + b"tQ")
    view = [value.offset, tuple(value.shape), tuple(value.strides), False]
    return b"(" + storage + b"".join(dumps(each, storages) for each in view) + b"ccollections\nOrderedDict\n)Rt"
