"""torch.distributed.algorithms.model_averaging.hierarchical_model_averager: small groups average often, large ones seldom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.distributed.algorithms.model_averaging.averagers import ModelAverager
from flambeau.distributed.algorithms.model_averaging.utils import average_parameters_or_parameter_groups
from flambeau.distributed.group import default_group, get_world_size, new_subgroups
from flambeau.trace.once import warn_here


class HierarchicalModelAverager(ModelAverager):
    """`period_group_size_dict`: how many neighbouring ranks average every how many steps, rising; the last are all of the group. Where several periods are
    due, the largest group averages alone. The first `warmup_steps` average nothing."""

    def __init__(self, period_group_size_dict: Mapping[int, int] | None = None, warmup_steps: int = 0, process_group: Any = None) -> None:
        super().__init__(default_group() if process_group is None else process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        periods, sizes, whole = list(period_group_size_dict), list(period_group_size_dict.values()), get_world_size(self.process_group)
        if periods[0] <= 0:
            raise ValueError(f"The minimum period in arg ``period_group_size_dict`` must be a positive value, got {periods[0]}.")
        if sizes[-1] != whole:
            raise ValueError(f"The last value in arg ``period_group_size_dict`` {sizes[-1]} must be equal to the size of arg ``process_group`` {whole}.")
        if warmup_steps < 0:
            raise ValueError(f"Arg ``warmup_steps`` must be a non-negative number, got {warmup_steps}.")
        if periods[-1] == 1:
            warn_here(
                "When the maximum period in arg ``period_group_size_dict`` is 1, averaging parameters costs no less than averaging gradients: "
                "use DistributedDataParallel alone.",
            )  # fmt: skip
        self.warmup_steps = warmup_steps
        self.period_process_group_dict = {
            period: self.process_group if size == whole else new_subgroups(size, self.process_group)[0] for period, size in period_group_size_dict.items()
        }

    def _find_process_group(self) -> Any:
        """Who averages in this step; None if nobody does."""
        due = [group for period, group in self.period_process_group_dict.items() if self.step % period == 0]
        return due[-1] if due else None

    def average_parameters(self, params: Any) -> None:
        """Count the step; average where it is time. `params`: parameters, or an optimizer's parameter groups."""
        if self.step >= self.warmup_steps:
            group = self._find_process_group()
            if group is not None:
                average_parameters_or_parameter_groups(params, group)
        self.step += 1
