"""Zarr stores of version 3 (docs/formats/zarr.md), as files by key, without compression."""

import json
import struct

import crc32c
import numpy as np

NAMES = {"f4": "float32", "f8": "float64", "i4": "int32", "u2": "uint16", "u1": "uint8"}


def group(**attributes):
    """The document of a group."""
    return {"zarr.json": _document({"zarr_format": 3, "node_type": "group", "attributes": attributes})}


def array(values, chunk, *, shard=None, fill=0, names=None, **attributes):
    """An array of numbers, or of texts if it has none, with a checksum behind each chunk. Chunks of fill values alone are
    not stored."""
    values = np.asarray(values)
    is_text = values.dtype.kind in "OU"
    first = {"name": "vlen-utf8"} if is_text else {"name": "bytes", "configuration": {"endian": "little"}}
    codecs = [first, {"name": "crc32c"}]
    whole = shard or chunk
    if shard:
        codecs = [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": list(chunk), "codecs": codecs, "index_location": "end",
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]}}]
    document = {
        "zarr_format": 3, "node_type": "array", "shape": list(values.shape),
        "data_type": "string" if is_text else NAMES[values.dtype.str[1:]],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(whole)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill, "codecs": codecs, "attributes": attributes}
    if names:
        document["dimension_names"] = names
    files = {"zarr.json": _document(document)}
    for place in np.ndindex(*_counts(values.shape, whole)):
        part = _chunk(values, place, whole, fill)
        stored = _shard(part, chunk, fill) if shard else _encode(part)
        if stored and (part != fill).any():
            files["/".join(["c", *map(str, place)])] = stored
    return files


def store(nodes):
    """All files of a store, of its nodes by path."""
    return {f"{path}/{key}" if path else key: data for path, files in nodes.items() for key, data in files.items()}


def _document(value):
    return json.dumps(value, indent=1).encode()


def _counts(shape, chunk):
    return [-(-size // own) for size, own in zip(shape, chunk)]


def _chunk(values, place, chunk, fill):
    out = np.full(chunk, fill, values.dtype)
    part = values[tuple(slice(at * size, (at + 1) * size) for at, size in zip(place, chunk))]
    out[tuple(slice(0, size) for size in part.shape)] = part
    return out


def _encode(part):
    if part.dtype.kind in "OU":
        texts = [str(text).encode() for text in part.reshape(-1)]
        data = struct.pack("<I", len(texts)) + b"".join(struct.pack("<I", len(text)) + text for text in texts)
    else:
        data = np.ascontiguousarray(part).tobytes()
    return data + struct.pack("<I", crc32c.crc32c(data))


def _shard(part, chunk, fill):
    data, index = b"", b""
    for place in np.ndindex(*_counts(part.shape, chunk)):
        inner = _chunk(part, place, chunk, fill)
        stored = _encode(inner) if (inner != fill).any() else None
        index += struct.pack("<QQ", len(data), len(stored)) if stored else b"\xff" * 16
        data += stored or b""
    return data + index + struct.pack("<I", crc32c.crc32c(index))


def tszip(arrays):
    """The files of a tszip archive (docs/formats/tszip.md) that the keys of a tree sequence make, without compression."""
    tables = ("nodes", "edges", "sites", "mutations", "migrations", "individuals", "populations", "provenances")
    places = ("edges/left", "edges/right", "migrations/left", "migrations/right", "sites/position")
    coordinates = np.unique(np.concatenate([arrays[key] for key in places if key in arrays]))
    files = {".zgroup": _document({"zarr_format": 2}), ".zattrs": _document({
        "format_name": "tszip", "format_version": [1, 0], "sequence_length": float(arrays["sequence_length"][0])})}
    for name in (*tables, "indexes", "reference_sequence"):
        files[f"{name}/.zgroup"] = _document({"zarr_format": 2})
    files |= _version_2("coordinates", coordinates)
    for key, values in arrays.items():
        # Empty schemas are left out.
        if key.startswith("format/") or key in ("sequence_length", "uuid") or not len(values) and key.endswith("schema"):
            continue
        if key in places:
            values = np.searchsorted(coordinates, values)
        if values.dtype.kind in "iu" and values.dtype.itemsize > 1:
            small = [dtype for dtype in ("i1", "u1", "<i2", "<u2", "<i4", "<u4") if (values.astype(dtype) == values).all()]
            values = values.astype(small[0])
        files |= _version_2(key, values)
    return files


def _version_2(name, values):
    size = max(1, len(values))
    document = {"zarr_format": 2, "shape": [len(values)], "chunks": [size], "dtype": values.dtype.str, "fill_value": 0,
                "order": "C", "compressor": None, "filters": None}
    return {f"{name}/.zarray": _document(document)} | ({f"{name}/0": values.tobytes()} if len(values) else {})
