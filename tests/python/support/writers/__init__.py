"""Writers of each format, from the format's description, with lies on demand."""

from . import idv, kdb, parquet, pt, tfrecord, zarr, zip
from .hdf5 import hdf5
from .kas import kast, kastore, ragged, text
from .models import gguf, safetensors
from .netcdf import netcdf
from .recordings import bag, mcap
from .shard import (channel, compress, dumps, meta_blocks, round_up, shard_entry, shard_header, tensor_v1,
                    write_manifest, write_shard)

__all__ = [
    "bag", "idv", "kdb", "mcap", "parquet", "pt", "tfrecord", "zarr", "zip",
    "kast", "kastore", "ragged", "text",
    "gguf", "hdf5", "netcdf", "safetensors",
    "channel", "compress", "dumps", "meta_blocks", "round_up", "shard_entry", "shard_header", "tensor_v1",
    "write_manifest", "write_shard",
]
