"""torch.backends.cuda: CUDA's libraries, which are not here. The choice of an attention kernel is accepted: there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.backends.settings import Settings

matmul = Settings(
    "torch.backends.cuda.matmul", allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False, fp32_precision="none",
)  # fmt: skip
cuBLASModule = type(matmul)
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
_libraries = {"linalg": "default", "blas": "default", "rocm_fa": "default"}
_allowed = [False]


def is_built() -> bool:
    """False."""
    return False


def flash_sdp_enabled() -> bool:
    """What enable_flash_sdp said."""
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Accepted."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """What enable_mem_efficient_sdp said."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Accepted."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """What enable_math_sdp said."""
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Accepted."""
    _attention["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    """What enable_cudnn_sdp said."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Accepted."""
    _attention["cudnn"] = enabled


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Accepted."""
    _allowed[0] = enabled


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What allow_fp16_bf16_reduction_math_sdp said."""
    return _allowed[0]


def is_flash_attention_available() -> bool:
    """False: there is no CUDA."""
    return False


def is_ck_sdpa_available() -> bool:
    """False: there is no ROCm."""
    return False


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


def can_use_efficient_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


def can_use_cudnn_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


class SDPAParams:
    """The arguments of an attention, as the questions above take them."""

    def __init__(self, query: Any, key: Any, value: Any, attn_mask: Any, dropout: float, is_causal: bool, enable_gqa: bool) -> None:
        self.query, self.key, self.value, self.attn_mask = query, key, value, attn_mask
        self.dropout, self.is_causal, self.enable_gqa = dropout, is_causal, enable_gqa


@contextmanager
def sdp_kernel(enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True, enable_cudnn: bool = True) -> Iterator[None]:
    """A block with other choices of an attention kernel. Accepted: there is one."""
    before = dict(_attention)
    _attention.update(flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn)
    try:
        yield
    finally:
        _attention.update(before)


def _preferred(kind: str, backend: Any) -> str:
    if backend is not None:
        _libraries[kind] = str(backend)
    return _libraries[kind]


def preferred_linalg_library(backend: str | None = None) -> str:
    """Accepted and remembered; decompositions are LAPACK's, through NumPy."""
    return _preferred("linalg", backend)


def preferred_blas_library(backend: str | None = None) -> str:
    """Accepted and remembered; products are flambeau's own."""
    return _preferred("blas", backend)


def preferred_rocm_fa_library(backend: str | None = None) -> str:
    """Accepted and remembered."""
    return _preferred("rocm_fa", backend)


def cublas_workspace_size(size: int | None = None) -> int:
    """0: there is no cuBLAS."""
    return 0


def cublaslt_workspace_size(size: int | None = None) -> int:
    """0: there is no cuBLASLt."""
    return 0


def blas_workspace_size(size: int | None = None, backend: str | None = None) -> int:
    """0: there is no cuBLAS."""
    return 0


class cuFFTPlanCacheAttrContextProp:
    """A property of a plan cache: reading and setting are refused, as there is no CUDA."""

    def __init__(self, getter: Any, setter: Any) -> None:
        self.getter, self.setter = getter, setter

    def __get__(self, obj: Any, objtype: Any) -> Any:
        return self.getter(obj.device_index)

    def __set__(self, obj: Any, val: Any) -> None:
        self.setter(obj.device_index, val)


def _refuse(*_: Any) -> Any:
    raise AssertionError("Torch not compiled with CUDA enabled: there is no cuFFT")


class cuFFTPlanCache:
    """The plans of one device."""

    size = cuFFTPlanCacheAttrContextProp(_refuse, _refuse)
    max_size = cuFFTPlanCacheAttrContextProp(_refuse, _refuse)

    def __init__(self, device_index: int) -> None:
        self.device_index = device_index

    def clear(self) -> None:
        """Refused."""
        _refuse()


class cuFFTPlanCacheManager(cuFFTPlanCache):
    """The plans of all devices: there is none."""

    def __init__(self) -> None:
        super().__init__(-1)

    def __getitem__(self, device: Any) -> cuFFTPlanCache:
        raise RuntimeError(f"cufft_plan_cache: expected 0 <= device index < 0, but got device with index {device}")


cufft_plan_cache = cuFFTPlanCacheManager()
