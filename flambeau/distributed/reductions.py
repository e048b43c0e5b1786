"""Collectives that combine the tensors of all ranks: all_reduce, reduce, reduce_scatter."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.compiler.kernels.window_sums import can_reduce
from flambeau.distributed import flight, own_backends, watchers
from flambeau.distributed.agreement import collective
from flambeau.distributed.calls import check_whole, done, one_kind, perform, root_of
from flambeau.distributed.group import ProcessGroup, member
from flambeau.distributed.memory import Memory, tensor_of, tensors_of
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.window import Window, adder
from flambeau.distributed.work import Work
from flambeau.trace import evaluate

if TYPE_CHECKING:
    from flambeau.dtypes import dtype
    from flambeau.tensor import Tensor


def operator_for(op: Any, kind: dtype, size: int, where: str) -> tuple[str, str, float | None, bool]:
    """(operator, dtype as it is added up, factor of each term, whether whole numbers are divided afterwards)."""
    name = op.name.lower()
    element = kind.to_real().name if kind.is_complex else kind.name
    factor: float | None = None
    divides = False
    if name == "premul_sum":
        name, factor = "sum", getattr(op, "factor", None)
        if factor is None:
            raise ValueError(f"{where}: ReduceOp.PREMUL_SUM has no factor; make it with torch.distributed._make_nccl_premul_sum(factor)")
    elif name == "avg":
        name, factor, divides = "sum", 1.0 / size if kind.is_floating_point or kind.is_complex else None, not (kind.is_floating_point or kind.is_complex)
    if kind.is_complex and name != "sum":
        raise ValueError(f"{where} does not support {op.name} on complex tensors")
    if factor is not None and not (kind.is_floating_point or kind.is_complex):
        raise RuntimeError(f"{where}: ReduceOp.PREMUL_SUM is for floating-point tensors, got {kind!r}")
    if not can_reduce("max", element):
        raise RuntimeError(f"{where}: {kind!r} is not reduced; convert it first, to float32 or int64 for example")
    if not can_reduce(name, element, factor is not None):
        raise RuntimeError(f"{where}: Cannot use ReduceOp.{op.name} with {kind!r}: bitwise operators are for whole numbers and bool")
    return name, element, factor, divides


def _divide(memories: Sequence[Memory], kind: dtype, size: int) -> None:
    """Whole numbers, divided towards zero."""
    import numpy

    from flambeau.runtime.memory import view_as_numpy

    for memory in memories:
        numbers = view_as_numpy(memory.address, memory.nbytes, memory).view(numpy.dtype(kind.numpy_name))
        numbers[...] = numpy.sign(numbers) * (abs(numbers) // size)


def _one_sum(tensors: Sequence[Tensor], name: str) -> dtype:
    """The dtype of all of these; a complex one stands also for real ones of its parts' dtype, as sums are of parts."""
    parts = {t.dtype.to_real() if t.dtype.is_complex else t.dtype for t in tensors}
    mixed = [t for t in tensors if t.dtype.is_complex] if len(parts) == 1 else list(tensors)
    return one_kind(mixed or tensors, name)


def reduce_all(
    group: ProcessGroup, name: str, tensors: Sequence[Tensor], op: Any, async_op: bool, root: int | None = None, detail: str = "", copies: Sequence[Tensor] = ()
) -> Work | None:
    """all_reduce of a list of tensors as one row, or reduce of one tensor to a root. `copies` become what the first tensor becomes, and are the results."""
    if not tensors:
        return done(async_op)
    kind = _one_sum(tensors, name)
    operator, element, factor, divides = operator_for(op, kind, group.size(), "all_reduce" if name == "all_reduce_coalesced" else name)
    shape = tuple(tensors[0].shape) if len(tensors) == 1 else tuple([tuple(t.shape) for t in tensors])
    text, key = collective(name, f"{op.name}{detail}", kind, shape)
    writes = root is None or root == group.rank()
    memories = [Memory(t, writes) for t in tensors]
    pieces = [memory.piece for memory in memories]
    others = [Memory(t, True) for t in copies]
    window = group.window

    def run() -> None:
        window.begin(text, key)
        if root is None:
            window.reduce(pieces, pieces, operator, element, factor, owners=memories)
        else:
            window.reduce_part(pieces, 0, pieces[0] if writes else (0, 0), operator, element, factor)
        if writes:
            if divides:
                _divide(memories, kind, group.size())
            for memory in memories:
                memory.finish()
        for memory in others:
            ctypes.memmove(memory.address, pieces[0][0], pieces[0][1])
            memory.finish()

    return perform(group, run, async_op, text, list(copies) or tensors)


