"""torch.utils.data._utils.collate."""

import re

from flambeau.utils.data.collate import (
    collate,
    collate_float_fn,
    collate_int_fn,
    collate_numpy_array_fn,
    collate_numpy_scalar_fn,
    collate_str_fn,
    collate_tensor_fn,
    default_collate,
    default_collate_fn_map,
    default_convert,
)  # fmt: skip

np_str_obj_array_pattern = re.compile(r"[SaUO]")  # codes of NumPy's dtypes that are no numbers

__all__ = [
    "collate", "collate_float_fn", "collate_int_fn", "collate_numpy_array_fn", "collate_numpy_scalar_fn", "collate_str_fn", "collate_tensor_fn",
    "default_collate", "default_collate_fn_map", "default_convert",
]  # fmt: skip
