"""torch._dynamo: PyTorch's reader of bytecode, which flambeau does not need: functions run as they are and are compiled as they run.

Decorators return their functions, settings (`config`) are kept.
"""

from __future__ import annotations

from typing import Any

from flambeau._dynamo import config as config
from flambeau._dynamo.explaining import explain as explain
from flambeau.compiling import (
    InvalidBackend,
    OptimizedModule,
    _Passing,
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    lookup_backend,
    register_backend,
    reset,
    set_stance,
    substitute_in_graph,
)


def _decorator(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The function itself, or a decorator that returns it."""
    return fn if callable(fn) else (lambda f: f)


disallow_in_graph = forbid_in_graph = nonstrict_trace = dont_skip_tracing = disable_nested_graph_breaks = run = _decorator


def reset_code_caches() -> None:
    """Accepted: code of functions is not kept."""


def graph_break(msg: str = "") -> None:
    """Accepted."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Accepted: kernels are shared by all sizes."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Accepted."""


def mark_static(t: Any, index: Any = None) -> None:
    """Accepted."""


def mark_static_address(t: Any, guard: bool = False) -> None:
    """Accepted."""


def optimize(backend: Any = "inductor", *args: Any, **kwargs: Any) -> Any:
    """The older torch.compile: a decorator."""
    from flambeau.compiling import compile

    return compile(backend=backend) if not kwargs.get("disable") else _Passing()


optimize_assert = optimize
error_on_graph_break = patch_dynamo_config = override_cudagraphs = _Passing


def export(f: Any, *args: Any, **kwargs: Any) -> Any:
    """RuntimeError: see torch.fx.symbolic_trace."""
    raise RuntimeError("torch._dynamo.export is not there; torch.fx.symbolic_trace gives a program's graph")


_MODULES = frozenset("eval_frame exc utils _trace_wrapped_higher_order_op".split())


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"flambeau._dynamo.{name}")
    raise AttributeError(f"module 'torch._dynamo' has no attribute {name!r}")
