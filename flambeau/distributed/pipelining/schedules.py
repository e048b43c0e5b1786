"""torch.distributed.pipelining.schedules: a batch as microbatches through the stages of a pipeline, forward and backward."""

from __future__ import annotations

import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, cast

import flambeau
from flambeau.distributed.pipelining import orders
from flambeau.distributed.pipelining.lowering import (
    _add_send_recv as _add_send_recv,
)
from flambeau.distributed.pipelining.lowering import (
    _add_unshard_reshard as _add_unshard_reshard,
)
from flambeau.distributed.pipelining.lowering import (
    _format_pipeline_order as _format_pipeline_order,
)
from flambeau.distributed.pipelining.lowering import (
    _merge_bw as _merge_bw,
)
from flambeau.distributed.pipelining.lowering import (
    _simulate_comms_compute as _simulate_comms_compute,
)
from flambeau.distributed.pipelining.lowering import (
    _validate_schedule as _validate_schedule,
)
from flambeau.distributed.pipelining.microbatch import merge_chunks, split_args_kwargs_into_chunks, split_tensor
from flambeau.distributed.pipelining.orders import Action, Kind
from flambeau.distributed.pipelining.stage import PipelineStage

_Action = Action
_ComputationType = Kind
FORWARD, FULL_BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = F, B, I, W = orders.F, orders.B, orders.I, orders.W  # noqa: E741  # PyTorch's names
UNSHARD, RESHARD, REDUCE_GRAD, OVERLAP_F_B = Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD, Kind.OVERLAP_F_B
SEND_F, RECV_F, SEND_B, RECV_B = Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B


