"""torch.cuda.amp: the older names of torch.amp, for CUDA. Like PyTorch's, they warn and change nothing where there is no CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import amp, dtypes
from flambeau.amp.autocast_mode import custom_bwd as _custom_bwd
from flambeau.amp.autocast_mode import custom_fwd as _custom_fwd


def _deprecated(name: str, instead: str) -> None:
    warn_here(f"`torch.cuda.amp.{name}` is deprecated. Please use `torch.amp.{instead}` instead.", FutureWarning)


class autocast(amp.autocast):
    """torch.amp.autocast("cuda", ...)."""

    def __init__(self, enabled: bool = True, dtype: dtypes.dtype = dtypes.float16, cache_enabled: bool = True) -> None:
        _deprecated("autocast(args...)", "autocast('cuda', args...)")
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """torch.amp.GradScaler("cuda", ...)."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        _deprecated("GradScaler(args...)", "GradScaler('cuda', args...)")
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: dtypes.dtype | None = None) -> Any:
    """torch.amp.custom_fwd for CUDA."""
    _deprecated("custom_fwd(args...)", "custom_fwd(args..., device_type='cuda')")
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Any:
    """torch.amp.custom_bwd for CUDA."""
    _deprecated("custom_bwd(args...)", "custom_bwd(args..., device_type='cuda')")
    return _custom_bwd(bwd, device_type="cuda")


def amp_definitely_not_available() -> bool:
    """Whether there is no CUDA device."""
    from flambeau import cuda

    return not cuda.is_available()


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

from flambeau.names import answering as _answering
from flambeau.trace.once import warn_here

__getattr__ = _answering("torch.cuda.amp", globals())