_TOGETHER = {
    ReduceOp.SUM: flambeau.add, ReduceOp.PRODUCT: flambeau.mul, ReduceOp.MIN: flambeau.minimum, ReduceOp.MAX: flambeau.maximum,
    ReduceOp.BAND: flambeau.bitwise_and, ReduceOp.BOR: flambeau.bitwise_or, ReduceOp.BXOR: flambeau.bitwise_xor,
}  # fmt: skip


def all_reduce_copies(tensors: Sequence[Tensor], op: Any, group: ProcessGroup) -> Work:
    """All of these, which are alike, become the sum of all of them and all other ranks'. It goes on beside the program."""
    first = tensors[0]
    if len(tensors) > 1 and op not in _TOGETHER:
        raise RuntimeError(f"ProcessGroupGloo::allreduce: of several tensors a rank ReduceOp.{op.name} is not made; give one")
    with flambeau.no_grad():
        if first.is_sparse:
            from flambeau.distributed.sparse import all_reduce_sparse

            total = first
            for t in tensors[1:]:
                total = total + t
            all_reduce_sparse(group, total, op, False)
            for t in tensors:
                if t is not total:
                    t.copy_(total)
            return Work(list(tensors))
        if len(tensors) == 1:
            return reduce_all(group, "all_reduce", list(tensors), op, True)  # type: ignore[return-value]
        total = first
        for t in tensors[1:]:
            total = _TOGETHER[op](total, t)
        return reduce_all(group, "all_reduce", [total.contiguous()], op, True, copies=tensors)  # type: ignore[return-value]


