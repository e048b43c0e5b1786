"""torch.distributed.pipelining.stage: a part of a model on one rank, what it hands to the next part, and what gradients come back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.group import ProcessGroup, default_group, member
from flambeau.distributed.messages import isend, recv
from flambeau.distributed.pipelining import orders
from flambeau.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from flambeau.tensor import Tensor
from flambeau.utils import _pytree as pytree

if TYPE_CHECKING:
    from flambeau.nn.modules.module import Module

_HEAD = 128  # numbers in front of what is handed over: how many tensors, and of each its dtype, whether it needs a gradient, and its sizes
_TAGS = 1 << 16  # of messages between stages, from here on; MPI has tags up to 2 ** 20 at least with MPICH


def _kinds() -> list[Any]:
    """All dtypes, in an order that is the same on each rank."""
    found = {value.name: value for value in vars(flambeau).values() if isinstance(value, flambeau.dtype)}
    return [found[name] for name in sorted(found)]


class PipelineStage:
    """Stage `stage_index` of `num_stages`: `submodule` on this rank of `group`. Between stages go tensors, or tuples of them.

    Each message says what shapes and dtypes come, so that `input_args`, `output_args` and gradients' examples are not needed. `dw_builder()` is called with
    each backward pass; what it returns is called where the schedule has the parameters' gradients. DistributedDataParallel and fully_shard as `submodule`
    make these with the inputs'.
    """

    def __init__(
        self, submodule: Module, stage_index: int, num_stages: int, device: Any = None, input_args: Any = None, output_args: Any = None,
        output_grads: Any = None, input_grads: Any = None, group: Any = None, dw_builder: Callable[[], Callable[..., None]] | None = None, get_mesh: Any = None,
    ) -> None:  # fmt: skip
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        found: ProcessGroup | None = default_group() if group is None else member(group)
        if found is None:
            raise ValueError("PipelineStage: this process is not in the group")
        if found.size() > num_stages:
            raise ValueError(f"Pipeline group size {found.size()} cannot be larger than number of stages {num_stages}")
        self.submod, self.stage_index, self.num_stages = submodule, stage_index, num_stages
        self.device, self.group, self.dw_builder = flambeau.device("cpu" if device is None else device), group, dw_builder
        self._members = found
        self.group_rank, self.group_size = found.rank(), found.size()
        self.stage_index_to_group_rank = dict(enumerate(orders.looped(found.size(), num_stages)))
        self.has_backward = False
        self.neighbours: dict[int, PipelineStage] = {}  # stages of this rank
        self.clear_runtime_states()

    @property
    def is_first(self) -> bool:
        """Whether it takes the model's inputs."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether it gives the model's results."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self) -> None:
        """Forget the last step."""
        self.output_chunks: list[Any] = []
        self.fwd_cache: dict[int, tuple[tuple[Tensor, ...], list[Tensor]]] = {}
        self.backward_state: dict[int, Callable[..., None]] = {}
        self.kept: dict[int, list[dict[str, Any]]] = {}  # of what parameters' gradients are made later
        self._kept: dict[tuple[bool, int], Sequence[Any]] = {}  # what a stage of this rank has handed over: (of gradients, microbatch)
        self._under_way: list[Any] = []

    # -- from stage to stage ----------------------------------------------------------------------------------------------------------
    def _tag(self, target: int, microbatch: int, gradients: bool) -> int:
        return _TAGS + 2 * (microbatch * self.num_stages + target) + gradients

    def hand_over(self, tensors: Sequence[Tensor | None], target: int, microbatch: int, gradients: bool) -> None:
        """Give tensors to another stage, without waiting for it."""
        if target in self.neighbours:
            self.neighbours[target]._kept[gradients, microbatch] = tensors
            return
        rank, tag = self.stage_index_to_group_rank[target], self._tag(target, microbatch, gradients)
        kinds, head = _kinds(), [len(tensors)]
        for t in tensors:
            head += [-1] if t is None else [kinds.index(t.dtype), int(t.requires_grad), t.ndim, *t.shape]
        if len(head) > _HEAD:
            raise ValueError(f"pipelining: stage {self.stage_index} hands over {len(tensors)} tensors, whose shapes need more than {_HEAD} numbers")
        row = flambeau.tensor(head + [0] * (_HEAD - len(head)), dtype=flambeau.int64)
        for message in [row, *(t.detach().contiguous() for t in tensors if t is not None)]:
            self._under_way.append(isend(message, group=self.group, group_dst=rank, tag=tag))

    def take_over(self, source: int, microbatch: int, gradients: bool) -> list[Tensor | None]:
        """What another stage has given to this one, once it is there."""
        if source in self.neighbours:
            kept = self._kept.pop((gradients, microbatch))
            return [None if t is None else t.detach().requires_grad_(t.requires_grad and not gradients) for t in kept]
        rank, tag = self.stage_index_to_group_rank[source], self._tag(self.stage_index, microbatch, gradients)
        head = flambeau.empty(_HEAD, dtype=flambeau.int64)
        recv(head, group=self.group, group_src=rank, tag=tag)
        numbers, kinds = iter(head.tolist()), _kinds()
        tensors: list[Tensor | None] = []
        for _ in range(next(numbers)):
            kind = next(numbers)
            if kind < 0:
                tensors.append(None)
                continue
            needs, ndim = next(numbers), next(numbers)
            t = flambeau.empty([next(numbers) for _ in range(ndim)], dtype=kinds[kind])
            recv(t, group=self.group, group_src=rank, tag=tag)
            tensors.append(t.requires_grad_() if needs and not gradients else t)
        return tensors

    def wait_for_messages(self) -> None:
        """What was handed over has gone."""
        for work in self._under_way:
            if work is not None:
                work.wait()
        self._under_way.clear()

    # -- a microbatch -------------------------------------------------------------------------------------------------------------------
    def forward_one_chunk(self, fwd_chunk_id: int, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, save_forward_output: bool = True) -> Any:
        """Take a microbatch through the module: of `args` in the first stage, else of what the stage before has handed over."""
        inputs = args if self.is_first else tuple(self.take_over(self.stage_index - 1, fwd_chunk_id, False))
        try:
            with self._without_exchange():
                output = self.submod(*inputs, **(kwargs or {}))
        except DistBackendError:
            raise
        except Exception as error:
            shapes = [tuple(t.shape) if isinstance(t, Tensor) else t for t in inputs]
            raise RuntimeError(f"[Stage {self.stage_index}] failed to run forward on microbatch {fwd_chunk_id}, args {shapes}: {error}") from error
        outputs = tuple(output) if isinstance(output, (list, tuple)) else (output,)
        if self.is_last:
            if save_forward_output:
                self.output_chunks.append(output)
        else:
            for t in outputs:
                if not isinstance(t, Tensor):
                    raise TypeError(f"pipelining: stage {self.stage_index} must return a tensor or a tuple of tensors, got {type(t).__name__} in it")
            self.hand_over(outputs, self.stage_index + 1, fwd_chunk_id, False)
        if self.has_backward:
            self.fwd_cache[fwd_chunk_id] = (outputs, [t for t in pytree.tree_leaves(inputs) if isinstance(t, Tensor)])
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False) -> None:
        """Take a microbatch's gradients through the module: of `loss` in the last stage, else of those that the next stage has handed back."""
        outputs, inputs = self.fwd_cache.pop(bwd_chunk_id)
        if self.is_last:
            pairs: list[tuple[Any, Any]] = [(loss, None)] if loss is not None and loss.requires_grad else []
        else:
            handed = self.take_over(self.stage_index + 1, bwd_chunk_id, True)
            pairs = [(t, g) for t, g in zip(outputs, handed, strict=True) if g is not None and t.requires_grad]
        roots, gradients = [t for t, _ in pairs], [g for _, g in pairs]
        self._exchanges(last_backward)
        if not full_backward and not self._gathers():
            given = [flambeau.ones_like(t) if g is None else g for t, g in pairs]
            self.kept[bwd_chunk_id] = stage_backward_input(roots, given, inputs, self.submod.parameters())[1]
        elif roots:
            flambeau.autograd.backward(roots, gradients)
        if not self.is_first:
            self.hand_over([t.grad if t.requires_grad else None for t in inputs], self.stage_index - 1, bwd_chunk_id, True)
        if self.dw_builder is not None:
            later = self.dw_builder()
            if full_backward:
                later()
            else:
                self.backward_state[bwd_chunk_id] = later

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """The parameters' gradients, of what the backward pass for the inputs has kept, and what `dw_builder` gave."""
        if bwd_chunk_id in self.kept:
            stage_backward_weight(self.submod.parameters(), self.kept.pop(bwd_chunk_id))
        if bwd_chunk_id in self.backward_state:
            self.backward_state.pop(bwd_chunk_id)()

    def _gathers(self) -> bool:
        """Whether the module sees to its parameters' gradients in the backward pass: then it is made whole."""
        from flambeau.nn.parallel.distributed import DistributedDataParallel

        return isinstance(self.submod, DistributedDataParallel) or hasattr(self.submod, "set_requires_gradient_sync")

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divide the parameters' gradients."""
        if grad_scale_factor != 1:
            with flambeau.no_grad():
                for p in self.submod.parameters():
                    if p.grad is not None:
                        p.grad.div_(grad_scale_factor)

    # -- modules that exchange gradients themselves: only with the last microbatch ----------------------------------------------------------
    def _without_exchange(self) -> Any:
        from flambeau.nn.parallel.distributed import DistributedDataParallel

        if isinstance(self.submod, DistributedDataParallel) and self.has_backward:
            return self.submod.no_sync()
        return contextlib.nullcontext()

    def _exchanges(self, last: bool) -> None:
        from flambeau.nn.parallel.distributed import DistributedDataParallel

        if isinstance(self.submod, DistributedDataParallel):
            if self.submod.reducer is not None:
                self.submod.reducer.armed = last
        elif hasattr(self.submod, "set_requires_gradient_sync"):
            self.submod.set_requires_gradient_sync(last)


def build_stage(stage_module: Module, stage_index: int, pipe_info: Any, device: Any, group: Any = None) -> PipelineStage:
    """A stage of a model that `pipeline` has cut."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


_PipelineStageBase = PipelineStage  # the class that PyTorch derives it from
