"""torch.utils.cpp_extension: extensions in C++ and CUDA, which flambeau cannot load: it has no C++ interface."""

from __future__ import annotations

from typing import Any, NoReturn

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"torch.utils.cpp_extension.{name}: flambeau cannot load extensions written in C++ or CUDA for PyTorch; write the operation with "
        "tensor functions (they are fused and compiled), or as a torch.autograd.Function"
    )


def load(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("load")


def load_inline(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("load_inline")


def CppExtension(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("CppExtension")


def CUDAExtension(*args: Any, **kwargs: Any) -> NoReturn:
    """Refused."""
    _refuse("CUDAExtension")


class BuildExtension:
    """Refused."""

    def __new__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse("BuildExtension")

    @classmethod
    def with_options(cls, **options: Any) -> NoReturn:
        """Refused."""
        _refuse("BuildExtension")
