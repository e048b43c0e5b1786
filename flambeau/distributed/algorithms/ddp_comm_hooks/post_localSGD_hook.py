"""torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook: gradients averaged over all ranks at first, then over neighbours only, or not at all."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, finished
from flambeau.distributed.group import new_subgroups


class PostLocalSGDState:
    """How long gradients are averaged over `process_group`: `start_localSGD_iter` steps; then over `subgroup` (None: the ranks of this machine).

    With `post_local_gradient_allreduce=False` nobody averages gradients then. Parameters are averaged by torch.distributed.optim.PostLocalSGDOptimizer.
    """

    def __init__(self, process_group: Any, subgroup: Any, start_localSGD_iter: int, post_local_gradient_allreduce: bool = True) -> None:
        self.process_group, self.subgroup = process_group, subgroup
        self.start_localSGD_iter, self.post_local_gradient_allreduce = start_localSGD_iter, post_local_gradient_allreduce
        self.iter = 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()


def post_localSGD_hook(state: PostLocalSGDState, bucket: Any) -> Any:
    """A hook of DistributedDataParallel; see PostLocalSGDState."""
    if state.iter < state.start_localSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    if not state.post_local_gradient_allreduce:
        return finished(bucket.buffer())
    if state.subgroup is None:
        state.subgroup, _ = new_subgroups(_neighbours())
    return allreduce_hook(state.subgroup, bucket)


def _neighbours() -> int:
    """How many ranks this machine has, as the launcher says; all of them without a launcher."""
    import os

    from flambeau.distributed.group import get_world_size

    return int(os.environ.get("LOCAL_WORLD_SIZE", get_world_size()))
