"""torch.distributed.optim.post_localSGD_optimizer: an optimizer after whose steps parameters are averaged over the ranks now and then."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.algorithms.model_averaging.averagers import ModelAverager
from flambeau.optim.optimizer import Optimizer
from flambeau.trace.once import warn_here


class PostLocalSGDOptimizer(Optimizer):
    """Steps of `optim`, and after each `averager.average_parameters`. The averager's steps are saved beside the optimizer's state."""

    def __init__(self, optim: Optimizer, averager: ModelAverager) -> None:
        self.optim, self.averager = optim, averager
        self.defaults, self.param_groups = optim.defaults, optim.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The optimizer's."""
        return self.optim.state

    def __repr__(self) -> str:
        return repr(self.optim)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, with "step": the averager's."""
        return {**self.optim.state_dict(), "step": self.averager.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over both; a warning where there is no step, which is 0 then."""
        self.optim.load_state_dict(state_dict)
        self.param_groups = self.optim.param_groups
        if "step" not in state_dict:
            warn_here("Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.")
        self.averager.step = state_dict.get("step", 0)

    def step(self, closure: Any = None) -> Any:
        """A step, and averaging where it is time."""
        loss = self.optim.step() if closure is None else self.optim.step(closure)
        self.averager.average_parameters(self.param_groups)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The optimizer's."""
        self.optim.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """The optimizer's."""
        self.optim.add_param_group(param_group)