class _PipelineSchedule(ABC):
    """`n_microbatches` of a batch through this rank's stages, in the order of `pipeline_order[rank]`.

    `loss_fn(output, target)`: every rank gives it, the last stage's calls it; without it there are no backward passes. `args_chunk_spec`,
    `kwargs_chunk_spec`: along which dims arguments are cut (0); `output_merge_spec`: how results are joined. `scale_grads`: gradients are divided by the
    number of microbatches, as for a loss that is a mean.
    """

    def __init__(
        self, stages: Sequence[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Any] | None, args_chunk_spec: Any, kwargs_chunk_spec: Any,
        output_merge_spec: Any, scale_grads: bool,
    ) -> None:  # fmt: skip
        if n_microbatches < 1:
            raise ValueError(f"{type(self).__name__}: n_microbatches must be positive, got {n_microbatches}")
        self._stages, self._n_microbatches, self._loss_fn, self.scale_grads = list(stages), n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec, self._output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self._has_backward = loss_fn is not None
        first = self._stages[0]
        self._num_stages, self.pp_group_size, self.rank = first.num_stages, first.group_size, first.group_rank
        places = self._places()
        own = [stage for stage, rank in enumerate(places) if rank == self.rank]
        self._arranged = all(hasattr(stage, "stage_index") for stage in self._stages)
        if not self._arranged:
            own = []  # stages without a place are for looking at the order
        given = sorted(stage.stage_index for stage in self._stages) if self._arranged else []
        if given != own:
            raise ValueError(f"{type(self).__name__}: rank {self.rank} of {self.pp_group_size} must have the stages {own} of {self._num_stages}, got {given}")
        for stage in self._stages:
            stage.stage_index_to_group_rank = dict(enumerate(places))
            if self._arranged:
                stage.neighbours = {other.stage_index: other for other in self._stages if abs(other.stage_index - stage.stage_index) == 1}
        self.stage_index_to_group_rank = dict(enumerate(places))
        self.pipeline_order: dict[int, list[Action]] = {rank: self._order(rank) for rank in range(self.pp_group_size)}
        self._internal_losses: dict[int, Any] = {}

    def _places(self) -> list[int]:
        """The rank of each stage."""
        return orders.looped(self.pp_group_size, self._num_stages)

    @abstractmethod
    def _order(self, rank: int) -> list[Action]:
        """What a rank does."""

    # -- a step -----------------------------------------------------------------------------------------------------------------------
    def step(
        self, *args: Any, target: Any = None, losses: list[Any] | None = None, return_outputs: bool = True, loss_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:  # fmt: skip
        """Take a batch through all stages: `args` where the first stage is, `target` where the last is, which gets the results back (others None).

        `kwargs` go to the modules of this rank. `losses`: a list that the microbatches' losses are put into, on the last stage's rank.
        """
        if self._has_backward and not flambeau.is_grad_enabled():
            raise RuntimeError(
                "step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() context. "
                "Please call eval() instead."
            )
        count = self._n_microbatches
        for stage in self._stages:
            stage.clear_runtime_states()
            stage.has_backward = self._has_backward
        if args or kwargs:
            each_args, each_kwargs = split_args_kwargs_into_chunks(args, kwargs, count, self._args_chunk_spec, self._kwargs_chunk_spec)
        else:
            each_args, each_kwargs = [()] * count, [{}] * count
        targets = [None] * count if target is None else split_tensor(target, 0, count)
        self._take(each_args, each_kwargs, targets, return_outputs, loss_kwargs or {})
        last = next((stage for stage in self._stages if stage.is_last), None)
        if last is None:
            return None
        if losses is not None:
            losses[:] = [self._internal_losses[i] for i in sorted(self._internal_losses)]
        self._internal_losses = {}
        return merge_chunks(last.output_chunks, self._output_merge_spec) if return_outputs else None

    def eval(self, *args: Any, target: Any = None, losses: list[Any] | None = None, **kwargs: Any) -> Any:
        """step without backward passes."""
        before = self._has_backward
        try:
            self._has_backward = False
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _take(
        self, args: list[tuple[Any, ...]], kwargs: list[dict[str, Any]], targets: list[Any], keeps: bool, loss_kwargs: dict[str, Any]
    ) -> None:  # fmt: skip
        stages = {stage.stage_index: stage for stage in self._stages}
        left = dict.fromkeys(stages, self._n_microbatches)
        self._internal_losses = {}
        for action in self.pipeline_order[self.rank]:
            stage, kind, i = stages[action.stage_index], action.computation_type, cast(int, action.microbatch_index)
            if kind is Kind.FORWARD:
                output = stage.forward_one_chunk(i, args[i], kwargs[i], keeps)
                if stage.is_last and self._loss_fn is not None:
                    if targets[i] is None:
                        raise ValueError(f"{type(self).__name__}.step: the rank of the last stage, {self.rank}, needs target=, as there is a loss_fn")
                    self._internal_losses[i] = self._loss_fn(output, targets[i], **loss_kwargs)
            elif not self._has_backward:
                continue
            elif kind is Kind.BACKWARD_WEIGHT:
                stage.backward_weight_one_chunk(i)
            else:
                left[stage.stage_index] -= 1
                loss = self._internal_losses[i] if stage.is_last else None
                stage.backward_one_chunk(i, loss, kind is Kind.FULL_BACKWARD, left[stage.stage_index] == 0)
        for stage in self._stages:
            stage.wait_for_messages()
            if self._has_backward and self.scale_grads:
                stage.scale_grads(self._n_microbatches)


class PipelineScheduleSingle(_PipelineSchedule):
    """A schedule with one stage a rank."""

    def __init__(
        self, stage: PipelineStage, n_microbatches: int, loss_fn: Callable[..., Any] | None = None, args_chunk_spec: Any = None, kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None, scale_grads: bool = True,
    ) -> None:  # fmt: skip
        super().__init__([stage], n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        self._stage = stage


class PipelineScheduleMulti(_PipelineSchedule):
    """A schedule with several stages a rank."""

    def __init__(
        self, stages: list[PipelineStage], n_microbatches: int, loss_fn: Callable[..., Any] | None = None, args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None, output_merge_spec: Any = None, use_full_backward: bool | None = None, scale_grads: bool = True,
        backward_requires_autograd: bool = True, defer_pp_recv: bool = False,
    ) -> None:  # fmt: skip
        self.n_local_stages = len(stages)
        super().__init__(stages, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)


class _PipelineScheduleRuntime(PipelineScheduleMulti):
    """A schedule whose order is given: by `_load_actions`, or by a file of PyTorch's (`_load_csv`). Messages in it are sent where actions need them anyway."""

    def __init__(self, *args: Any, stage_index_to_group_rank: Any = None, **kwargs: Any) -> None:
        self._given_places = None if stage_index_to_group_rank is None else dict(
            stage_index_to_group_rank.items() if isinstance(stage_index_to_group_rank, dict) else enumerate(stage_index_to_group_rank)
        )  # fmt: skip
        super().__init__(*args, **kwargs)

    def _places(self) -> list[int]:
        return super()._places() if self._given_places is None else [rank for _, rank in sorted(self._given_places.items())]

    def _order(self, rank: int) -> list[Action]:
        return []

    def _load_actions(self, actions: dict[int, list[Action | None]], format: str = "compute_only") -> None:
        """The ranks' actions, computation alone or ("compute_comms") with messages. AssertionError unless each microbatch goes through all stages."""
        if format not in ("compute_only", "compute_comms"):
            raise NotImplementedError(f"format={format!r} is not implemented; it must be 'compute_only' or 'compute_comms'")
        for rank, row in actions.items():
            for i, action in enumerate(row):
                if action is not None and not action.is_compute_op and format == "compute_only":
                    raise ValueError(
                        f"Expected compute-only schedule but found communication action '{action}' at rank {rank}, position {i}; give format='compute_comms'"
                    )
        order = {
            rank: [part for a in row if a is not None and a.is_compute_op for part in (a.sub_actions or (a,))] for rank, row in actions.items()
        }  # fmt: skip
        places = _validate_schedule(order, self.pp_group_size, self._num_stages, self._n_microbatches)
        for stage in self._stages:
            if places[stage.stage_index] != self.rank:
                raise AssertionError(f"rank {self.rank} has stage {stage.stage_index}, which the given actions have on rank {places[stage.stage_index]}")
            stage.stage_index_to_group_rank = places
        self.stage_index_to_group_rank, self.pipeline_order = places, order
        self.pipeline_order_with_comms = (
            {rank: [a for a in row if a is not None] for rank, row in actions.items()} if format == "compute_comms"
            else _add_send_recv({rank: _add_unshard_reshard(row) for rank, row in actions.items()}, lambda stage: places[stage], self._num_stages)
        )  # fmt: skip

    def _load_csv(self, filename: str, format: str = "compute_only") -> None:
        """The actions of a file: a line a rank."""
        with open(filename, newline="") as file:
            rows = {rank: [Action.from_str(text) for text in row] for rank, row in enumerate(csv.reader(file))}
        self._load_actions(rows, format)


class _ScheduleForwardOnly(PipelineScheduleSingle):
    """Forward only."""

    def _order(self, rank: int) -> list[Action]:
        return [action for action in orders.gpipe(rank, self._n_microbatches) if action.computation_type is Kind.FORWARD]


class ScheduleGPipe(PipelineScheduleSingle):
    """All microbatches forward, then all backward."""

    def _order(self, rank: int) -> list[Action]:
        return orders.gpipe(rank, self._n_microbatches)


class Schedule1F1B(PipelineScheduleSingle):
    """Forward until the last stage has begun, then one backward and one forward in turn: a rank keeps as many activations as there are stages after it."""

    def _order(self, rank: int) -> list[Action]:
        if self._n_microbatches < self._num_stages:
            raise ValueError(f"Number of microbatches ({self._n_microbatches}) must be greater than or equal to the number of stages ({self._num_stages}).")
        return orders.one_forward_one_backward(rank, self.pp_group_size, self._n_microbatches)


class ScheduleLoopedBFS(PipelineScheduleMulti):
    """All microbatches through each of the rank's stages in turn."""

    def _order(self, rank: int) -> list[Action]:
        return orders.looped_bfs(rank, self.pp_group_size, self.n_local_stages, self._n_microbatches)


class ScheduleInterleaved1F1B(PipelineScheduleMulti):
    """1F1B with several stages a rank, which take rounds of microbatches in turn."""

    _zero_bubble = False

    def _order(self, rank: int) -> list[Action]:
        each = orders.rounds(self.pp_group_size, self._n_microbatches, "Zero bubble" if self._zero_bubble else "Interleaved 1F1B")
        return orders.interleaved(rank, self.pp_group_size, self.n_local_stages, self._n_microbatches, each, self._zero_bubble)


class ScheduleInterleavedZeroBubble(ScheduleInterleaved1F1B):
    """Interleaved 1F1B in which parameters' gradients are an action of their own, that comes later, where a rank would wait."""

    _zero_bubble = True


class ScheduleZBVZeroBubble(PipelineScheduleMulti):
    """Two stages a rank, there and back, so that the first rank has the last stage, too. Parameters' gradients as in ScheduleInterleavedZeroBubble."""

    def _places(self) -> list[int]:
        if self.n_local_stages != 2:
            raise ValueError(f"ZBV requires exactly 2 stages per rank, but got {self.n_local_stages}.")
        return orders.v_shaped(self.pp_group_size, self._num_stages)

    def _order(self, rank: int) -> list[Action]:
        return orders.zero_bubble_v(rank, self.pp_group_size, self._n_microbatches)


class ScheduleDualPipeV(ScheduleZBVZeroBubble):
    """Two stages a rank, there and back, in whose main part forward and backward passes of the two follow each other. Nothing overlaps within a rank."""

    def _order(self, rank: int) -> list[Action]:
        if self._n_microbatches < self._num_stages:
            raise ValueError(
                f"DualPipeV requires at least as many microbatches as stages, but got {self._n_microbatches} microbatches and {self._num_stages} stages."
            )
        return orders.dual_pipe_v(rank, self.pp_group_size, self._n_microbatches)


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """A schedule's class by its name ("1F1B"; capitals do not matter). ValueError for names that there are not."""
    known: dict[str, Any] = {
        "1F1B": Schedule1F1B, "Interleaved1F1B": ScheduleInterleaved1F1B, "GPipe": ScheduleGPipe, "LoopedBFS": ScheduleLoopedBFS,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble, "PipelineScheduleSingle": PipelineScheduleSingle,
        "PipelineScheduleMulti": PipelineScheduleMulti, "ZBVZeroBubble": ScheduleZBVZeroBubble,
        "DualPipeV": ScheduleDualPipeV,
    }  # fmt: skip
    for name, found in known.items():
        if name.lower() == schedule_name.lower():
            return found  # type: ignore[no-any-return]
    raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(known)}")
