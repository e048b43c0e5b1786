"""An optimizer over other parameters and states for a while."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor


def _checked(optimizer: Optimizer, state: Any) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    """(state, param_groups) of a dict that fits the optimizer; RuntimeError if it does not."""
    name = "swap_in_optimizer_params_and_state"
    if not optimizer.state:
        raise RuntimeError(f"{name} requires initialized optimizer state.")
    if not isinstance(state, dict) or not isinstance(state.get("state"), dict) or not isinstance(state.get("param_groups"), list):
        raise RuntimeError(f"{name} requires an optimizer.state_dict()-style dict with 'state' and 'param_groups'.")
    groups: list[dict[str, Any]] = state["param_groups"]
    if len(groups) != len(optimizer.param_groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    for i, (mine, theirs) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
        if len(mine["params"]) != len(theirs["params"]):
            raise RuntimeError(f"swapin_optim_state param group {i} has a different number of params than the live optimizer param group.")
        if mine.keys() != theirs.keys():
            raise RuntimeError(
                f"{name} requires param group keys to exactly match the live optimizer group keys for group {i}: they differ in "
                f"{sorted(mine.keys() ^ theirs.keys())}"
            )
    extra = [key for key in state["state"] if key not in {p for group in groups for p in group["params"]}]
    if extra:
        raise RuntimeError(f"{name} requires swapin_optim_state['state'] to be keyed only by packed parameter ids; got extra keys {extra!r}.")
    return state["state"], groups


@contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:  # fmt: skip
    """Inside, the optimizer has these parameters (in the order of its own) and this state, as `state_dict()` gives it.

    Writes in place go to the tensors that were given; what else changes is forgotten at the end.
    """
    states, groups = _checked(optimizer, swapin_optim_state)
    tensors = list(swapin_parameters.values())
    if len(tensors) < sum(len(group["params"]) for group in groups):
        raise RuntimeError("swap_in_optimizer_params_and_state requires the explicit parameter state to match optimizer.param_groups ordering.")
    before = optimizer.state, [dict(group) for group in optimizer.param_groups]
    optimizer.state = defaultdict(dict)
    at = 0
    try:
        for mine, theirs in zip(optimizer.param_groups, groups, strict=True):
            params = tensors[at : at + len(theirs["params"])]
            at += len(params)
            mine.update({**theirs, "params": params})
            for key, p in zip(theirs["params"], params, strict=True):
                if key in states:
                    optimizer.state[p] = dict(states[key])
        yield
    finally:
        optimizer.state = before[0]
        for group, saved in zip(optimizer.param_groups, before[1], strict=True):
            group.clear()
            group.update(saved)
