"""Modules as functions of their parameters: functional_call, ensembles by stack_module_state, batch norms without statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.nn.utils.stateless import _functional_call

if TYPE_CHECKING:
    from flambeau.nn.modules.module import Module
    from flambeau.tensor import Tensor


def functional_call(
    module: Module, parameter_and_buffer_dicts: dict[str, Tensor] | Sequence[dict[str, Tensor]], args: Any = None,
    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """module(*args, **kwargs) with the parameters and buffers of a dictionary (or of several) instead of its own.

    Where the module replaces one of them, the dictionary has the new value afterwards. `tie_weights`: what is one tensor under several
    names is so here; `strict`: RuntimeError for names that are missing or unknown.
    """
    dicts = parameter_and_buffer_dicts
    if isinstance(dicts, dict):
        merged = dicts
    elif isinstance(dicts, Sequence):
        if not all(isinstance(d, dict) for d in dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        repeated = [k for k, n in Counter([k for d in dicts for k in d]).items() if n > 1]
        if repeated:
            raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
        merged = {k: v for d in dicts for k, v in d.items()}
    else:
        raise ValueError(f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(dicts)}")
    return _functional_call(module, merged, args, kwargs, tie_weights=tie_weights, strict=strict)


def check_ensemble(models: Sequence[Module], name: str) -> None:
    """RuntimeError, as of the function `name`, unless there are modules, all of one class and in one mode."""
    if len(models) == 0:
        raise RuntimeError(f"{name}: Expected at least one model, got 0.")
    if len({m.training for m in models}) > 1:
        raise RuntimeError(f"{name}: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError(f"{name}: Expected all models to be of the same class.")


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of several modules of one class, each stacked along a new first dim; the parameters are new leaves."""
    check_ensemble(models, "stack_module_state")
    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return (
        {k: _stacked_leaf([p[k] for p in parameters], k) for k in parameters[0]},
        {k: _stacked_leaf([b[k] for b in buffers], k) for k in buffers[0]},
    )


def _stacked_leaf(tensors: list[Any], name: str) -> Any:
    from flambeau.ops.concatenated import stack

    wants = {t.requires_grad for t in tensors}
    if len(wants) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    result = stack(tensors)
    return result.detach().requires_grad_() if wants == {True} else result


def replace_all_batch_norm_modules_(root: Module) -> Module:
    """Take the running statistics from every batch norm in `root`, in place: they are written to, which vmap cannot do for each sample."""
    from flambeau.nn.modules.batchnorm import _BatchNorm

    for m in root.modules():
        if isinstance(m, _BatchNorm) and m.track_running_stats:
            m.running_mean = m.running_var = m.num_batches_tracked = None
            m.track_running_stats = False
    return root
