"""torch.distributed.algorithms.model_averaging.averagers: when parameters are averaged over the ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from flambeau.distributed.algorithms.model_averaging.utils import average_parameters_or_parameter_groups


class ModelAverager(ABC):
    """What averages parameters now and then."""

    def __init__(self, process_group: Any = None) -> None:
        self.process_group = process_group
        self.step = 0

    @abstractmethod
    def average_parameters(self, params: Any) -> None:
        """Average now, if it is time."""


class PeriodicModelAverager(ModelAverager):
    """Averages every `period` steps after `warmup_steps`."""

    def __init__(self, period: int, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(process_group)
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        if period < 1:
            raise ValueError("Arg ``period`` must be a positive value.")
        self.period, self.warmup_steps = period, warmup_steps

    def average_parameters(self, params: Any) -> None:
        """Count the step; average every `period` steps after `warmup_steps`. `params`: parameters, or an optimizer's parameter groups."""
        if self.step >= self.warmup_steps and (self.step - self.warmup_steps) % self.period == 0:
            average_parameters_or_parameter_groups(params, self.process_group)
        self.step += 1
