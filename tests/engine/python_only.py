"""The engine without its builtins over native code: what they must answer like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flambeau.ops import wrapper
from flambeau.trace import evaluate, from_model, liveness, mutation, recorder


@contextmanager
def python_only() -> Iterator[None]:
    """While it lasts nothing is done by builtins. Operations that are called for the first time meanwhile have theirs afterwards."""
    scopes = list(wrapper._equipped)
    steps = [scope["step_"] for scope in scopes]
    copied, from_model.copied[0] = from_model.copied[0], None
    native = evaluate.alive_among, evaluate.collect, evaluate.deliver, recorder.take, mutation.native_writes, wrapper._equip
    evaluate.alive_among, evaluate.collect, evaluate.deliver = liveness.alive_among, evaluate._collect, evaluate._deliver
    recorder.take = mutation.native_writes = wrapper._equip = None
    for scope in scopes:
        scope["step_"] = None
    try:
        yield
    finally:
        from_model.copied[0] = copied
        evaluate.alive_among, evaluate.collect, evaluate.deliver, recorder.take, mutation.native_writes, wrapper._equip = native
        for scope, step in zip(scopes, steps, strict=True):
            scope["step_"] = step
        if wrapper._equip is not None:
            for scope in wrapper._equipped[len(scopes) :]:
                scope["step_"] = wrapper._equip(scope["OP"])
