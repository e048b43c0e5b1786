"""Collectives as methods of a process group, as PyTorch's backends have them: lists of tensors, options, a Work that goes on beside the program.

Each rank may give several tensors of one shape: `allreduce` adds up all of them, `broadcast` hands one to all of all ranks, `allgather` gathers all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.work import Work

if TYPE_CHECKING:
    from flambeau.distributed.group import ProcessGroup
    from flambeau.tensor import Tensor


def _refuse(name: str, why: str) -> NoReturn:
    raise RuntimeError(f"ProcessGroupGloo::{name}: {why}")


def _listed(tensors: Any) -> list[Any]:
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _operator(op: Any) -> Any:
    """The operator, given alone or in options."""
    return ReduceOp.SUM if op is None else getattr(op, "reduceOp", op)


def _alike(name: str, first: Tensor, tensors: Sequence[Tensor]) -> None:
    """RuntimeError unless all tensors have the dtype and the shape of the first."""
    for i, t in enumerate(tensors):
        if t.is_sparse is not first.is_sparse:
            _refuse(name, f"invalid tensor layout at index {i} (expected {first.layout}, got {t.layout})")
        if t.dtype is not first.dtype:
            _refuse(name, f"invalid tensor type at index {i} (expected {first.dtype}, got {t.dtype})")
        if t.shape != first.shape:
            _refuse(name, f"invalid tensor size at index {i} (expected {tuple(first.shape)}, got {tuple(t.shape)})")


def _one_a_rank(name: str, what: str, lists: Any, like: Tensor, size: int) -> list[Any]:
    """The only list of the root, which has a tensor like another one for each rank."""
    if len(lists) != 1:
        _refuse(name, f"requires a single-element {what} list containing a list with <size> tensors")
    tensors = list(lists[0])
    if len(tensors) != size:
        _refuse(name, f"Incorrect {what} list size {len(tensors)}. {what.capitalize()} list size should be {size}, same as size of the process group.")
    _alike(name, like, tensors)
    return tensors


def _root(name: str, group: ProcessGroup, root: int) -> None:
    if not 0 <= root < group.size():
        _refuse(name, f"invalid root rank: {root}")


class BackendCalls:
    """The methods. They go by the functions of torch.distributed, whose rules for async_op, order and errors hold."""

    def allreduce(self: Any, tensors: Any, op: Any = None, timeout: Any = None) -> Work:
        """The tensors of all ranks become their sum (or what `op` says, or its reduceOp)."""
        from flambeau.distributed.reductions import all_reduce_copies

        listed = _listed(tensors)
        if not listed:
            _refuse("allreduce", "requires non-empty tensor list")
        _alike("allreduce", listed[0], listed)
        return all_reduce_copies(listed, _operator(op), self)

    def allreduce_coalesced(self: Any, tensors: Any, op: Any = None) -> Work:
        """all_reduce of each tensor, in one go."""
        from flambeau.distributed.reductions import reduce_all

        listed = _listed(tensors)
        if not listed:
            _refuse("allreduce_coalesced", "requires non-empty tensor list")
        for i, t in enumerate(listed):
            if t.is_sparse is not listed[0].is_sparse:
                _refuse("allreduce_coalesced", f"invalid tensor layout at index {i} (expected {listed[0].layout}, got {t.layout})")
        if listed[0].is_sparse:
            _refuse("allreduce_coalesced", f"unsupported layout: {listed[0].layout}")
        if len({t.dtype for t in listed}) > 1:
            _refuse("allreduce_coalesced", "tensors must all have the same type")
        return reduce_all(self, "all_reduce_coalesced", listed, _operator(op), True)  # type: ignore[return-value]

    def broadcast(self: Any, tensors: Any, root: Any = 0, timeout: Any = None) -> Work:
        """All tensors of all ranks become one of the root's (`root`: a place in the group, or options, which say also which tensor)."""
        from flambeau.distributed.collectives import broadcast_copies

        listed = _listed(tensors)
        place, which = (root, 0) if isinstance(root, int) else (root.rootRank, root.rootTensor)
        _root("broadcast", self, place)
        if not 0 <= which < len(listed):
            _refuse("broadcast", f"invalid root tensor: {which}")
        _alike("broadcast", listed[0], listed)
        return broadcast_copies(listed, place, which, self)

    def reduce(self: Any, tensors: Any, root: Any = 0, op: Any = None, timeout: Any = None) -> Work:
        """The root's tensor becomes the sum over all ranks."""
        from flambeau.distributed.reductions import reduce

        listed = _listed(tensors)
        place, which, op = (root, 0, op) if isinstance(root, int) else (root.rootRank, root.rootTensor, root.reduceOp)
        _root("reduce", self, place)
        if not 0 <= which < len(listed):
            _refuse("reduce", f"invalid root tensor: {which}")
        if len(listed) != 1:
            _refuse("reduce", "requires a single-element tensor list")
        return _as_list(reduce(listed[0], None, _operator(op), self, True, place), listed)

    def allgather(self: Any, output_tensors: Any, input_tensors: Any, options: Any = None, timeout: Any = None) -> Work:
        """Each list of outputs gets the inputs of all ranks, rank by rank."""
        from flambeau.distributed.collectives import all_gather_copies

        if isinstance(input_tensors, (list, tuple)):
            inputs, outputs = list(input_tensors), [list(row) for row in output_tensors]
        else:
            inputs, outputs = [input_tensors], [list(output_tensors)]
        if not inputs:
            _refuse("allgather", "requires non-empty input tensor list")
        if len(inputs) != len(outputs):
            _refuse("allgather", "requires input/output tensor lists to have the same length")
        for i, row in enumerate(outputs):
            if len(row) != len(inputs) * self.size():
                _refuse("allgather", f"invalid output tensor list at index {i} (expected length {len(inputs) * self.size()}, got {len(row)})")
        _alike("allgather", inputs[0], inputs)
        for row in outputs:
            _alike("allgather", inputs[0], row)
        return all_gather_copies(outputs, inputs, self)

    def allgather_coalesced(self: Any, output_lists: Any, input_list: Any, options: Any = None) -> Work:
        """output_lists[r][i] becomes input_list[i] of rank r."""
        from flambeau.distributed.collectives import gather_coalesced

        return gather_coalesced(output_lists, input_list, self, True)  # type: ignore[return-value]

    def _allgather_base(self: Any, output: Any, input: Any, options: Any = None, timeout: Any = None) -> Work:
        """The output becomes the inputs of all ranks, joined."""
        from flambeau.distributed.collectives import all_gather_into_tensor

        return all_gather_into_tensor(output, input, self, async_op=True)  # type: ignore[return-value]

    all_gather_single = _allgather_base

    def allgather_into_tensor_coalesced(self: Any, outputs: Any, inputs: Any, options: Any = None) -> Work:
        """_allgather_base of each pair."""
        return _joined(self, [self._allgather_base(output, input) for output, input in zip(outputs, inputs, strict=True)], outputs)

    all_gather_single_coalesced = allgather_into_tensor_coalesced

    def gather(self: Any, output_tensors: Any, input_tensors: Any, root: Any = 0, timeout: Any = None) -> Work:
        """The root's one list of outputs gets the tensors of all ranks."""
        from flambeau.distributed.collectives import gather

        if not isinstance(input_tensors, (list, tuple)):
            input_tensors, output_tensors = [input_tensors], [output_tensors] if output_tensors else []
        place = getattr(root, "rootRank", root)
        _root("gather", self, place)
        if len(input_tensors) != 1:
            _refuse("gather", "requires a single-element input tensor list")
        if place != self.rank():
            if output_tensors:
                _refuse("gather", "requires empty output on non-root")
            return _as_list(gather(input_tensors[0], None, None, self, True, place), [])
        outputs = _one_a_rank("gather", "output", output_tensors, input_tensors[0], self.size())
        return _as_list(gather(input_tensors[0], outputs, None, self, True, place), outputs)

    def scatter(self: Any, output_tensors: Any, input_tensors: Any, root: Any = 0, timeout: Any = None) -> Work:
        """The one output becomes this rank's tensor in the root's one list of inputs."""
        from flambeau.distributed.collectives import scatter

        if not isinstance(output_tensors, (list, tuple)):
            output_tensors, input_tensors = [output_tensors], [input_tensors] if input_tensors else []
        place = getattr(root, "rootRank", root)
        _root("scatter", self, place)
        if len(output_tensors) != 1:
            _refuse("scatter", "requires a single-element output tensor list")
        if place != self.rank():
            if input_tensors:
                _refuse("scatter", "requires empty input on non-root")
            return _as_list(scatter(output_tensors[0], None, None, self, True, place), output_tensors)
        inputs = _one_a_rank("scatter", "input", input_tensors, output_tensors[0], self.size())
        return _as_list(scatter(output_tensors[0], inputs, None, self, True, place), output_tensors)

    def reduce_scatter(self: Any, output_tensors: Any, input_tensors: Any, op: Any = None, timeout: Any = None) -> Work:
        """The one output becomes the sum over all ranks of this rank's place in their lists."""
        from flambeau.distributed.reductions import reduce_scatter

        if isinstance(output_tensors, (list, tuple)):
            if len(output_tensors) != 1 or len(input_tensors) != 1:
                _refuse("reduce_scatter", "requires a single-element input/output tensor list")
            output_tensors, input_tensors = output_tensors[0], input_tensors[0]
        return _as_list(reduce_scatter(output_tensors, list(input_tensors), _operator(op), self, True), [output_tensors])

    def _reduce_scatter_base(self: Any, output: Any, input: Any, op: Any = None, timeout: Any = None) -> Work:
        """The output becomes this rank's part of the sum over all ranks."""
        from flambeau.distributed.reductions import reduce_scatter_tensor

        return reduce_scatter_tensor(output, input, _operator(op), self, async_op=True)  # type: ignore[return-value]

    reduce_scatter_single = _reduce_scatter_base

    def reduce_scatter_tensor_coalesced(self: Any, outputs: Any, inputs: Any, op: Any = None) -> Work:
        """_reduce_scatter_base of each pair."""
        return _joined(self, [self._reduce_scatter_base(output, input, op) for output, input in zip(outputs, inputs, strict=True)], outputs)

    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced

    def alltoall(self: Any, output_tensors: Any, input_tensors: Any, options: Any = None, timeout: Any = None) -> Work:
        """The r-th output becomes what rank r has in this rank's place of its inputs."""
        from flambeau.distributed.collectives import all_to_all

        return all_to_all(list(output_tensors), list(input_tensors), self, async_op=True)  # type: ignore[return-value]

    def alltoall_base(self: Any, output: Any, input: Any, output_split_sizes: Any, input_split_sizes: Any, options: Any = None, timeout: Any = None) -> Work:
        """all_to_all of the parts of one tensor."""
        from flambeau.distributed.collectives import all_to_all_single

        return all_to_all_single(output, input, output_split_sizes, input_split_sizes, self, async_op=True)  # type: ignore[return-value]

    all_to_all_single = alltoall_base

    def send(self: Any, tensors: Any, dstRank: int, tag: int = 0) -> Work:
        """Send one tensor to a place in the group."""
        return self.mail.send(_only(tensors, "send"), dstRank, tag, True)  # type: ignore[no-any-return]

    def recv(self: Any, tensors: Any, srcRank: int, tag: int = 0) -> Work:
        """Receive one tensor from a place in the group."""
        return self.mail.receive(_only(tensors, "recv"), srcRank, tag, True)  # type: ignore[no-any-return]

    def recv_anysource(self: Any, tensors: Any, tag: int = 0) -> Work:
        """Receive one tensor from whoever sends first."""
        return self.mail.receive_from_any(_only(tensors, "recv_anysource"), tag, True)  # type: ignore[no-any-return]

    def barrier(self: Any, *options: Any, **more: Any) -> Work:
        """Wait until all ranks have come."""
        from flambeau.distributed.collectives import barrier

        return barrier(self, async_op=True)  # type: ignore[return-value]

    def monitored_barrier(self: Any, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        """monitored_barrier of this group."""
        from flambeau.distributed.collectives import monitored_barrier

        monitored_barrier(self, timeout, wait_all_ranks)


def _only(tensors: Any, name: str) -> Any:
    listed = _listed(tensors)
    if len(listed) != 1:
        _refuse(name, "requires a single-element tensor list")
    return listed[0]


def _joined(group: Any, works: list[Any], results: Any) -> Work:
    """A Work of all of these, which the group's thread does before it."""

    def run() -> None:
        for work in works:
            work.wait()

    return group.lane.later(Work(results, run, "coalesced"))  # type: ignore[no-any-return]


def _as_list(work: Any, results: list[Any]) -> Work:
    """The Work, whose results are a list of tensors."""
    work._results = results
    return work  # type: ignore[no-any-return]
