"""torch.cpu.amp: the older names of torch.amp, for the CPU."""

from __future__ import annotations

from flambeau import amp, dtypes
from flambeau.trace.once import warn_here


def _deprecated(name: str, instead: str) -> None:
    warn_here(f"`torch.cpu.amp.{name}` is deprecated. Please use `torch.amp.{instead}` instead.", FutureWarning)


class autocast(amp.autocast):
    """torch.amp.autocast("cpu", ...)."""

    def __init__(self, enabled: bool = True, dtype: dtypes.dtype = dtypes.bfloat16, cache_enabled: bool = True) -> None:
        _deprecated("autocast(args...)", "autocast('cpu', args...)")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """torch.amp.GradScaler("cpu", ...)."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:  # fmt: skip
        _deprecated("GradScaler(args...)", "GradScaler('cpu', args...)")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


__all__ = ["GradScaler", "autocast"]
