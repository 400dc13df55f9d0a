"""TFRecord files of `tf.train.Example`, and data sets of TFDS, byte for byte the same each time (`docs/formats/rlds.md`)."""

import json
import struct

import numpy as np

_TABLE = []
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = _crc >> 1 ^ (0x82F63B78 if _crc & 1 else 0)
    _TABLE.append(_crc)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def records(*data):
    """A file of records."""
    out = b""
    for one in data:
        length = struct.pack("<Q", len(one))
        out += length + _masked(length) + one + _masked(one)
    return out


def _varint(number):
    out = bytearray()
    number &= (1 << 64) - 1
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _feature(values):
    if isinstance(values, (bytes, str)):
        values = [values]
    if isinstance(values, list) and all(isinstance(value, (bytes, str)) for value in values):
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        return _field(1, b"".join(_field(1, text) for text in texts))
    values = np.asarray(values).ravel()
    if values.dtype.kind == "f":
        return _field(2, _field(1, values.astype("<f4").tobytes()))
    return _field(3, _field(1, b"".join(_varint(int(value)) for value in values)))


def example(features):
    """One Example: numbers as arrays, bytes and texts alone or in lists."""
    entries = (_field(1, _field(1, key.encode()) + _field(2, _feature(values))) for key, values in sorted(features.items()))
    return _field(1, b"".join(entries))


def tensor(dtype, *shape):
    return {"pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
            "tensor": {"dtype": dtype, "encoding": "none", "shape": {"dimensions": [str(side) for side in shape]} if shape else {}}}


def image(height, width, encoding):
    return {"pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
            "image": {"dtype": "uint8", "encodingFormat": encoding,
                      "shape": {"dimensions": [str(height), str(width), "3"]}}}


TEXT = {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}}


def dictionary(features):
    return {"pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
            "featuresDict": {"features": features}}


def steps(features):
    return {"pythonClassName": "tensorflow_datasets.core.features.dataset_feature.Dataset",
            "sequence": {"feature": dictionary(features), "length": "-1"}}


def write_set(folder, name, version, features, splits):
    """A data set: `splits` has the records of each shard of each split."""
    folder.mkdir(parents=True, exist_ok=True)
    described = []
    for split, shards in splits.items():
        for number, shard in enumerate(shards):
            path = folder / f"{name}-{split}.tfrecord-{number:05}-of-{len(shards):05}"
            path.write_bytes(records(*shard))
        described.append({"name": split, "shardLengths": [str(len(shard)) for shard in shards],
                          "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"})
    info = {"name": name, "version": version, "fileFormat": "tfrecord", "splits": described}
    (folder / "dataset_info.json").write_text(json.dumps(info, indent=2) + "\n")
    (folder / "features.json").write_text(json.dumps(dictionary(features), indent=2) + "\n")
