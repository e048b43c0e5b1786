"""Kernels that users write: the tile language, with Triton's surface, compiled for the CPU.

    import flambeau.tile as tl

    @tl.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)

    add[lambda meta: (tl.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)

`flambeau.tile` is torch.tile, the function; importing this package leaves it that function, and gives it the language's names as attributes.
"""

from __future__ import annotations

import sys
from typing import Any

import flambeau
from flambeau.tile import language, types
from flambeau.tile import mathematics as math
from flambeau.tile import testing as testing
from flambeau.tile.descriptors import TensorDescriptor
from flambeau.tile.errors import CompilationError, CompileTimeAssertionFailure, OutOfResources
from flambeau.tile.functions import JITFunction, jit
from flambeau.tile.tuning import Autotuner, Config, autotune, heuristics
from flambeau.tile.values import constexpr, tensor

# Names of the language that are names of Python's or of torch's dtypes here.
_DTYPES = {("float8e5" if d is types.float8e5 else k): d for k, d in vars(types).items() if isinstance(d, types.dtype)}


def next_power_of_2(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << (n - 1).bit_length() if n > 0 else 0 if n == 0 else 1


def cdiv(x: Any, y: Any) -> Any:
    """The quotient, rounded up."""
    return language.cdiv(x, y)


_HOMES = ("flambeau.tile", "torch.tile")  # the second where flambeau is torch
_RANDOM = ("philox", "rand", "rand4x", "randint", "randint4x", "randn", "randn4x", "uint_to_uniform_float", "pair_uniform_to_normal")
_DESCRIPTORS = ("make_tensor_descriptor", "make_block_ptr", "advance", "tensor_descriptor")


def names() -> dict[str, Any]:
    """The names of the language (`tl.load`)."""
    from flambeau.tile import descriptors, random

    own: dict[str, Any] = {}
    for module, only in ((language, None), (random, _RANDOM), (descriptors, _DESCRIPTORS)):
        for n, v in vars(module).items():
            if not n.startswith("_") and getattr(v, "__module__", "").startswith(_HOMES) and (only is None or n in only):
                own[n] = v
    return {**own, **_DTYPES, "math": math, "tensor": tensor, "constexpr": constexpr, "dtype": types.dtype, "to_tensor": language.to_tensor_}


_own = {
    "jit": jit, "JITFunction": JITFunction, "next_power_of_2": next_power_of_2, "CompilationError": CompilationError, "language": language,
    "autotune": autotune, "heuristics": heuristics, "Config": Config, "testing": testing, "TensorDescriptor": TensorDescriptor,
    "CompileTimeAssertionFailure": CompileTimeAssertionFailure, "OutOfResources": OutOfResources,
}  # fmt: skip
for _name, _value in {**names(), **_own}.items():
    globals()[_name] = _value


def _behind(function: Any) -> None:
    """Let the function torch.tile stand for this package, so that both meanings of the name hold."""
    module = sys.modules[__name__]
    for name, value in vars(module).items():
        if not name.startswith("__") or name in ("__path__", "__spec__", "__file__", "__package__"):
            setattr(function, name, value)
    sys.modules[__name__] = function


if callable(vars(flambeau).get("tile")):
    _behind(vars(flambeau)["tile"])
