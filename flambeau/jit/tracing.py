"""torch.jit.trace: the program runs once on example inputs, to check it, and then is called as it is.

PyTorch's trace keeps the operations that the example took; here conditions are followed anew at every call, so a result is what the
program computes, also where a trace would be wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flambeau.jit.script import RecursiveScriptModule, ScriptFunction, rewrap
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


class TracerWarning(Warning):
    """What a trace may have got wrong. Never given here."""


class TracingCheckError(Exception):
    """A trace that gives other results than the program. Never raised here."""


class _State(threading.local):
    tracing = False


_state = _State()


def is_tracing() -> bool:
    """Whether an example runs in torch.jit.trace in this thread."""
    return _state.tracing


class TopLevelTracedModule(RecursiveScriptModule):
    """What torch.jit.trace makes of a module."""

    def _get_name(self) -> str:
        return self.original_name


def _check(value: Any, strict: bool) -> None:
    """RuntimeError unless a result is made of tensors, in tuples, lists and dicts."""
    if isinstance(value, Tensor):
        return
    if isinstance(value, (list, dict)) and strict:
        kind = type(value).__name__
        raise RuntimeError(
            f"Encountering a {kind} at the output of the tracer might cause the trace to be incorrect, this is only valid if the container "
            f"structure does not change based on the module's inputs. Consider using a constant container instead (e.g. for `list`, use a "
            "`tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely need this and know the side effects, pass strict=False "
            "to trace() to allow this behavior."
        )
    if isinstance(value, (tuple, list)):
        for part in value:
            _check(part, strict)
    elif isinstance(value, dict):
        for part in value.values():
            _check(part, strict)
    elif value is not None:
        raise RuntimeError(
            f"Tracer cannot infer type of {value!r}: Only tensors and (possibly nested) tuples of tensors, lists, or dicts are supported as "
            f"inputs or outputs of traced functions, but instead got value of type {type(value).__name__}."
        )


def _example(func: Callable[..., Any], args: Any, kwargs: Any, strict: bool) -> None:
    from flambeau.grad_modes import no_grad
    from flambeau.ops.random import get_rng_state, set_rng_state

    given = () if args is None else tuple(args) if isinstance(args, (tuple, list)) else (args,)
    before, state = _state.tracing, get_rng_state()
    _state.tracing = True
    try:
        with no_grad():
            _check(func(*given, **(kwargs or {})), strict)
    finally:
        _state.tracing = before
        set_rng_state(state)


def trace(
    func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None, _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """A module or function as a TopLevelTracedModule or ScriptFunction, after one run on the example inputs.

    The run leaves gradients and the random state alone. RuntimeError where a result is not made of tensors.
    """
    if example_inputs is None and example_kwarg_inputs is None:
        raise RuntimeError("example_inputs should not be None when example_kwarg_inputs is None")
    if example_kwarg_inputs is not None and not isinstance(example_kwarg_inputs, dict):
        raise RuntimeError("example_kwarg_inputs should be a dict")
    _example(func, example_inputs, example_kwarg_inputs, strict)
    if isinstance(func, RecursiveScriptModule):
        return func
    if isinstance(func, Module):
        return rewrap(func, TopLevelTracedModule)
    if hasattr(func, "__self__") and isinstance(func.__self__, Module) and func.__name__ == "forward":
        return rewrap(func.__self__, TopLevelTracedModule)
    return ScriptFunction(func)


def trace_module(
    mod: Module, inputs: dict[str, Any], optimize: Any = None, check_trace: bool = True, check_inputs: Any = None, check_tolerance: float = 1e-5,
    strict: bool = True, _force_outplace: bool = False, _module_class: Any = None, _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """A module as a TopLevelTracedModule, after a run of each method named in `inputs` on its example."""
    if not isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    for name, example in inputs.items():
        method = mod if name == "forward" else getattr(mod, name)
        _example(method, None if example_inputs_is_kwarg else example, example if example_inputs_is_kwarg else None, strict)
    return rewrap(mod, TopLevelTracedModule)
