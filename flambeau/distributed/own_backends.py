"""Backends of one's own: what `Backend.register_backend` was given makes a group's collectives. They are called as PyTorch calls its process groups."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.distributed import options
from flambeau.distributed.backend_calls import BackendCalls
from flambeau.distributed.store import PrefixStore

if TYPE_CHECKING:
    from flambeau.distributed.group import ProcessGroup
    from flambeau.distributed.store import Store


class DistributedBackendOptions:
    """What a backend that was registered with `extended_api` is made of."""

    def __init__(self, store: Store, rank: int, size: int, timeout: Any, name: str, ranks: Sequence[int]) -> None:
        self.store, self.group_rank, self.group_size, self.timeout, self.group_id = store, rank, size, timeout, name
        self.global_ranks_in_group = list(ranks)


def make(plugin: Any, store: Store, rank: int, ranks: Sequence[int], timeout: Any, name: str, pg_options: Any) -> Any:
    """The backend's object for a group."""
    within = PrefixStore("cpu", store)
    if plugin.extended_api:
        return plugin.creator_fn(DistributedBackendOptions(within, rank, len(ranks), timeout, name, ranks), pg_options)
    return plugin.creator_fn(within, rank, len(ranks), timeout)


def _method(backend: Any, *names: str) -> Callable[..., Any]:
    for name in names:
        # What a class derived from ProcessGroup has from it is no method of its own.
        if hasattr(backend, name) and getattr(type(backend), name, None) is not getattr(BackendCalls, name, backend):
            return getattr(backend, name)  # type: ignore[no-any-return]
    raise NotImplementedError(f"the backend {type(backend).__name__} has no {names[0]}")


def _end(work: Any, async_op: bool) -> Any:
    if async_op:
        return work
    if work is not None:
        work.wait()
    return None


def _with(kind: type, async_op: bool, **values: Any) -> Any:
    made = kind()
    made.asyncOp = async_op
    for name, value in values.items():
        setattr(made, name, value)
    return made


def all_reduce(group: ProcessGroup, tensors: Sequence[Any], op: Any, async_op: bool, coalesced: bool = False) -> Any:
    """all_reduce of one tensor, or of several in one go."""
    kind = options.AllreduceCoalescedOptions if coalesced else options.AllreduceOptions
    call = _method(group.own_backend, "allreduce_coalesced" if coalesced else "allreduce")
    work = call(list(tensors), _with(kind, async_op, reduceOp=op))
    return work.get_future() if coalesced and async_op else _end(work, async_op)


def broadcast(group: ProcessGroup, tensor: Any, root: int, async_op: bool) -> Any:
    """broadcast from a place in the group."""
    work = _method(group.own_backend, "broadcast")([tensor], _with(options.BroadcastOptions, async_op, rootRank=root, rootTensor=0))
    return _end(work, async_op)


def reduce(group: ProcessGroup, tensor: Any, root: int, op: Any, async_op: bool) -> Any:
    """reduce to a place in the group."""
    return _end(_method(group.own_backend, "reduce")([tensor], _with(options.ReduceOptions, async_op, reduceOp=op, rootRank=root)), async_op)


def all_gather(group: ProcessGroup, outputs: Sequence[Any], tensor: Any, async_op: bool) -> Any:
    """all_gather of one tensor."""
    return _end(_method(group.own_backend, "allgather")([list(outputs)], [tensor], _with(options.AllgatherOptions, async_op)), async_op)


def all_gather_coalesced(group: ProcessGroup, output_lists: Any, inputs: Any, async_op: bool) -> Any:
    """all_gather of several tensors."""
    work = _method(group.own_backend, "allgather_coalesced")(output_lists, inputs, _with(options.AllgatherOptions, async_op))
    return work.get_future() if async_op else _end(work, False)


def all_gather_into_tensor(group: ProcessGroup, output: Any, tensor: Any, async_op: bool) -> Any:
    """all_gather into one tensor."""
    call = _method(group.own_backend, "all_gather_single", "_allgather_base")
    return _end(call(output, tensor, _with(options.AllgatherOptions, async_op)), async_op)


