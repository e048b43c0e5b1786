"""torch.backends: the libraries that PyTorch may be built with. None is here: questions are answered, settings are kept.

Nothing that a script sets here changes a result: all kernels are flambeau's own, deterministic and of full precision.
"""

from __future__ import annotations

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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        import importlib

        return importlib.import_module(f"flambeau.backends.{name}")
    raise AttributeError(f"module 'torch.backends' has no attribute {name!r}")