def all_reduce(tensor: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The tensor becomes the sum (or what `op` says) over all ranks: the same bits on each; terms are added in the ranks' order, narrow floats in float32."""
    found = member(group)
    if found is not None and found.own_backend is not None:
        return own_backends.all_reduce(found, [tensor], op, async_op)  # type: ignore[no-any-return]
    if found is not None and not async_op and type(tensor) is flambeau.Tensor and _known_again(found, tensor, op):
        return None
    if found is not None and getattr(tensor, "is_sparse", False):
        from flambeau.distributed.sparse import all_reduce_sparse

        return all_reduce_sparse(found, tensor, op, async_op)
    tensor_of(tensor, "all_reduce")
    return done(async_op) if found is None else reduce_all(found, "all_reduce", [tensor], op, async_op)


_known: dict[Any, tuple[str, int, int, float] | None] = {}


def _known_again(group: ProcessGroup, tensor: Tensor, op: Any) -> bool:
    """all_reduce of a kind of tensor that has come before, without looking at all of it again; False where it has not."""
    m = tensor._meta
    key = (m, op, len(group.ranks))
    try:
        call = _known[key]
    except KeyError:
        call = _known[key] = _learned(group, tensor, op)
    window = group.window
    if (
        call is None
        or group.lane.pending
        or evaluate.PROFILER is not None
        or flight.RECORDER is not None
        or watchers.WATCHERS
        or not isinstance(window, Window)
    ):
        return False
    memory = Memory(tensor, True)
    with group.lane.lock:
        window.begin(call[0], call[1])
        window.reduce_one((memory.address, memory.nbytes), call[2], call[3], memory)
    return True


def _learned(group: ProcessGroup, tensor: Tensor, op: Any) -> tuple[str, int, int, float] | None:
    """(text, number, function that adds, factor) of an all_reduce of one piece of memory; None where it is more than that, or wrong."""
    m = tensor._meta
    if len(_known) > 4096:
        _known.clear()
    if m.dynamic or not m.is_contiguous or tensor.is_sparse or tensor.device.type != "cpu" or type(op) is not ReduceOp or op is ReduceOp.PREMUL_SUM:
        return None
    operator, element, factor, divides = operator_for(op, tensor.dtype, group.size(), "all_reduce")
    text, key = collective("all_reduce", op.name, tensor.dtype, tuple(tensor.shape))
    return None if divides else (text, key, adder(operator, element, factor is not None), factor or 0.0)


def all_reduce_coalesced(tensors: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """all_reduce of several tensors of one dtype. With `async_op` a Future."""
    found = member(group)
    tensors = tensors_of([tensors] if not isinstance(tensors, (list, tuple)) else tensors, "all_reduce_coalesced", "tensors")
    if found is not None and found.own_backend is not None:
        return own_backends.all_reduce(found, tensors, op, async_op, True)
    work = done(async_op) if found is None else reduce_all(found, "all_reduce_coalesced", tensors, op, async_op)
    return None if work is None else work.get_future()


def reduce(tensor: Any, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """The tensor of rank `dst` becomes the sum over all ranks; the others' stay."""
    found = member(group)
    tensor_of(tensor, "reduce")
    if found is None:
        return done(async_op)
    root = root_of(found, dst, group_dst, "dst")
    if found.own_backend is not None:
        return own_backends.reduce(found, tensor, root, op, async_op)  # type: ignore[no-any-return]
    return reduce_all(found, "reduce", [tensor], op, async_op, root, f" to {root}")


def reduce_scatter(output: Any, input_list: list[Any], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes the sum over all ranks of the tensors in this rank's place of their lists. The places may have different sizes."""
    found = member(group)
    tensor_of(output, "reduce_scatter", "output")
    inputs = tensors_of(input_list, "reduce_scatter", "input_list")
    if found is None:
        return done(async_op)
    if len(inputs) != found.size():
        raise ValueError(f"reduce_scatter: input_list must have one tensor a rank: {found.size()}, got {len(inputs)}")
    if output.numel() != inputs[found.rank()].numel():
        raise ValueError(f"reduce_scatter: output {tuple(output.shape)} must be as large as input_list[{found.rank()}], {tuple(inputs[found.rank()].shape)}")
    if found.own_backend is not None:
        return own_backends.reduce_scatter(found, output, inputs, op, async_op)  # type: ignore[no-any-return]
    return _scattered(found, "reduce_scatter", output, inputs, op, async_op)


def _scattered(group: ProcessGroup, name: str, output: Tensor, inputs: Sequence[Tensor], op: Any, async_op: bool) -> Work | None:
    kind = one_kind([output, *inputs], name)
    operator, element, factor, divides = operator_for(op, kind, group.size(), name)
    text, key = collective(name, op.name, kind, tuple([tuple(t.shape) for t in inputs]))
    sources = [Memory(t, False) for t in inputs]
    target = Memory(output, True)
    before = sum(s.nbytes for s in sources[: group.rank()]) if len(sources) > 1 else target.nbytes * group.rank()

    def run() -> None:
        group.window.begin(text, key)
        group.window.reduce_part([s.piece for s in sources], before, target.piece, operator, element, factor)
        if divides:
            _divide([target], kind, group.size())
        target.finish()

    return perform(group, run, async_op, text, output)


def reduce_scatter_tensor(output: Any, input: Any, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """The output becomes this rank's part, along dim 0, of the sum over all ranks of the input."""
    found = member(group)
    tensor_of(output, "reduce_scatter_tensor", "output")
    tensor_of(input, "reduce_scatter_tensor", "input")
    if found is None:
        return done(async_op)
    check_whole("reduce_scatter_tensor", "input", input, "output", output, found.size())
    if found.own_backend is not None:
        return own_backends.reduce_scatter_tensor(found, output, input, op, async_op)  # type: ignore[no-any-return]
    return _scattered(found, "reduce_scatter_tensor", output, [input], op, async_op)
