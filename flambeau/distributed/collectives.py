"""Collectives that hand tensors from rank to rank, and barriers; reductions are in reductions.py."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from flambeau.distributed import own_backends
from flambeau.distributed.agreement import collective
from flambeau.distributed.calls import check_whole, done, one_kind, perform, root_of
from flambeau.distributed.errors import DistBackendError
from flambeau.distributed.group import ProcessGroup, member
from flambeau.distributed.memory import Memory, tensor_of, tensors_of
from flambeau.distributed.reductions import all_reduce, all_reduce_coalesced, reduce, reduce_scatter, reduce_scatter_tensor
from flambeau.distributed.store import seconds
from flambeau.distributed.work import Work

if TYPE_CHECKING:
    from flambeau.dtypes import dtype
    from flambeau.tensor import Tensor


# -- bytes from rank to rank ------------------------------------------------------------------------------------------------------
def _swap(
    group: ProcessGroup, text: str, key: int, sends: Sequence[Memory], total: int, receives: Sequence[tuple[int, int, Memory]], async_op: bool, results: Any,
    inputs: Any = None,
) -> Work | None:  # fmt: skip
    """`receives`: (rank, from which byte of what it hands out, where to)."""

    def run() -> None:
        group.window.begin(text, key)
        group.window.swap([s.piece for s in sends], total, [(r, start, m.address, m.nbytes) for r, start, m in receives])
        for _, _, memory in receives:
            memory.finish()

    return perform(group, run, async_op, text, results, inputs)


def broadcast(tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None) -> Work | None:
    """The tensor becomes that of rank `src`."""
    found = member(group)
    tensor_of(tensor, "broadcast")
    if found is None:
        return done(async_op)
    root = root_of(found, src, group_src, "src")
    if found.own_backend is not None:
        return own_backends.broadcast(found, tensor, root, async_op)  # type: ignore[no-any-return]
    return broadcast_all([tensor], root, found, async_op, "broadcast")


def broadcast_all(tensors: Sequence[Tensor], root: int, group: ProcessGroup, async_op: bool = False, name: str = "broadcast_coalesced") -> Work | None:
    """Tensors, of any dtypes, become those of a root, in one go."""
    shape = tuple(tensors[0].shape) if len(tensors) == 1 else tuple([(t.dtype.name, *t.shape) for t in tensors])
    text, key = collective(name, f"from {root}", tensors[0].dtype, shape)
    memories = [Memory(t, root != group.rank()) for t in tensors]
    starts = [0, *accumulate(m.nbytes for m in memories)]
    if root == group.rank():
        return _swap(group, text, key, memories, starts[-1], [], async_op, list(tensors))
    return _swap(group, text, key, [], starts[-1], [(root, start, m) for start, m in zip(starts, memories, strict=False)], async_op, list(tensors))


def broadcast_copies(tensors: Sequence[Tensor], root: int, which: int, group: ProcessGroup) -> Work:
    """All of these, which are alike, become one of a root's. It goes on beside the program."""
    text, key = collective("broadcast", f"from {root}", tensors[0].dtype, tuple(tensors[0].shape))
    sends = [Memory(tensors[which], False)] if root == group.rank() else []
    targets = [Memory(t, True) for i, t in enumerate(tensors) if not sends or i != which]
    nbytes = tensors[0].numel() * tensors[0].dtype.itemsize
    return _swap(group, text, key, sends, nbytes, [(root, 0, m) for m in targets], True, list(tensors))  # type: ignore[return-value]


