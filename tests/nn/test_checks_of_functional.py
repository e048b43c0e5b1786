"""What PyTorch's Python code of torch.nn.functional refuses: one value to standardise, options that exclude each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{name} {shape} {groups}": lambda w, F, name=name, shape=shape, groups=groups: {
            "function": lambda: F.group_norm(w.ones(shape), groups),
            "module": lambda: w.nn.GroupNorm(groups, shape[1])(w.ones(shape)),
            "native": lambda: w.group_norm(w.ones(shape), groups, w.ones(shape[1]) * 2, w.ones(shape[1])),
        }[name]()
        for name in ("function", "module", "native")
        for shape, groups in (((1, 2), 2), ((1, 4, 1), 4), ((2, 4), 4), ((1, 4), 2), ((0, 4), 4), ((1, 4, 2), 4), ((1, 1, 1, 1), 1))
    },
    "batch_norm": lambda w, F: F.batch_norm(w.ones(1, 3), None, None, training=True),
    "batch_norm, a dim of 1": lambda w, F: F.batch_norm(w.ones(1, 3, 1), w.ones(3), w.ones(3), training=True),
    "batch_norm in evaluation": lambda w, F: F.batch_norm(w.ones(1, 3), w.zeros(3), w.ones(3)),
    "instance_norm": lambda w, F: F.instance_norm(w.ones(2, 3, 1)),
    "instance_norm in evaluation": lambda w, F: F.instance_norm(w.ones(2, 3, 1), w.zeros(3), w.ones(3), use_input_stats=False),
    "InstanceNorm1d": lambda w, F: w.nn.InstanceNorm1d(3)(w.ones(1, 3, 1)),
    "interpolate, a size and a new factor": lambda w, F: F.interpolate(w.ones(1, 1, 4), size=2, recompute_scale_factor=True),
    "interpolate, a size and a factor": lambda w, F: F.interpolate(w.ones(1, 1, 4), size=2, scale_factor=2.0),
    "pad with a value": lambda w, F: F.pad(w.ones(2, 2), (1, 1), mode="reflect", value=1.0),
}


def outcome(w: Any, call: Callable[[Any, Any], Any]) -> Any:
    """What comes of a call: values, or the type of the error."""
    try:
        found = call(w, w.nn.functional)
    except Exception as error:
        return type(error)
    return found.detach().numpy().round(2).tolist()


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name: str) -> None:
    assert outcome(ft, CALLS[name]) == outcome(torch, CALLS[name])
