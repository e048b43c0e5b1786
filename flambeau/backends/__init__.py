"""torch.backends: the libraries that PyTorch may be built with. None is here: questions are answered, settings are kept.

Nothing that a script sets here changes a result: all kernels are flambeau's own, deterministic and of full precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
fp32_precision = "none"
_MODULES = frozenset("cusparselt kleidiai mha miopen nnpack opt_einsum quantized xeon xnnpack".split())


def disable_global_flags() -> None:
    """Accepted: settings can always be made in blocks (`flags`)."""


def flags_frozen() -> bool:
    """False: settings can always be made."""
    return False


@contextmanager
def _allow_nonbracketed_mutation() -> Iterator[None]:
    """A block in which settings may be made: they may be anywhere."""
    yield


@contextmanager
def flags(fp32_precision: str = "none") -> Iterator[None]:
    """A block with this setting: kept, and changes nothing."""
    import sys

    module: Any = sys.modules[__name__]
    before, module.fp32_precision = module.fp32_precision, fp32_precision
    try:
        yield
    finally:
        module.fp32_precision = before


globals()["__allow_nonbracketed_mutation"] = _allow_nonbracketed_mutation  # as PyTorch calls it, and packages with it


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"flambeau.backends.{name}")
    from flambeau.names import otherwise

    return otherwise("torch.backends", name, globals())
