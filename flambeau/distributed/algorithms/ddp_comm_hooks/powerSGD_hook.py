"""torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook: gradients that go as products of two thin matrices (Vogels and others, arXiv 1905.13727)."""

from __future__ import annotations

import math
from typing import Any

import flambeau
from flambeau.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, finished
from flambeau.distributed.collectives import all_reduce
from flambeau.distributed.group import ProcessGroup, default_group


class PowerSGDState:
    """Settings and memory of the hooks.

    A matrix of n x m goes as n x r and m x r, with r = `matrix_approximation_rank`, from step `start_powerSGD_iter` on, where that saves a factor of
    `min_compression_rate`. `use_error_feedback`: what was lost in a step is added to the next one's gradients. `warm_start`: a step begins with the last one's
    factors. `orthogonalization_epsilon` is added to columns' norms, so that columns of zeros are no division by zero. The process group is no part of a pickle.
    """

    __slots__ = (
        "batch_tensors_with_same_shape", "compression_stats_logging_frequency", "error_dict", "iter", "matrix_approximation_rank", "min_compression_rate",
        "next_stats_report", "orthogonalization_epsilon", "p_memory_dict", "process_group", "q_memory_dict", "rng", "start_powerSGD_iter",
        "total_numel_after_compression", "total_numel_before_compression", "use_error_feedback", "warm_start",
    )  # fmt: skip

    def __init__(
        self, process_group: ProcessGroup | None, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000, min_compression_rate: float = 2,
        use_error_feedback: bool = True, warm_start: bool = True, orthogonalization_epsilon: float = 0, random_seed: int = 0,
        compression_stats_logging_frequency: int = 10000, batch_tensors_with_same_shape: bool = False,
    ) -> None:  # fmt: skip
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError(
                "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only be applied after the first two "
                f"iterations in DDP; got {start_powerSGD_iter}."
            )
        import numpy

        self.process_group = process_group
        self.matrix_approximation_rank, self.min_compression_rate = matrix_approximation_rank, min_compression_rate
        self.start_powerSGD_iter, self.use_error_feedback, self.warm_start = start_powerSGD_iter, use_error_feedback, warm_start
        self.orthogonalization_epsilon, self.batch_tensors_with_same_shape = orthogonalization_epsilon, batch_tensors_with_same_shape
        self.rng = numpy.random.RandomState(random_seed)
        self.error_dict: dict[int, Any] = {}
        self.p_memory_dict: dict[int, Any] = {}
        self.q_memory_dict: dict[int, Any] = {}
        self.iter = self.next_stats_report = self.total_numel_before_compression = self.total_numel_after_compression = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "process_group"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.process_group = default_group()
        for name, value in state.items():
            setattr(self, name, value)

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count a step when its last bucket comes."""
        self.iter += bucket.is_last()

    def compression_stats(self) -> tuple[float, int, int]:
        """(factor, elements before, elements after) of all that has gone compressed so far."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return (before / after if after else 0), before, after

    def _with_error(self, index: int, flat: Any) -> Any:
        """Add what the last step lost to a bucket; a copy of the sum, None without error feedback."""
        if not self.use_error_feedback:
            return None
        if index in self.error_dict:
            flat.add_(self.error_dict[index])
        return flat.clone()

    def _random(self, shapes: list[tuple[int, ...]], dtype: Any) -> list[Any]:
        """The same normal numbers on each rank; the generator stays as it is."""
        with flambeau.random.fork_rng(devices=[]):
            flambeau.manual_seed(int(self.rng.randint(1_000_000_000)))
            return [flambeau.randn(*shape, dtype=dtype) for shape in shapes]


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """The mean of the gradients: matrices as products of thin ones, small tensors as they are."""
    group = default_group() if state.process_group is None else state.process_group
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    flat, index = bucket.buffer(), bucket.index()
    before = state._with_error(index, flat)
    matrices: dict[tuple[int, ...], list[Any]] = {}
    whole = []
    for tensor in bucket.gradients():
        matrix = tensor.view(tensor.shape[0], -1)
        n, m = matrix.shape
        thin = (n + m) * min(n, m, state.matrix_approximation_rank)
        worth = thin * state.min_compression_rate < n * m
        state.total_numel_before_compression += n * m
        state.total_numel_after_compression += thin if worth else n * m
        if worth:
            matrices.setdefault((n, m), []).append(matrix)
        else:
            whole.append(tensor)
    _mean_of(whole, group)
    # Batches of matrices of one shape: single ones, unless they may be taken together.
    batches = [batch for alike in matrices.values() for batch in ([alike] if state.batch_tensors_with_same_shape else [[matrix] for matrix in alike])]
    stacks = [flambeau.stack(batch) for batch in batches]
    if stacks:
        ranks = [min(*stack.shape[1:], state.matrix_approximation_rank) for stack in stacks]
        qs = state.q_memory_dict.get(index) if state.warm_start else None
        if qs is None:
            qs = state._random([(stack.shape[0], stack.shape[2], rank) for stack, rank in zip(stacks, ranks, strict=True)], flat.dtype)
        qs = [_orthogonal(q, state.orthogonalization_epsilon) for q in qs]
        ps = _sums([flambeau.bmm(stack, q) for stack, q in zip(stacks, qs, strict=True)], group)
        ps = [_orthogonal(p, state.orthogonalization_epsilon) for p in ps]
        qs = [q / group.size() for q in _sums([flambeau.bmm(stack.transpose(1, 2), p) for stack, p in zip(stacks, ps, strict=True)], group)]
        for batch, p, q in zip(batches, ps, qs, strict=True):
            for matrix, product in zip(batch, flambeau.bmm(p, q.transpose(1, 2)), strict=True):
                matrix.copy_(product)
        if state.warm_start:
            state.p_memory_dict[index], state.q_memory_dict[index] = ps, qs
    if before is not None:
        state.error_dict[index] = before - flat
    state.maybe_increase_iter(bucket)
    return finished(flat)


