"""The frame of a schedule: it sets the "lr" of every group of an optimizer, once at its start and then at each `step()`."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.foreign import refuse
from flambeau.ops.signatures import type_name
from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible. Please use `scheduler.step()` to step the scheduler."
)
_MORE = "See more details at https://pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate"


class LRScheduler:
    """`get_lr` gives each group's next rate from the present one; `_get_closed_form_lr`, where there is one, from the epoch.

    Data: base_lrs (the rates at the start), last_epoch, _step_count, _last_lr.
    """

    _is_initial = False
    base_lrs: list[Any]
    last_epoch: int

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", own(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with last_epoch >= 0: load the optimizer's state first"
                )
        self.base_lrs = [own(group["initial_lr"]) for group in optimizer.param_groups]
        optimizer._scheduled_step = optimizer.__dict__.get("step")  # a program may put its own in the place of the class's
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._get_lr_called_within_step = False  # only so that state_dict has PyTorch's keys
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """Everything but the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what state_dict gave."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[float]:
        """The rates that the last step set."""
        return self._last_lr

    def get_lr(self) -> list[float]:
        """The rates of the next step; for use inside `step` only."""
        raise NotImplementedError

    def _now(self) -> list[Any]:
        return [own(group["lr"]) for group in self.optimizer.param_groups]

    def step(self, epoch: int | None = None) -> None:
        """Set the next rates; call it after the optimizer's step."""
        if self._step_count == 1 and self.optimizer.__dict__.get("step") is not getattr(self.optimizer, "_scheduled_step", None):
            warn_here(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler initialization. Please, make sure to call "
                f"`optimizer.step()` before `lr_scheduler.step()`. {_MORE}",
            )  # fmt: skip
        elif self._step_count == 1 and not getattr(self.optimizer, "_opt_called", True):
            warn_here(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call them in the opposite order: `optimizer.step()` before "
                f"`lr_scheduler.step()`. Failure to do this will result in skipping the first value of the learning rate schedule. {_MORE}",
            )  # fmt: skip
        self._step_count += 1
        if epoch is not None:
            warn_here(EPOCH_DEPRECATION_WARNING)
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        if epoch is None:
            self.last_epoch += 1
            values = self.get_lr()
        else:
            self.last_epoch = epoch
            closed = getattr(self, "_get_closed_form_lr", None)
            values = self.get_lr() if closed is None else closed()
        self._set(values)

    def _set(self, values: list[Any]) -> None:
        for group, lr in zip(self.optimizer.param_groups, values, strict=True):
            set_rate(group, lr)
        self._last_lr = self._now()


def own(rate: Any) -> Any:
    """A rate that later writes to a tensor do not change."""
    return rate.clone() if isinstance(rate, Tensor) else rate


def set_rate(group: dict[str, Any], rate: Any) -> None:
    """A group's next rate. A tensor stays the one that the user has given: it is written to."""
    if isinstance(group["lr"], Tensor):
        with torch.no_grad():
            group["lr"].fill_(rate.squeeze() if isinstance(rate, Tensor) and rate.ndim else rate)
    else:
        group["lr"] = rate


def check_optimizer(optimizer: Any) -> None:
    """TypeError unless it is an optimizer."""
    if not isinstance(optimizer, Optimizer):
        refuse((optimizer,), "a schedule of learning rates")
        raise TypeError(f"{type_name(optimizer).rpartition('.')[2]} is not an Optimizer")


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each group."""
    count = len(optimizer.param_groups)
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise ValueError(f"{name} must have the same length as optimizer.param_groups. {name} has {len(value)} values, param_groups has {count}.")
        return [own(v) for v in value]
    return [own(value) for _ in range(count)]
