"""The language under Triton's module names: what `import triton` gives where flambeau is torch (as_torch.py)."""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from flambeau.tile import descriptors, errors, functions, mathematics, names, testing, tuning
from flambeau.tile.values import constexpr, unwrap

VERSION: Final = "3.5.0"  # of Triton, whose names these are
_this: Any = sys.modules["flambeau.tile"]


class _Target(SimpleNamespace):
    """What Triton says of a device; the backend is "cpu"."""


class _Utilities:
    """What programs ask of a GPU to choose their grids; here a processor is what a multiprocessor is."""

    def get_device_properties(self, _: Any = None) -> dict[str, int]:
        from flambeau.runtime import threads

        return {"multiprocessor_count": threads.count(), "max_num_regs": 65536, "max_shared_mem": 1 << 20, "warpSize": 1, "sm_clock_rate": 0}


class _Driver:
    """`triton.runtime.driver.active`: the CPU."""

    utils = _Utilities()

    def get_active_torch_device(self) -> Any:
        import flambeau

        return flambeau.device("cpu")

    def get_current_target(self) -> _Target:
        return _Target(backend="cpu", arch="cpu", warp_size=1)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: Any = None) -> int:
        return 0

    def get_device_interface(self) -> Any:
        import flambeau

        return flambeau.cpu

    def get_benchmarker(self) -> Any:
        return testing.do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        import flambeau

        return flambeau.empty(1)

    def clear_cache(self, _: Any) -> None:
        """Nothing is kept."""


def _get_int_dtype(bitwidth: Any, signed: Any) -> Any:
    """The integer dtype of so many bits; ValueError where there is none."""
    bits, sign = unwrap(bitwidth), unwrap(signed)
    name = "int1" if bits == 1 else f"{'int' if sign else 'uint'}{bits}"
    if name not in names():
        raise ValueError(f"get_int_dtype: there is no {'signed' if sign else 'unsigned'} integer of {bits} bits")
    return names()[name]


def _log2(i: Any) -> constexpr:
    """The exponent of a power of two."""
    return constexpr(unwrap(i).bit_length() - 1)


def _module(name: str, content: dict[str, Any], package: bool = True) -> ModuleType:
    made = ModuleType(name, "The tile language of flambeau, under Triton's name.")
    vars(made).update(content)
    if package:
        made.__path__ = []
    return made


@cache
def modules() -> dict[str, ModuleType]:
    """All modules, by name."""
    active = _Driver()
    driver = SimpleNamespace(active=active, set_active_to_cpu=lambda: None, set_active=lambda _: None, reset_active=lambda: None)
    math = {n: v for n, v in vars(mathematics).items() if callable(v) and not n.startswith("_")}
    libdevice = {**math, **{f"{n}f": v for n, v in math.items()}}
    found = {
        "triton.language.math": math,
        "triton.language.extra.libdevice": libdevice,
        "triton.language.extra.cuda.libdevice": libdevice,
        "triton.language.extra.cuda": {},
        "triton.language.extra": {},
        "triton.language.core": {**names(), "CONSTEXPR_0": constexpr(0), "get_int_dtype": _get_int_dtype},
        "triton.language.standard": {**names(), "_log2": _log2},
        "triton.language": {**names(), "extra": None, "target_info": None},
        "triton.testing": {n: v for n, v in vars(testing).items() if not n.startswith("_")},
        "triton.runtime.driver": vars(driver),
        "triton.runtime.jit": {"JITFunction": functions.JITFunction, "jit": functions.jit},
        "triton.runtime.autotuner": {"Autotuner": tuning.Autotuner, "Config": tuning.Config, "autotune": tuning.autotune, "heuristics": tuning.heuristics},
        "triton.runtime": {"JITFunction": functions.JITFunction, "Autotuner": tuning.Autotuner, "Config": tuning.Config, "driver": driver},
        "triton.compiler.errors": {n: v for n, v in vars(errors).items() if isinstance(v, type)},
        "triton.compiler": {"CompilationError": errors.CompilationError},
        "triton.tools.tensor_descriptor": {"TensorDescriptor": descriptors.TensorDescriptor},
        "triton.tools": {},
        "triton.errors": {"TritonError": Exception, "OutOfResources": errors.OutOfResources},
        "triton": {
            "jit": functions.jit, "JITFunction": functions.JITFunction, "autotune": tuning.autotune, "heuristics": tuning.heuristics,
            "Config": tuning.Config, "cdiv": _this.cdiv, "next_power_of_2": _this.next_power_of_2, "constexpr_function": lambda f: f,
            "set_allocator": lambda allocator: None, "CompilationError": errors.CompilationError, "OutOfResources": errors.OutOfResources,
            "__version__": VERSION, "TritonError": Exception, "must_use_result": lambda f: f,
        },
    }  # fmt: skip
    made = {name: _module(name, content) for name, content in found.items()}
    for name, module in made.items():
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(made[parent], last, module)
    return made
