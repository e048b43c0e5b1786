"""torch.distributed.algorithms.model_averaging.utils: parameters become their mean over the ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.distributed.group import member
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.reductions import all_reduce_coalesced
from flambeau.grad_modes import no_grad
from flambeau.tensor import Tensor


def average_parameters(params: Iterable[Tensor], process_group: Any) -> None:
    """Parameters become their mean over a group's ranks (None: all); nothing happens on a rank that is not in it."""
    found = member(process_group)
    chosen = list(params)
    if found is None or found.size() == 1:
        return
    with no_grad():
        for kind in dict.fromkeys(p.dtype for p in chosen):
            all_reduce_coalesced([p.detach() for p in chosen if p.dtype is kind], ReduceOp.AVG, found)


def get_params_to_average(params: Iterable[Any]) -> list[Tensor]:
    """Of parameters, or of an optimizer's parameter groups, those that have a gradient."""
    chosen: list[Tensor] = []
    for entry in params:
        if isinstance(entry, dict):
            chosen += entry["params"]
        elif isinstance(entry, Tensor):
            chosen.append(entry)
        else:
            raise NotImplementedError(f"Parameter input of type {type(entry)} is not supported: give parameters or an optimizer's parameter groups")
    return [p for p in chosen if p.grad is not None]


def average_parameters_or_parameter_groups(params: Iterable[Any], process_group: Any) -> None:
    """average_parameters of those that have a gradient."""
    average_parameters(get_params_to_average(params), process_group)
