"""Small names of the torch namespace: streams and events of the CPU, warnings, numbers that PyTorch may know symbolically, older settings."""

from __future__ import annotations

import builtins
import math
from typing import Any

from flambeau.autograd.anomaly_mode import is_anomaly_check_nan_enabled as is_anomaly_check_nan_enabled
from flambeau.autograd.anomaly_mode import is_anomaly_enabled as is_anomaly_enabled
from flambeau.autograd.anomaly_mode import set_anomaly_enabled as set_anomaly_enabled
from flambeau.cpu import Event as _CpuEvent
from flambeau.cpu import Stream as _CpuStream
from flambeau.devices import Device
from flambeau.trace.once import ALWAYS


class SymInt:
    """A whole number that is not known before a program runs. Every size is known here, so nothing is one."""


class SymFloat:
    """A floating number that is not known before a program runs. Nothing is one."""


class SymBool:
    """A truth value that is not known before a program runs. Nothing is one."""


class AcceleratorError(RuntimeError):
    """An error of an accelerator, of which there is none."""


class OutOfMemoryError(RuntimeError):
    """An accelerator's memory is exhausted. Here the CPU's memory raises MemoryError."""


class Stream(_CpuStream):
    """A stream of a device: of the CPU, which has one."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        super().__init__(priority)
        self.device = Device(device if device is not None else "cpu")
        self.stream_id = 0
        if self.device.type != "cpu":
            raise RuntimeError(f"torch.Stream: there is no {self.device.type} device; flambeau runs on the CPU so far")

    @property
    def device_index(self) -> int:
        """-1: the CPU."""
        return -1

    def query(self) -> bool:
        """True: nothing is waited for."""
        return True

    def synchronize(self) -> None:
        """Run what is recorded and pending."""
        from flambeau.trace.evaluate import synchronize

        synchronize()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class Event(_CpuEvent):
    """A point in a stream: always reached."""

    def __init__(self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.device = Device(device if device is not None else "cpu")

    def elapsed_time(self, end_event: Any) -> float:
        """RuntimeError, as for events without timing: time.perf_counter after an observation tells the time."""
        raise RuntimeError("torch.Event.elapsed_time: events of the CPU take no times; use time.perf_counter, or torch.utils.benchmark")


def get_device_module(device: Any = None) -> Any:
    """The module of a device's functions: torch.cpu, torch.cuda, ..."""
    import importlib

    kind = Device(device if device is not None else "cpu").type
    if kind not in ("cpu", "cuda", "mps", "xpu", "mtia"):
        raise RuntimeError(f"Invalid device module '{kind}' is not in flambeau")
    return importlib.import_module(f"flambeau.{kind}")


def get_device(input: Any) -> int:
    """-1: the CPU."""
    return -1


def set_warn_always(b: bool, /) -> None:
    """Whether warnings that are given once in a process are given at each call."""
    ALWAYS[0] = b


def is_warn_always_enabled() -> bool:
    """What set_warn_always said."""
    return ALWAYS[0]


def is_inference(input: Any) -> bool:
    """False: tensors made under inference_mode are ordinary tensors."""
    return False


def is_inference_mode_enabled() -> bool:
    """Whether this thread is inside of inference_mode."""
    from flambeau.trace.recorder import local

    return bool(local.main.inference)


def is_distributed(input: Any) -> bool:
    """False."""
    return False


def is_vulkan_available() -> bool:
    """False."""
    return False


def init_num_threads() -> None:
    """Accepted: the team of threads is made when it is first needed."""


def set_default_tensor_type(t: Any, /) -> None:
    """Make the dtype of a legacy class (torch.DoubleTensor, or its name) the default; TypeError for one that is not floating."""
    import flambeau

    if isinstance(t, str):
        t = getattr(flambeau, t.rsplit(".", 1)[-1], None)
    d = getattr(t, "dtype", None)
    if d is None or not d.is_floating_point:
        raise TypeError(f"only floating-point types are supported as the default type, got {t!r}")
    flambeau.set_default_dtype(d)


# -- numbers that PyTorch may know symbolically: here they are numbers ---------------------------------------------------------
def sym_int(a: Any) -> int:
    """A number without its fraction."""
    return int(a)


