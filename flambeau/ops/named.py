"""Wrappers of public functions: `out=` for those that are no operations, and the parameter names of another namespace.

`torch.det(input)` is `torch.linalg.det(A)`, for instance.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from flambeau.trace.mutation import into
from flambeau.trace.overlap import OUT_KEEPS, OUT_REFUSES, STARTS_AS_INPUT, refuse_overlaps


def public(name: str, exact: Callable[..., bool] | None = None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator of a function made of recorded operations: it takes `out=`, and its messages say `name`.

    `exact`: whether `out` must have the result's dtype, of the call's arguments; else the name says it (trace/mutation.py).
    """

    def make(function: Callable[..., Any]) -> Callable[..., Any]:
        plain = name.rsplit(".", 1)[-1]
        checks, first = plain in OUT_REFUSES, int(plain in STARTS_AS_INPUT)  # the argument from which on `out` must be apart

        @functools.wraps(function)
        def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
            if out is not None and checks:
                refuse_overlaps(out, (*args[first:], *[value for key, value in kwargs.items() if not first or key != "input"]), name)
            keeps = out is not None and plain in OUT_KEEPS and any(x is out for x in (*args, *kwargs.values()))
            result = function(*args, **kwargs)
            if out is not None and exact is not None and exact(*args, **kwargs) and getattr(out, "dtype", result.dtype) is not result.dtype:
                raise RuntimeError(f"{name}(): Expected out tensor to have dtype {result.dtype.name}, but got {out.dtype.name} instead")
            return into(out, result, name, keeps)

        call.__qualname__ = call.__name__ = plain
        call.__code__ = call.__code__.replace(co_name=plain)  # errors that are found late say it (trace/place.py)
        return call

    return make


def parameters_of(function: Any) -> list[inspect.Parameter]:
    """The parameters of a public function, with the `out` that its record takes."""
    found = list(inspect.signature(function).parameters.values())
    record = getattr(function, "operation", None)
    inner, out = function, record is not None and record.out
    while not out and hasattr(inner, "__wrapped__"):  # wrappers that add `out` show the body's signature
        code = inner.__code__
        out = "out" in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        inner = inner.__wrapped__
    if out and not any(p.name == "out" for p in found):
        found.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
    return found


def renamed(function: Callable[..., Any], **names: str) -> Callable[..., Any]:
    """The function with parameters called otherwise: `renamed(linalg.det, A="input")`. Positions, kinds and defaults stay."""
    parameters = parameters_of(function)
    head: list[str] = []
    passed: list[str] = []
    scope: dict[str, Any] = {"function": function}
    star = False
    for i, p in enumerate(parameters):
        name = names.get(p.name, p.name)
        if p.kind is p.KEYWORD_ONLY and not star:
            head.append("*")
            star = True
        scope[f"D{i}"] = p.default
        head.append(name if p.default is p.empty else f"{name}=D{i}")
        passed.append(f"{p.name}={name}" if p.kind is p.KEYWORD_ONLY else name)
    name = function.__name__
    exec(compile(f"def {name}({', '.join(head)}):\n    return function({', '.join(passed)})", f"<flambeau operation {name}>", "exec"), scope)
    made = functools.wraps(function)(scope[name])
    for inherited in ("__wrapped__", "__signature__", "operation"):  # its signature is its own
        made.__dict__.pop(inherited, None)
    return made  # type: ignore[no-any-return]
