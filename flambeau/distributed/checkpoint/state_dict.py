"""torch.distributed.checkpoint.state_dict: states of models and optimizers by the parameters' names; of one process they are whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flambeau.distributed.fsdp._common_utils import name_without_wrappers


@dataclass
class StateDictOptions:
    """What is asked of the functions below; what is for several processes changes nothing."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"


def get_model_state_dict(model: Any, *, submodules: Any = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """model.state_dict() by names without wrappers (DistributedDataParallel's "module."), without frozen parameters if `options` say so."""
    options = options or StateDictOptions()
    state = {name_without_wrappers(model, name): value for name, value in model.state_dict().items()}
    frozen = {name_without_wrappers(model, n) for n, p in model.named_parameters() if not p.requires_grad} if options.ignore_frozen_params else set()
    return {name: value for name, value in state.items() if name not in frozen}


def set_model_state_dict(model: Any, model_state_dict: Any, *, options: StateDictOptions | None = None) -> Any:
    """model.load_state_dict of what `get_model_state_dict` has given."""
    own = {name_without_wrappers(model, name): name for name in model.state_dict()}
    given = {own.get(name, name): value for name, value in model_state_dict.items()}
    return model.load_state_dict(given, strict=(options or StateDictOptions()).strict)


def _optimizers(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, (list, tuple)) else [optimizers]


def get_optimizer_state_dict(model: Any, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """The optimizers' state_dicts as one, parameters by their names in the model."""
    names = {parameter: name_without_wrappers(model, name) for name, parameter in model.named_parameters()}
    found: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in _optimizers(optimizers):
        found["state"].update({names[p]: dict(state) for p, state in optimizer.state.items()})
        for group in optimizer.param_groups:
            found["param_groups"].append({**group, "params": [names[p] for p in group["params"]]})
    return found


def set_optimizer_state_dict(model: Any, optimizers: Any, optim_state_dict: Any, *, options: StateDictOptions | None = None) -> None:
    """The other way round; KeyError for a name that is no parameter's."""
    groups = iter(optim_state_dict["param_groups"])
    for optimizer in _optimizers(optimizers):
        numbers: dict[str, int] = {}
        listed = []
        for _ in optimizer.param_groups:
            group = next(groups)
            for name in group["params"]:
                numbers[name] = len(numbers)
            listed.append({**group, "params": [numbers[name] for name in group["params"]]})
        state = {numbers[name]: value for name, value in optim_state_dict["state"].items() if name in numbers}
        optimizer.load_state_dict({"state": state, "param_groups": listed})


def get_state_dict(model: Any, optimizers: Any, *, submodules: Any = None, options: StateDictOptions | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the model's, the optimizers')."""
    return get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizers, options=options)


def set_state_dict(model: Any, optimizers: Any, *, model_state_dict: Any, optim_state_dict: Any, options: StateDictOptions | None = None) -> Any:
    """Both."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