def sym_float(a: Any) -> float:
    """A number as a float."""
    return float(a)


def sym_not(a: Any) -> bool:
    """The contrary."""
    return not a


def sym_max(a: Any, b: Any) -> Any:
    """The greater; a float if one is."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """The lesser; a float if one is."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


def sym_sum(*args: Any) -> Any:
    """The sum of the arguments, or of the one sequence that is given."""
    return builtins.sum(args[0] if len(args) == 1 and not isinstance(args[0], (int, float)) else args)


def sym_sqrt(a: Any) -> float:
    """The square root."""
    return math.sqrt(a)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b, else f."""
    return t if b else f


def sym_fresh_size(expr: Any) -> int:
    """RuntimeError: sizes are known."""
    raise RuntimeError("torch.sym_fresh_size is for graphs of sizes that are not known; here they are")


def _check_range(size: Any, min: Any = None, max: Any = None) -> None:
    """RuntimeError unless min <= size <= max."""
    if (min is not None and size < min) or (max is not None and size > max):
        raise RuntimeError(f"Invalid value range for {size}: it must lie between {min} and {max}")


def sym_constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """RuntimeError unless min <= size <= max."""
    _check_range(size, min, max)


def sym_constrain_range_for_size(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """RuntimeError unless min <= size <= max."""
    _check_range(size, min, max)


def _check(cond: Any, message: Any = None) -> None:
    """RuntimeError with `message()` unless the condition holds."""
    if not cond:
        raise RuntimeError("Expected cond to be True" if message is None else str(message()))


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """RuntimeError unless a number may be a size."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_index(cond: Any, message: Any = None) -> None:
    """IndexError with `message()` unless the condition holds."""
    if not cond:
        raise IndexError("Expected cond to be True" if message is None else str(message()))


def _check_value(cond: Any, message: Any = None) -> None:
    """ValueError with `message()` unless the condition holds."""
    if not cond:
        raise ValueError("Expected cond to be True" if message is None else str(message()))


def _check_type(cond: Any, message: Any = None) -> None:
    """TypeError with `message()` unless the condition holds."""
    if not cond:
        raise TypeError("Expected cond to be True" if message is None else str(message()))


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """true_fn(*operands) where pred (a bool, or a tensor of one) holds, else false_fn(*operands). A tensor is looked at."""
    return (true_fn if bool(pred) else false_fn)(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """body_fn(*carried_inputs) in their place as long as cond_fn(*carried_inputs) (a bool, or a tensor of one) holds. A tensor is looked at."""
    if not callable(cond_fn) or not callable(body_fn):
        raise RuntimeError("while_loop(): cond_fn and body_fn must be callable")
    if not isinstance(carried_inputs, (tuple, list)):
        raise RuntimeError(f"while_loop(): carried_inputs must be a tuple or a list, but got {type(carried_inputs).__name__}")
    carried: Any = tuple(carried_inputs)
    while bool(cond_fn(*carried)):
        made = body_fn(*carried)
        if not isinstance(made, (tuple, list)) or len(made) != len(carried):
            raise RuntimeError(f"while_loop(): body_fn must return as many values as there are carried inputs ({len(carried)}), but got {made!r}")
        carried = tuple(made)
    return carried


# -- autocast of devices that are not here ---------------------------------------------------------------------------------------
def _autocast(kind: str) -> dict[str, Any]:
    chosen: list[Any] = [None]

    def is_enabled() -> bool:
        """False: there is no such device."""
        return False

    def set_enabled(enabled: bool, /) -> None:
        """Accepted: there is no such device."""

    def get_dtype() -> Any:
        """What was set; bfloat16 before."""
        from flambeau.dtypes import bfloat16

        return chosen[0] or bfloat16

    def set_dtype(dtype: Any, /) -> None:
        """Accepted and remembered."""
        chosen[0] = dtype

    names = {f"is_autocast_{kind}_enabled": is_enabled, f"set_autocast_{kind}_enabled": set_enabled, f"get_autocast_{kind}_dtype": get_dtype,
             f"set_autocast_{kind}_dtype": set_dtype}  # fmt: skip
    for name, function in names.items():
        function.__name__ = function.__qualname__ = name
    return names


globals().update(_autocast("ipu") | _autocast("xla"))
