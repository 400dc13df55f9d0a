"""numpy's types of elements."""

from __future__ import annotations

import ast
import functools
from typing import Any

import numpy as np

#: Types that numpy lacks, by their short names: what ml_dtypes calls them.
_ML_DTYPES = {"bf16": "bfloat16", "f8_e4m3fn": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
              "f8_e8m0fnu": "float8_e8m0fnu", "f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz"}


@functools.lru_cache(256)
def of_name(name: str, descr: str) -> tuple[np.dtype[Any], str]:
    """Returns numpy's dtype of an element type, and the type string that memory is shown with."""
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
            return np.dtype(getattr(ml_dtypes, _ML_DTYPES[name])), descr
        except (ImportError, AttributeError):
            pass
    if not descr.startswith("["):
        return np.dtype(descr), descr
    record = np.lib.format.descr_to_dtype(ast.literal_eval(descr))
    return record, f"|V{record.itemsize}"


def with_names(dtype: np.dtype[Any], names: dict[str, Any]) -> np.dtype[Any]:
    """Returns a dtype with the names of an enumeration in its metadata, where `h5py.check_enum_dtype` finds them. Those of
    a record are by its fields."""
    if any(isinstance(value, int) for value in names.values()):
        # Records may have fields of arrays; their elements have the names.
        base, shape = dtype.subdtype or (dtype, ())
        return np.dtype((np.dtype(base, metadata={"enum": names}), shape)) if shape else np.dtype(base, metadata={"enum": names})
    if dtype.names is None or dtype.fields is None:
        return dtype
    fields = [dtype.fields[name] for name in dtype.names]
    kinds = [with_names(field[0], names[name]) if isinstance(names.get(name), dict) else field[0]
             for name, field in zip(dtype.names, fields)]
    return np.dtype({"names": list(dtype.names), "formats": kinds, "offsets": [field[1] for field in fields],
                     "itemsize": dtype.itemsize})
