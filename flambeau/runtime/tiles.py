"""The processor's matrix unit (AMX): which dtypes it multiplies, once the system lets this process use its registers.

Linux hands out the 8 KiB of tile registers on request only (Documentation/arch/x86/xstate.rst): arch_prctl with
ARCH_REQ_XCOMP_PERM. The permission holds for all threads and for children.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache
from typing import Final

from flambeau.runtime import target

# The system call by which a process asks for the registers: arch_prctl's number on x86-64, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA.
PERMISSION: Final = (158, 0x1023, 18)
_FEATURES: Final = {"amx-bf16": ("bfloat16",), "amx-fp16": ("float16",), "amx-int8": ("int8", "uint8", "bool")}


@cache
def dtypes() -> frozenset[str]:
    """Names of the dtypes whose products the matrix unit can do; empty where there is none or it may not be used (FLAMBEAU_MATRIX_UNIT=0)."""
    if os.environ.get("FLAMBEAU_MATRIX_UNIT") == "0":
        return frozenset()
    if platform.system() != "Linux" or platform.machine() != "x86_64" or target.vector_bits() < 512:
        return frozenset()
    from llvmlite import binding  # knows features that /proc/cpuinfo does not name

    features = binding.get_host_cpu_features()
    found = frozenset(name for feature, names in _FEATURES.items() if features.get(feature) for name in names)
    if not found or not features.get("amx-tile") or not features.get("avx512bf16"):
        return frozenset()
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    refused = call(*[ctypes.c_long(word) for word in PERMISSION])
    return frozenset() if refused else found
