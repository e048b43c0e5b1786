"""autocast: a region in which the listed operations (lists.py) choose their own precision. The state belongs to the thread.

The recorder carries the state as it carries grad mode: as a place in the trie (trace/recorder.py, `set_autocast`), so that a
call costs the same whether autocast is on or off, and nothing at all is tested when it is off.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flambeau import dtypes
from flambeau.trace.blocks import Block
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import local

# The types of devices that autocast knows, and the lower precision of each; of them there is the CPU.
DEVICES = {
    "cpu": dtypes.bfloat16, "cuda": dtypes.float16, "mps": dtypes.float16, "xpu": dtypes.float16, "hpu": dtypes.bfloat16, "xla": dtypes.bfloat16,
    "mtia": dtypes.float16, "ipu": dtypes.float16, "maia": dtypes.bfloat16,
}  # fmt: skip


class _Settings(threading.local):
    """What a thread has set, by device type."""

    def __init__(self) -> None:
        self.enabled = dict.fromkeys(DEVICES, False)
        self.dtype = dict(DEVICES)
        self.cache_enabled = True
        self.nesting = 0


_settings = _Settings()


def _checked(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in DEVICES:
        raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}': it must be one of {', '.join(DEVICES)}")
    return device_type


def _apply() -> None:
    """Let the recorder of this thread know."""
    local.main.set_autocast(_settings.dtype["cpu"] if _settings.enabled["cpu"] else None)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows this type of device."""
    if not isinstance(device_type, str):
        raise TypeError(f"is_autocast_available(): argument 'device_type' must be str, not {type(device_type).__name__}")
    return device_type in DEVICES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on in this thread, for a type of device (without one: CUDA, as in PyTorch)."""
    return _settings.enabled[_checked(device_type)]


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch autocast on or off for a type of device; with one argument, for CUDA."""
    if isinstance(device_type, bool):
        return set_autocast_enabled("cuda", device_type)
    _settings.enabled[_checked(device_type)] = bool(enabled)
    _apply()


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The lower precision of a type of device: bfloat16 on the CPU, float16 on CUDA, unless it was set."""
    return _settings.dtype[_checked(device_type)]


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Set the lower precision of a type of device."""
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    _settings.dtype[_checked(device_type)] = dtype
    _apply()


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast on or off for the CPU."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> dtypes.dtype:
    """The CPU's lower precision."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: dtypes.dtype) -> None:
    """Set the CPU's lower precision."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> dtypes.dtype:
    """CUDA's lower precision."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: dtypes.dtype) -> None:
    """Set CUDA's lower precision."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled() -> bool:
    """What set_autocast_cache_enabled said. Casts are shared within a trace either way, and always follow the values."""
    return _settings.cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Accepted: see is_autocast_cache_enabled."""
    _settings.cache_enabled = bool(enabled)


def autocast_increment_nesting() -> int:
    """One more autocast region around us; returns how many there are."""
    _settings.nesting += 1
    return _settings.nesting


def autocast_decrement_nesting() -> int:
    """One autocast region fewer; returns how many are left."""
    _settings.nesting -= 1
    return _settings.nesting


def clear_autocast_cache() -> None:
    """Accepted: there is no cache that could be out of date."""


class autocast(Block):
    """A context manager and decorator: inside, listed operations run in lower precision, others in float32 where they need it.

    `device_type`: "cpu" (or "cuda", which warns and stays off where there is no CUDA). `dtype`: bfloat16 or float16.
    `enabled=False` switches autocast off inside. Regions nest. `cache_enabled` is accepted.
    """

    def __init__(self, device_type: str, dtype: dtypes.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None) -> None:
        settings = _settings
        self.device = device_type if device_type == "cpu" else _checked(device_type)
        self.fast_dtype = settings.dtype[device_type] if dtype is None else dtype
        self._cache_enabled = settings.cache_enabled if cache_enabled is None else cache_enabled
        if enabled and device_type == "cuda":
            from flambeau import cuda

            if not cuda.is_available():
                warn_here("CUDA is not available. Disabling autocast.")
                enabled = False
        elif enabled and self.fast_dtype is not dtypes.bfloat16 and self.fast_dtype is not dtypes.float16:
            warn_here(
                f"In {device_type.upper()} autocast, but the target dtype {self.fast_dtype} is not supported. Disabling autocast.\n"
                f"{device_type.upper()} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
            )
            enabled = False
        super().__init__()
        self._enabled = enabled

    def _now(self) -> tuple[bool, dtypes.dtype, bool, int]:
        s, device = _settings, self.device
        return s.enabled[device], s.dtype[device], s.cache_enabled, s.nesting

    def _begin(self) -> None:
        s, device = _settings, self.device
        s.enabled[device], s.dtype[device], s.cache_enabled, s.nesting = self._enabled, self.fast_dtype, self._cache_enabled, s.nesting + 1
        _apply()

    def _end(self, before: tuple[bool, dtypes.dtype, bool, int]) -> None:
        s, device = _settings, self.device
        s.enabled[device], s.dtype[device], s.cache_enabled, s.nesting = before
        _apply()

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        if not callable(func):
            raise TypeError(
                f"autocast()(func) requires a callable, but got {type(func).__name__}. "
                "Did you mean to use autocast as a context manager? For example:\n"
                "    with torch.autocast(device_type=...):\n        output = model(input)"
            )

        @functools.wraps(func)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return inside


def _cast(value: Any, device_type: str, dtype: dtypes.dtype) -> Any:
    """Floating tensors (but for float64) of the device in another dtype, inside containers too."""
    from flambeau.tensor import Tensor

    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not dtypes.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes)) or hasattr(value, "__array__"):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable):
        items = (_cast(v, device_type, dtype) for v in value)
        return type(value)(items) if isinstance(value, (list, tuple)) else items  # type: ignore[call-arg]
    return value


def custom_fwd(fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: dtypes.dtype | None = None) -> Callable[..., Any]:
    """Decorator of an autograd.Function's forward. With `cast_inputs`, a forward that is called under autocast gets its
    floating tensors in that dtype and runs with autocast off; without, it runs under the state it is called in."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **kwargs: Any) -> Any:
        context = args[0]
        context._dtype = get_autocast_dtype(device_type)
        on = is_autocast_enabled(device_type)
        context._fwd_used_autocast = on and cast_inputs is None
        if cast_inputs is None or not on:
            return fwd(*args, **kwargs)
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorator of an autograd.Function's backward: it runs under the autocast state that its forward ran under."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type=device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return backward