def gather(group: ProcessGroup, tensor: Any, outputs: Sequence[Any], root: int, async_op: bool) -> Any:
    """gather to a place in the group."""
    rows = [list(outputs)] if root == group.rank() else []
    return _end(_method(group.own_backend, "gather")(rows, [tensor], _with(options.GatherOptions, async_op, rootRank=root)), async_op)


def scatter(group: ProcessGroup, tensor: Any, inputs: Sequence[Any], root: int, async_op: bool) -> Any:
    """scatter from a place in the group."""
    rows = [list(inputs)] if root == group.rank() else []
    return _end(_method(group.own_backend, "scatter")([tensor], rows, _with(options.ScatterOptions, async_op, rootRank=root)), async_op)


def reduce_scatter(group: ProcessGroup, output: Any, inputs: Sequence[Any], op: Any, async_op: bool) -> Any:
    """reduce_scatter of a list."""
    call = _method(group.own_backend, "reduce_scatter")
    return _end(call([output], [list(inputs)], _with(options.ReduceScatterOptions, async_op, reduceOp=op)), async_op)


def reduce_scatter_tensor(group: ProcessGroup, output: Any, tensor: Any, op: Any, async_op: bool) -> Any:
    """reduce_scatter of one tensor."""
    call = _method(group.own_backend, "reduce_scatter_single", "_reduce_scatter_base")
    return _end(call(output, tensor, _with(options.ReduceScatterOptions, async_op, reduceOp=op)), async_op)


def all_to_all(group: ProcessGroup, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool) -> Any:
    """all_to_all of lists."""
    return _end(_method(group.own_backend, "alltoall")(list(outputs), list(inputs), _with(options.AllToAllOptions, async_op)), async_op)


def all_to_all_single(group: ProcessGroup, output: Any, tensor: Any, output_sizes: Any, input_sizes: Any, async_op: bool) -> Any:
    """all_to_all of one tensor."""
    call = _method(group.own_backend, "all_to_all_single", "alltoall_base")
    return _end(call(output, tensor, list(output_sizes or []), list(input_sizes or []), _with(options.AllToAllOptions, async_op)), async_op)


def barrier(group: ProcessGroup, async_op: bool) -> Any:
    """barrier."""
    return _end(_method(group.own_backend, "barrier")(_with(options.BarrierOptions, async_op)), async_op)


class OwnMail:
    """Messages between members, by the backend (in place of p2p.Mail)."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group

    def send(self, tensor: Any, peer: int, tag: int, beside: bool) -> Any:
        """Send a tensor."""
        return _end(_method(self.group.own_backend, "send")([tensor], peer, tag), beside)

    def receive(self, tensor: Any, peer: int, tag: int, beside: bool) -> Any:
        """Receive a tensor."""
        return _end(_method(self.group.own_backend, "recv")([tensor], peer, tag), beside)

    def receive_from_any(self, tensor: Any, tag: int, beside: bool) -> Any:
        """Receive a tensor from whoever sends first."""
        work = _method(self.group.own_backend, "recv_anysource")([tensor], tag)
        if not beside:
            work.wait()
        return work


def shared(group: ProcessGroup, own: list[bytes]) -> list[list[bytes]]:
    """The texts of all ranks, by the backend's all_gather."""
    import flambeau

    text = pickle.dumps(own)
    lengths = [flambeau.zeros(1, dtype=flambeau.int64) for _ in range(group.size())]
    all_gather(group, lengths, flambeau.tensor([len(text)], dtype=flambeau.int64), False)
    longest = int(max(int(n) for n in lengths))
    message = flambeau.frombuffer(bytearray(text.ljust(longest, b"\0")), dtype=flambeau.uint8)
    found = [flambeau.zeros(longest, dtype=flambeau.uint8) for _ in range(group.size())]
    all_gather(group, found, message, False)
    return [pickle.loads(t.numpy().tobytes()[: int(n)]) for t, n in zip(found, lengths, strict=True)]
