"""torch.optim.swa_utils: averages of weights over training (SWA, Izmailov et al., 2018; EMA) and the schedule that goes with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Literal

import flambeau as torch
from flambeau.nn.modules.batchnorm import _BatchNorm
from flambeau.nn.modules.module import Module
from flambeau.optim.lr_scheduler.base import LRScheduler, per_group
from flambeau.tensor import Tensor

_Tensors = Any  # tuple or list of tensors
_Average = Callable[[Tensor, Tensor, Any], Tensor]
_MultiAverage = Callable[[_Tensors, _Tensors, Any], None]


def _check_decay(decay: float) -> None:
    if decay < 0.0 or decay > 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_multi_avg_fn(decay: float = 0.999) -> _MultiAverage:
    """In-place exponential moving averages of lists of parameters."""
    _check_decay(decay)

    def ema_update(ema_param_list: _Tensors, current_param_list: _Tensors, _: Any) -> None:
        with torch.no_grad():
            for average, current in zip(ema_param_list, current_param_list, strict=True):
                if average.is_floating_point() or average.is_complex():
                    average.lerp_(current, 1 - decay)
                else:
                    average.copy_(average * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> _MultiAverage:
    """In-place running means of lists of parameters."""

    def swa_update(averaged_param_list: _Tensors, current_param_list: _Tensors, num_averaged: Any) -> None:
        weight = 1 / (int(num_averaged) + 1)
        with torch.no_grad():
            for average, current in zip(averaged_param_list, current_param_list, strict=True):
                if average.is_floating_point() or average.is_complex():
                    average.lerp_(current, weight)
                else:
                    average.add_((current - average) // (int(num_averaged) + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> _Average:
    """The exponential moving average of one parameter."""
    _check_decay(decay)

    def ema_update(ema_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with torch.no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> _Average:
    """The running mean of one parameter."""

    def swa_update(averaged_param: Tensor, current_param: Tensor, num_averaged: Any) -> Tensor:
        with torch.no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of `model` (as `module`) whose parameters are averages; `n_averaged` counts the updates.

    `avg_fn(averaged, current, n_averaged)` gives one new average, `multi_avg_fn` writes over a whole list; without either, running means.
    With `use_buffers` buffers are averaged too, else they are copied.
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: Any = None, avg_fn: _Average | None = None, multi_avg_fn: _MultiAverage | None = None,
        use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def _averaged(self, model: Module) -> list[Tensor]:
        tensors = itertools.chain(model.parameters(), model.buffers()) if self.use_buffers else model.parameters()
        return [t.detach() for t in tensors]

    def update_parameters(self, model: Module) -> None:
        """Take the present parameters of `model` into the averages; the first time they are copied."""
        averages, current = self._averaged(self.module), self._averaged(model)
        with torch.no_grad():
            if int(self.n_averaged) == 0:
                for average, now in zip(averages, current, strict=False):
                    average.copy_(now)
            elif self.avg_fn is not None:
                for average, now in zip(averages, current, strict=True):
                    average.copy_(self.avg_fn(average, now, self.n_averaged))
            else:
                groups: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}  # by dtype, as functions written for PyTorch expect
                for average, now in zip(averages, current, strict=True):
                    mine, theirs = groups.setdefault(average.dtype, ([], []))
                    mine.append(average)
                    theirs.append(now)
                for mine, theirs in groups.values():
                    (self.multi_avg_fn or get_swa_multi_avg_fn())(mine, theirs, self.n_averaged)
            if not self.use_buffers:
                for average, now in zip(self.module.buffers(), model.buffers(), strict=True):
                    average.detach().copy_(now.detach())
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Compute the statistics of all batch normalisations anew: the mean over one pass through `loader`.

    Batches are tensors, or lists and tuples whose first element is the input.
    """
    momenta = {}
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            module.reset_running_stats()
            momenta[module] = module.momentum
    if not momenta:
        return
    was_training = model.training
    model.train()
    for module in momenta:
        module.momentum = None
    with torch.no_grad():
        for batch in loader:
            inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
            model(inputs if device is None else inputs.to(device))
    for module, momentum in momenta.items():
        module.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Each group's rate goes to its `swa_lr` within `anneal_epochs` steps, along a cosine or a line, and stays there."""

    def __init__(
        self, optimizer: Any, swa_lr: float, anneal_epochs: int = 10, anneal_strategy: Literal["cos", "linear"] = "cos", last_epoch: int = -1
    ) -> None:  # fmt: skip
        for rate, group in zip(per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups, strict=True):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How far the way has been gone after so many steps."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[float]:
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, swa_lr = group["lr"], group["swa_lr"]
            start = swa_lr if before == 1 else (lr - before * swa_lr) / (1 - before)
            rates.append(swa_lr * now + start * (1 - now))
        return rates


__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn", "update_bn"]

from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("optim.swa_utils", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.optim.swa_utils", globals())