def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Any:
    """The mean of the gradients, of which the whole bucket is taken as one square matrix: fewer bytes than powerSGD_hook, and less of the gradients."""
    group = default_group() if state.process_group is None else state.process_group
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(group, bucket)
    flat, index = bucket.buffer(), bucket.index()
    side, rank = math.ceil(math.sqrt(flat.numel())), state.matrix_approximation_rank
    state.total_numel_before_compression += flat.numel()
    state.total_numel_after_compression += 2 * side * rank
    padded = flambeau.nn.functional.pad(flat, (0, side * side - flat.numel()))
    before = state._with_error(index, padded)
    matrix = padded.view(side, side)
    q = state.q_memory_dict.get(index) if state.warm_start else None
    if q is None:
        (q,) = state._random([(side, rank)], flat.dtype)
    q = _orthogonal(q[None], 0)[0]
    p = matrix @ q
    all_reduce(p, group=group)
    p = _orthogonal(p[None], 0)[0]
    q = matrix.t() @ p
    all_reduce(q, group=group)
    q = q / group.size()
    product = (p @ q.t()).reshape(-1)
    if state.warm_start:
        state.p_memory_dict[index], state.q_memory_dict[index] = p, q
    if before is not None:
        state.error_dict[index] = before - product
    state.maybe_increase_iter(bucket)
    return finished(product[: flat.numel()])


def _sums(tensors: list[Any], group: ProcessGroup) -> list[Any]:
    """The sums over the ranks, of all in one collective."""
    flat = flambeau.cat([t.reshape(-1) for t in tensors])
    all_reduce(flat, group=group)
    return [part.view(t.shape) for part, t in zip(flat.split([t.numel() for t in tensors]), tensors, strict=True)]  # type: ignore[attr-defined]


def _mean_of(tensors: list[Any], group: ProcessGroup) -> None:
    """Tensors become their mean over the ranks."""
    if tensors:
        for t, total in zip(tensors, _sums(tensors, group), strict=True):
            t.copy_(total / group.size())


def _orthogonal(matrices: Any, epsilon: float) -> Any:
    """Matrices with orthogonal columns of length 1 that span what these do."""
    rank = matrices.shape[2]
    if rank > 2 and matrices.dtype not in (flambeau.float16, flambeau.bfloat16):
        return flambeau.linalg.qr(matrices)[0]
    columns: list[Any] = []
    for i in range(rank):
        column = matrices[:, :, i : i + 1]
        for done in columns:
            column = column - (done * column).sum(1, keepdim=True) * done
        columns.append(column / (flambeau.linalg.vector_norm(column, dim=1, keepdim=True) + epsilon))
    return flambeau.cat(columns, 2)
