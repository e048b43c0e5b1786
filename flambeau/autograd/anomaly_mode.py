"""Anomaly detection: which call made the first NaN of a backward pass.

While it is on, every public function that is called on tensors with gradients gets aliases of them, and each alias a hook that looks at
what the function's gradient gave for it. So the first NaN names the function, its argument, the modules around the call and the line.
It is slow: every gradient is looked at. Functions pay nothing when it is off (they get their stubs when it is turned on).
"""

from __future__ import annotations

import linecache
import sys
import threading
import traceback
import weakref
from typing import Any

from flambeau.autograd.function import Function
from flambeau.ops import dispatch, instrument
from flambeau.ops.signatures import must_be
from flambeau.python_code import GENERATED
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import Trace, local
from flambeau.trace.while_set import begun, while_locked


class _State(threading.local):
    """Per thread: the mode while it is on; whether gradients are looked at; the first infinity of the pass."""

    mode: _Mode | None = None
    check_nan = True
    infinite: str | None = None
    stubs: instrument.everything | None = None


_state = _State()
# While any thread has a mode, `Function.apply` asks; who ends last gives it back. A thread that ends without that leaves nothing here.
_changing = threading.RLock()
_modes: weakref.WeakSet[_Mode] = weakref.WeakSet()


class _Call:
    """One call of a function: its name and where the user's program made it."""

    module: str
    stack: traceback.StackSummary

    def __init__(self, name: str) -> None:
        self.name = name
        frames = []
        modules: list[Any] = []
        frame: Any = sys._getframe(2)
        while frame is not None:
            file, owner = frame.f_code.co_filename, frame.f_locals.get("self")
            if "/flambeau/" not in file.replace("\\", "/") and not file.startswith(GENERATED):
                frames.append(traceback.FrameSummary(file, frame.f_lineno, frame.f_code.co_name, lookup_line=False))
            elif frame.f_code.co_name == "__call__" and hasattr(owner, "named_modules"):
                modules.append(owner)
            frame = frame.f_back
        self.stack = traceback.StackSummary.from_list(frames[::-1])
        self.module = ""
        if modules:
            inner, outer = modules[0], modules[-1]
            path = next((name for name, m in outer.named_modules() if m is inner), "")
            self.module = f"module {type(outer).__name__}{f'.{path}' if path else ''} ({type(inner).__name__})"

    def where(self) -> str:
        """The module and the line, as far as they are known."""
        parts = [self.module] if self.module else []
        if self.stack:
            last = self.stack[-1]
            parts.append(f"{last.filename}, line {last.lineno}: {(linecache.getline(last.filename, last.lineno or 0)).strip()}")
        return "; ".join(parts)


def _bad(t: Tensor) -> tuple[bool, bool]:
    """(whether there is a NaN, whether there is an infinity) among a tensor's elements."""
    with dispatch.DisableTorchFunction():
        t = t.detach()
        if t.is_sparse:
            t = t._values()  # type: ignore[attr-defined]
        if bool(t.isfinite().all()):
            return False, False
        return bool(t.isnan().any()), bool(t.isinf().any())


def _watched(t: Tensor, call: _Call, position: int) -> Tensor:
    """An alias of an argument whose gradient is looked at."""
    from flambeau.ops.indexing import _alias

    alias: Tensor = _alias(t)

    def look(gradient: Tensor) -> None:
        if not (is_anomaly_enabled() and _state.check_nan):
            return
        nan, infinite = _bad(gradient)
        if infinite and _state.infinite is None:
            _state.infinite = f"'{call.name}' ({call.where()})"
        if nan:
            _report(call, position, alias)

    with dispatch.DisableTorchFunction():
        alias.register_hook(look)
    return alias


def _report(call: _Call, position: int, argument: Tensor) -> None:
    before = _state.infinite
    nan, infinite = _bad(argument)
    _state.infinite = None
    lines = [f"Function '{call.name}' returned nan values in its {position}th output."]
    if call.where():
        lines.append(f"The call: {call.where()}.")
    if nan or infinite:
        what = "NaN and infinity" if nan and infinite else "NaN" if nan else "infinity"
        lines.append(f"Its argument {position}, of shape {tuple(argument.shape)}, holds {what} already in the forward pass.")
    if before is not None and not before.startswith(f"'{call.name}' ({call.where()})"):
        lines.append(f"The first infinity of this backward pass came from {before}.")
    warn_here(f"Error detected in {call.name}. Traceback of forward call that caused the error:\n{''.join(call.stack.format())}")
    raise RuntimeError(" ".join(lines))


def _backward_name(function: Any) -> str:
    name = getattr(function, "__name__", "function").strip("_")
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Backward0"


