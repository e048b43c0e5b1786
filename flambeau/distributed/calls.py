"""What collectives share: the order in which a group does them, roots, and checks of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from flambeau.distributed import watchers
from flambeau.distributed.group import ProcessGroup, default_group, get_group_rank
from flambeau.distributed.work import Work
from flambeau.trace import evaluate

if TYPE_CHECKING:
    from flambeau.dtypes import dtype
    from flambeau.tensor import Tensor


def done(async_op: bool) -> Work | None:
    """What a collective without anything to do returns."""
    return Work() if async_op else None


def profiled(group: ProcessGroup, run: Callable[[], None], name: str, tensors: Any) -> Callable[[], None]:
    """A collective that tells the profile that is on how long it took, as PyTorch does: `gloo:all_reduce`."""
    collector = evaluate.PROFILER
    shapes = [[*t.shape, *([2] if t.dtype.is_complex else [])] for t in (tensors if isinstance(tensors, (list, tuple)) else [tensors]) if hasattr(t, "shape")]
    label = f"{group.name()}:{re.split(r'[( ]', name, maxsplit=1)[0]}"

    def timed() -> None:
        begin = perf_counter_ns()
        try:
            run()
        finally:
            collector.communicated(label, begin, perf_counter_ns(), shapes)

    return timed if hasattr(collector, "communicated") else run


def perform(group: ProcessGroup, run: Callable[[], None], async_op: bool, name: str, results: Any, inputs: Any = None) -> Work | None:
    """Do a collective now, or beside the program. `inputs`: the tensors that a profile shows, if they are not the results."""
    if watchers.WATCHERS:
        watchers.tell(name)
    if evaluate.PROFILER is not None:
        run = profiled(group, run, name, results if inputs is None else inputs)
    if async_op:
        return group.lane.later(Work(results, run, name))
    group.lane.now(run)
    return None


def root_of(group: ProcessGroup, given: int | None, of_group: int | None, what: str) -> int:
    """The place in the group of a root, given as a rank among all or as one of the group."""
    if of_group is not None:
        if given is not None:
            raise ValueError(f"Can't specify both {what} and group_{what}")
        root = of_group
    else:
        root = get_group_rank(group, 0 if given is None else given) if group is not default_group() else (0 if given is None else given)
    if not 0 <= root < group.size():
        raise ValueError(f"torch.distributed: {what} must be a rank of the group, which has {group.size()}; got {root}")
    return root


def one_kind(tensors: Sequence[Tensor], where: str) -> dtype:
    """The dtype of all of these tensors; ValueError where they differ."""
    kinds = {t.dtype for t in tensors}
    if len(kinds) > 1:
        raise ValueError(f"{where}: Invalid usage of tensors with different dtypes: Found {', '.join(sorted(map(repr, kinds)))}")
    return kinds.pop()


def check_whole(name: str, whole: str, large: Tensor, part: str, small: Tensor, size: int) -> None:
    """ValueError unless one tensor is as large as `size` of the other."""
    if large.numel() != small.numel() * size:
        raise ValueError(
            f"{name}: {whole} tensor size must be equal to world_size times {part} tensor size: {whole} {tuple(large.shape)}, {part} {tuple(small.shape)}, "
            f"world_size {size}"
        )