def all_gather_copies(outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], group: ProcessGroup) -> Work:
    """Each row of outputs gets the inputs of all ranks, which are alike, rank by rank. It goes on beside the program."""
    text, key = collective("all_gather", f"of {len(inputs)} tensors", inputs[0].dtype, tuple(inputs[0].shape))
    sends = [Memory(t, False) for t in inputs]
    n, nbytes = len(inputs), sends[0].nbytes
    receives = [(place // n, place % n * nbytes, Memory(t, True)) for row in outputs for place, t in enumerate(row)]
    results = list(outputs[0]) if n == 1 else [list(row) for row in outputs]
    return _swap(group, text, key, sends, n * nbytes, receives, True, results, list(inputs))  # type: ignore[return-value]


def share_rows(rows: Sequence[Sequence[Tensor]], group: ProcessGroup, name: str) -> None:
    """The tensors of rows[r], of any dtypes, become those of rank r, in one go."""
    if group.size() == 1 or not any(rows):
        return
    shapes = tuple([tuple([(t.dtype.name, *t.shape) for t in row]) for row in rows])
    text, key = collective(name, f"of {sum(map(len, rows))} tensors", next(t for row in rows for t in row).dtype, shapes)
    receives, total = [], 0
    for rank, row in enumerate(rows):
        memories = [Memory(t, rank != group.rank()) for t in row]
        starts = [0, *accumulate(m.nbytes for m in memories)]
        total = max(total, starts[-1])
        if rank == group.rank():
            sends = memories
        else:
            receives += [(rank, start, m) for start, m in zip(starts, memories, strict=False)]
    _swap(group, text, key, sends, total, receives, False, None, [])


def all_gather(tensor_list: list[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """tensor_list[r] becomes the tensor of rank r. Ranks may give tensors of different shapes; then each list has all of these shapes."""
    found = member(group)
    outputs = tensors_of(tensor_list, "all_gather", "tensor_list")
    tensor_of(tensor, "all_gather")
    if found is None:
        return done(async_op)
    if len(outputs) != found.size():
        raise ValueError(f"all_gather: tensor_list must have one tensor a rank: {found.size()}, got {len(outputs)}")
    if found.own_backend is not None:
        return own_backends.all_gather(found, outputs, tensor, async_op)  # type: ignore[no-any-return]
    kind = one_kind([tensor, *outputs], "all_gather")
    if outputs[found.rank()].numel() != tensor.numel():
        raise ValueError(f"all_gather: tensor_list[{found.rank()}] {tuple(outputs[found.rank()].shape)} must be as large as the tensor, {tuple(tensor.shape)}")
    text, key = collective("all_gather", "", kind, tuple([tuple(t.shape) for t in outputs]))
    memories = [Memory(t, True) for t in outputs]
    return _swap(
        found, text, key, [Memory(tensor, False)], max(m.nbytes for m in memories), [(r, 0, m) for r, m in enumerate(memories)], async_op, outputs, tensor
    )  # fmt: skip


def all_gather_coalesced(output_tensor_lists: list[list[Any]], input_tensor_list: list[Any], group: Any = None, async_op: bool = False) -> Any:
    """all_gather of several tensors: output_tensor_lists[r][i] becomes input_tensor_list[i] of rank r. With `async_op` a Future."""
    tensors_of(input_tensor_list, "all_gather_coalesced", "input_tensor_list")
    if not isinstance(output_tensor_lists, (list, tuple)):
        raise TypeError(f"Invalid function argument. Expected parameter `output_tensor_lists` to be a list of lists, got {type(output_tensor_lists)}.")
    for outputs in output_tensor_lists:
        tensors_of(outputs, "all_gather_coalesced", "output_tensor_lists")
    found = member(group)
    if found is not None and found.own_backend is not None:
        return own_backends.all_gather_coalesced(found, output_tensor_lists, input_tensor_list, async_op)
    work = done(async_op) if found is None or not input_tensor_list else gather_coalesced(output_tensor_lists, input_tensor_list, found, async_op)
    return None if work is None else work.get_future()


def gather_coalesced(output_lists: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], group: ProcessGroup, async_op: bool) -> Work | None:
    """all_gather_coalesced of what are tensors."""
    if len(output_lists) != group.size():
        raise RuntimeError(f"all_gather_coalesced: output lists should be equal to world size, {group.size()}; got {len(output_lists)}")
    for outputs in output_lists:
        if len(outputs) != len(inputs):
            raise RuntimeError(
                f"all_gather_coalesced: invalid output size: each list must have as many tensors as the input, {len(inputs)}; got {len(outputs)}"
            )
        for i, (output, t) in enumerate(zip(outputs, inputs, strict=True)):
            if output.dtype is not t.dtype:
                raise RuntimeError(f"all_gather_coalesced: invalid tensor type at index {i} (expected {t.dtype}, got {output.dtype})")
    for i, (mine, t) in enumerate(zip(output_lists[group.rank()], inputs, strict=True)):
        if mine.numel() != t.numel():
            raise RuntimeError(f"all_gather_coalesced: invalid size of output tensor at index {i} (expected {tuple(t.shape)}, got {tuple(mine.shape)})")
    shapes = tuple([tuple([(t.dtype.name, *t.shape) for t in outputs]) for outputs in output_lists])
    text, key = collective("all_gather", f"of {len(inputs)} tensors", inputs[0].dtype, shapes)
    receives, total = [], 0
    for rank, outputs in enumerate(output_lists):
        memories = [Memory(t, True) for t in outputs]
        starts = [0, *accumulate(m.nbytes for m in memories)]
        receives += [(rank, start, m) for start, m in zip(starts, memories, strict=False)]
        total = max(total, starts[-1])
    sends = [Memory(t, False) for t in inputs]
    return _swap(group, text, key, sends, total, receives, async_op, [t for outputs in output_lists for t in outputs], inputs)


def _part(memory: Memory, start: int, nbytes: int) -> Memory:
    """Some bytes of a tensor's memory."""
    part = Memory.__new__(Memory)
    part.address, part.nbytes, part.keep, part.copy, part.array = memory.address + start, nbytes, memory, None, None
    return part


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes the inputs of all ranks, joined (or stacked: what counts is the number of elements)."""
    found = member(group)
    tensor_of(output_tensor, "all_gather_into_tensor", "output_tensor")
    tensor_of(input_tensor, "all_gather_into_tensor", "input_tensor")
    if found is None:
        return done(async_op)
    check_whole("all_gather_into_tensor", "output", output_tensor, "input", input_tensor, found.size())
    if found.own_backend is not None:
        return own_backends.all_gather_into_tensor(found, output_tensor, input_tensor, async_op)  # type: ignore[no-any-return]
    kind = one_kind([output_tensor, input_tensor], "all_gather_into_tensor")
    text, key = collective("all_gather_into_tensor", "", kind, tuple(input_tensor.shape))
    source, whole = Memory(input_tensor, False), Memory(output_tensor, True)
    n = source.nbytes

    def run() -> None:
        found.window.begin(text, key)
        found.window.swap([source.piece], n, [(r, 0, whole.address + r * n, n) for r in range(found.size())])
        whole.finish()

    return perform(found, run, async_op, text, output_tensor, input_tensor)


def gather(
    tensor: Any, gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None, async_op: bool = False, group_dst: int | None = None
) -> Work | None:
    """On rank `dst` gather_list[r] becomes the tensor of rank r."""
    found = member(group)
    tensor_of(tensor, "gather")
    if found is None:
        return done(async_op)
    root = root_of(found, dst, group_dst, "dst")
    outputs = tensors_of(gather_list or [], "gather", "gather_list")
    _check_list("gather", "gather_list", outputs, tensor, root == found.rank(), found.size())
    if found.own_backend is not None:
        return own_backends.gather(found, tensor, outputs, root, async_op)  # type: ignore[no-any-return]
    text, key = collective("gather", f"to {root}", one_kind([tensor, *outputs], "gather"), tuple(tensor.shape))
    source = Memory(tensor, False)
    return _swap(found, text, key, [source], source.nbytes, [(r, 0, Memory(t, True)) for r, t in enumerate(outputs)], async_op, outputs, tensor)


def _check_list(name: str, which: str, tensors: Sequence[Tensor], tensor: Tensor, is_root: bool, size: int) -> None:
    if not is_root:
        if tensors:
            raise ValueError(f"Argument ``{which}`` must NOT be specified on non-root ranks ({name})")
        return
    if len(tensors) != size:
        raise ValueError(f"Argument ``{which}`` must be specified on the root rank, with one tensor a rank: {size}, got {len(tensors)} ({name})")
    for r, t in enumerate(tensors):
        if t.numel() != tensor.numel():
            raise ValueError(f"{name}: {which}[{r}] {tuple(t.shape)} must be as large as the tensor, {tuple(tensor.shape)}")


def scatter(
    tensor: Any, scatter_list: list[Any] | None = None, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """The tensor of rank r becomes scatter_list[r] of rank `src`."""
    found = member(group)
    tensor_of(tensor, "scatter")
    if found is None:
        return done(async_op)
    root = root_of(found, src, group_src, "src")
    inputs = tensors_of(scatter_list or [], "scatter", "scatter_list")
    _check_list("scatter", "scatter_list", inputs, tensor, root == found.rank(), found.size())
    if found.own_backend is not None:
        return own_backends.scatter(found, tensor, inputs, root, async_op)  # type: ignore[no-any-return]
    text, key = collective("scatter", f"from {root}", one_kind([tensor, *inputs], "scatter"), tuple(tensor.shape))
    target = Memory(tensor, True)
    n = target.nbytes
    return _swap(found, text, key, [Memory(t, False) for t in inputs], n * found.size(), [(root, n * found.rank(), target)], async_op, tensor)


def all_to_all(output_tensor_list: list[Any], input_tensor_list: list[Any], group: Any = None, async_op: bool = False) -> Work | None:
    """output_tensor_list[r] becomes what rank r has in this rank's place of its input_tensor_list. Sizes may differ."""
    found = member(group)
    outputs = tensors_of(output_tensor_list, "all_to_all", "output_tensor_list")
    inputs = tensors_of(input_tensor_list, "all_to_all", "input_tensor_list")
    if found is None:
        return done(async_op)
    if not len(outputs) == len(inputs) == found.size():
        raise ValueError(f"all_to_all: both lists must have one tensor a rank: {found.size()}, got {len(outputs)} and {len(inputs)}")
    if found.own_backend is not None:
        return own_backends.all_to_all(found, outputs, inputs, async_op)  # type: ignore[no-any-return]
    kind = one_kind([*outputs, *inputs], "all_to_all")
    return _exchange(found, "all_to_all", kind, [Memory(t, False) for t in inputs], [Memory(t, True) for t in outputs], async_op, outputs)


def all_to_all_single(
    output: Any, input: Any, output_split_sizes: Any = None, input_split_sizes: Any = None, group: Any = None, async_op: bool = False
) -> Work | None:
    """all_to_all of the parts along dim 0 of one tensor: equal ones, or of the sizes given."""
    found = member(group)
    tensor_of(output, "all_to_all_single", "output")
    tensor_of(input, "all_to_all_single", "input")
    if found is None:
        return done(async_op)
    if found.own_backend is not None:
        return own_backends.all_to_all_single(found, output, input, output_split_sizes, input_split_sizes, async_op)  # type: ignore[no-any-return]
    kind = one_kind([output, input], "all_to_all_single")
    whole, result = Memory(input, False), Memory(output, True)
    inputs, outputs = _split(whole, input, input_split_sizes, found.size(), "input"), _split(result, output, output_split_sizes, found.size(), "output")
    return _exchange(found, "all_to_all_single", kind, inputs, outputs, async_op, output, result)


def _split(memory: Memory, t: Tensor, sizes: Sequence[int] | None, count: int, what: str) -> list[Memory]:
    rows = t.shape[0] if t.ndim else 1
    if not sizes:
        if rows % count:
            raise RuntimeError(f"all_to_all_single: dim 0 of the {what} {tuple(t.shape)} must be divisible by the group's size, {count}; or give split sizes")
        sizes = [rows // count] * count
    if len(sizes) != count or sum(sizes) != rows:
        raise RuntimeError(f"all_to_all_single: {what}_split_sizes {list(sizes)} must be {count} numbers with the sum {rows}, dim 0 of {tuple(t.shape)}")
    row = memory.nbytes // rows if rows else 0
    return [_part(memory, row * start, row * n) for start, n in zip([0, *accumulate(sizes)], sizes, strict=False)]


def _exchange(
    group: ProcessGroup, name: str, kind: dtype, inputs: Sequence[Memory], outputs: Sequence[Memory], async_op: bool, results: Any, whole: Memory | None = None
) -> Work | None:
    """Each rank's r-th input becomes the output of rank r. First the ranks tell each other how many bytes they have for whom."""
    n, rank = group.size(), group.rank()
    text, key = collective(name, "", kind, ())

    def run() -> None:
        window = group.window
        window.begin(text, key)
        own = (ctypes.c_int64 * n)(*[m.nbytes for m in inputs])
        sizes = (ctypes.c_int64 * (n * n))()
        window.swap([(ctypes.addressof(own), 8 * n)], 8 * n, [(r, 0, ctypes.addressof(sizes) + r * 8 * n, 8 * n) for r in range(n)])
        table = [sizes[r * n : (r + 1) * n] for r in range(n)]
        wrong = [] if group.is_fake else [r for r in range(n) if table[r][rank] != outputs[r].nbytes]
        # All ranks hand over before one raises, so that the group stays usable.
        receives = [(r, sum(table[r][:rank]), outputs[r].address, outputs[r].nbytes) for r in range(n) if r not in wrong]
        window.swap([m.piece for m in inputs], max(map(sum, table)), receives)
        if wrong:
            r = wrong[0]
            raise DistBackendError(
                f"{name}: rank {group.ranks[r]} sends {table[r][rank] // kind.itemsize} elements to rank {group.ranks[rank]}, which has room for "
                f"{outputs[r].nbytes // kind.itemsize}: split sizes must match"
            )
        for memory in outputs:
            memory.finish()
        if whole is not None:
            whole.finish()

    return perform(group, run, async_op, text, results)


# -- waiting ----------------------------------------------------------------------------------------------------------------------
def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all ranks have come."""
    found = member(group)
    if found is None:
        return done(async_op)
    if found.own_backend is not None:
        return own_backends.barrier(found, async_op)  # type: ignore[no-any-return]
    text, key = collective("barrier", "", None, None)

    def run() -> None:
        found.window.begin(text, key)
        found.window.meet()

    return perform(found, run, async_op, text, None)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier whose error names all ranks that did not come in time (`wait_all_ranks` or not)."""
    found = member(group)
    if found is None:
        return
    limit = seconds(found.timeout if timeout is None else timeout)
    text, key = collective("monitored_barrier", "", None, None)

    def run() -> None:
        found.window.begin(text, key)
        try:
            found.window.meet(limit)
        except DistBackendError as error:
            own = f"Rank {found.ranks[found.rank()]} timed out in monitoredBarrier after"
            if found.rank():
                own = f"Rank {found.ranks[found.rank()]} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0"
                raise DistBackendError(f"{own}: {found.missing()} failed to pass monitoredBarrier in {round(limit * 1000)} ms: {error}") from None
            what = f"{found.missing()} failed to pass monitoredBarrier in" if limit > 0 else own
            raise DistBackendError(f"{what} {round(limit * 1000)} ms: {error}") from None

    found.lane.now(run)


__all__ = [
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "broadcast", "gather", "monitored_barrier", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
]  # fmt: skip
