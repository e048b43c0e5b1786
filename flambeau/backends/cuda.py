"""torch.backends.cuda: CUDA's libraries, which are not here. The choice of an attention kernel is accepted: there is one."""

from __future__ import annotations

from flambeau.backends.settings import Settings

matmul = Settings(
    "torch.backends.cuda.matmul", allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False, fp32_precision="none",
)  # fmt: skip
_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


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