class _Mode:
    """Asked by every public function while anomaly detection is on."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in ("backward", "grad"):
            _state.infinite = None
        writes = name in ("setitem", "__setitem__") or (name.endswith("_") and not name.endswith("__")) or kwargs.get("out") is not None
        if type(local.trace) is not Trace or not local.trace.grad_enabled or name in _LEFT_ALONE:
            return func(*args, **kwargs)
        call: _Call | None = None
        given = [b for a in (*args, *kwargs.values()) for b in (a if type(a) in (list, tuple) else (a,))]
        position = sum([isinstance(b, Tensor) for b in given])

        def visit(a: Any) -> Any:  # from the last to the first: the backward pass meets the newest alias first
            nonlocal call, position
            if isinstance(a, Tensor):
                position -= 1
                if not a.requires_grad or (writes and position == 0):
                    return a
                call = call or _Call(_backward_name(func))
                return _watched(a, call, position)
            if type(a) in (list, tuple) and any(isinstance(b, Tensor) for b in a):
                return type(a)([visit(b) for b in reversed(a)][::-1])
            return a

        with dispatch.DisableTorchFunction():
            kwargs = dict([(k, visit(v)) for k, v in reversed(kwargs.items())][::-1])
            args = tuple([visit(a) for a in reversed(args)][::-1])
        return func(*args, **kwargs)


# Questions about a tensor, and functions that change or return the tensor itself.
_LEFT_ALONE = frozenset(
    """backward grad register_hook register_post_accumulate_grad_hook retain_grad requires_grad_ detach detach_ size stride dim numel is_contiguous
    data_ptr item tolist numpy cpu __len__ __repr__ __bool__ __float__ __int__ __index__ __format__ __iter__ __hash__ __deepcopy__ __reduce_ex__
    __array__ is_floating_point is_complex element_size storage_offset untyped_storage nelement ndimension get_device type is_signed is_same_size
    result_type set_ share_memory_ as_subclass zero_grad is_nonzero zeros_like ones_like full_like empty_like rand_like randn_like randint_like
    new_zeros new_ones new_empty new_full new_tensor equal allclose is_set_to""".split()
)
_plain_apply = Function.__dict__["apply"]


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Function.apply, with the arguments' gradients looked at."""
    if type(local.trace) is Trace and local.trace.grad_enabled and is_anomaly_enabled():
        call = _Call(f"{cls.__name__}Backward")
        watched = [_watched(a, call, i) if isinstance(a, Tensor) and a.requires_grad else a for i, a in reversed(list(enumerate(args)))]
        args = tuple(watched[::-1])
    return _plain_apply.__get__(None, cls)(*args, **kwargs)


def is_anomaly_enabled() -> bool:
    """Whether anomaly detection is on in this thread."""
    return _state.mode is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether it looks for NaN."""
    return _state.check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turn anomaly detection on or off in this thread."""
    must_be("set_anomaly_enabled", "enabled bool", mode)
    must_be("set_anomaly_enabled", "check_nan bool", check_nan)
    if mode and _state.mode is None:
        before = _state.check_nan
        begun(_begin, lambda: _end(before))
    elif not mode and _state.mode is not None:
        _end(check_nan)
    _state.check_nan = check_nan


def _begin() -> None:
    _state.stubs = instrument.everything()
    _state.stubs.__enter__()
    _state.mode = _Mode()
    dispatch.state.modes.insert(0, _state.mode)
    while_locked(_changing, _watch_functions, _state.mode)


def _watch_functions(mode: _Mode) -> None:
    _modes.add(mode)
    Function.apply = classmethod(_apply)  # type: ignore[method-assign, assignment]


def _leave_functions(mode: _Mode | None) -> None:
    if mode is not None:
        _modes.discard(mode)
    if not _modes:
        Function.apply = _plain_apply  # type: ignore[method-assign]


def _end(check_nan: bool) -> None:
    mode, _state.mode, _state.check_nan = _state.mode, None, check_nan
    dispatch.state.modes[:] = [m for m in dispatch.state.modes if m is not mode]
    while_locked(_changing, _leave_functions, mode)
    if _state.stubs is not None:
        _state.stubs.__exit__()
        _state.stubs = None


class detect_anomaly:
    """A block with anomaly detection: a backward pass in which a gradient function gives NaN raises RuntimeError and says which one."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warn_here("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.")

    def __enter__(self) -> None:
        self.prev, self.prev_check_nan = is_anomaly_enabled(), _state.check_nan
        set_anomaly_enabled(True, self.check_nan)

    def __exit__(self, *_: Any) -> None:
        set_anomaly_enabled(self.prev, self.prev_check_nan)


class set_detect_anomaly:
    """Turn anomaly detection on or off, from now on or for a block."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.prev, self.prev_check_nan = is_anomaly_enabled(), _state.check_nan
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        set_anomaly_enabled(self.prev, self.prev_check_nan)
