"""Index values that are at hand are looked at when they are used, so that an index out of range is an error of the call that is wrong.

An operation's body says what the values of an index tensor must be (`bounded` in ops/primitives/move.py); where that tensor is an argument of
the call, or a cast or a view of all of one, the edge keeps it (`State.bounds`). Whoever takes such an edge compares it with the least and
greatest value of the argument. A scan finds these at memory bandwidth, once for each version of the tensor. Values that are still pending are
left to the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.graph import Node
from flambeau.compiler.kernel import IndexRangeError
from flambeau.trace.looks import NO_TENSORS
from flambeau.trace.place import here
from flambeau.trace.state import COUNT, Bound, State

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Trace
    from flambeau.trace.storage import Storage

# What gives all values of its first input, and no others.
_SAME_VALUES: Final = frozenset(("alias", "cast", "copy", "expand", "permute", "reshape", "view"))


def argument_of(slot: int, entered: dict[int, int], made_by: dict[int, Node]) -> int | None:
    """The position of the argument that has the values of a slot, all of them and no others; None if it is computed."""
    while slot not in entered:
        node = made_by.get(slot)
        if node is None or node.op not in _SAME_VALUES or (node.op == "cast" and node.attr("dtype").itemsize < 8):
            return None
        slot = node.inputs[0]
    return entered[slot]


def resolve(notes: Sequence[tuple[int, int, int, int, int | str | None, str]], entered: dict[int, int], nodes: Sequence[Node]) -> tuple[Bound, ...]:
    """The bounds of an edge from what its body has said: (slot, low, size, dim, skip, what)."""
    made_by = {slot: node for node in nodes for slot in node.outputs}
    found = []
    for slot, low, size, dim, skip, what in notes:
        position = argument_of(slot, entered, made_by)
        if position is not None:
            found.append(Bound(position, low, size, dim, skip, what))
    return tuple(found)


def look(task: tuple[Any, ...]) -> None:
    """`check` for native code: (state, tensor, tensor, ...)."""
    from flambeau.trace.recorder import local

    check(local.main, task[0], task[1:])


def check(tr: Trace, state: State, tensors: Sequence[Tensor]) -> None:
    """Before the trace takes the edge to `state`: IndexError if an index value at hand is out of range. The trace is then as before the call."""
    try:
        for bound in state.bounds:
            t = tensors[bound.position]
            storage = t._storage
            if storage is None or storage.buffer is None or not storage.buffer.address or t._meta.bits:
                continue
            if not storage.has_value():
                continue  # what is pending, here or in another thread, writes to it before this call
            known, m = storage.extent, t._meta
            at = t._offset if m.dynamic else m.offset
            if (
                known is None or known[0] != storage.version or known[1] is not m or known[2] != bound.skip or known[5] != at or storage.external is not None
            ):  # fmt: skip
                known = _look(t, storage, bound.skip)
            if known[3] < bound.low or known[4] >= bound.size:
                known = _look(t, storage, bound.skip)  # a write that is not counted (`.data`, NumPy's) may have changed them
                if known[3] < bound.low or known[4] >= bound.size:
                    raise refusal(state, bound, known[4] if known[4] >= bound.size else known[3])
            bound.known = None if m.dynamic else known  # native code, which asks for this very one, does not compare where it begins
    except BaseException:
        tr.heal()
        raise


def _look(t: Tensor, storage: Storage, skip: int | str | None) -> tuple[Any, ...]:
    """(version, metadata, skip, least, greatest, offset), kept with the storage unless somebody else can write to its memory."""
    from flambeau.runtime.select import extent, true_in

    m = t._meta
    buffer = storage.buffer
    assert buffer is not None
    offset = t._offset if m.dynamic else m.offset
    address = buffer.address + offset * m.dtype.itemsize
    if isinstance(skip, str):  # the elements that a mask takes are numbered from 0
        ends = 0, true_in(address, m.shape, m.strides) - 1
    else:
        ends = extent(address, m.dtype, m.shape, m.strides, skip)
    found = storage.version, m, skip, *ends, offset
    storage.extent = None if storage.external is not None else found
    return found


def argument_name(state: State, position: int) -> str:
    """The name of a call's tensor by its position among all of them."""
    assert state.edge is not None
    op, *keys = state.edge
    at = 0
    for name, kind, key in zip(op.names, op.kinds, keys, strict=True):
        if kind == "tensors":
            present = sum([k is not None for k in key])
            if position < at + present:
                return f"{name}[{position - at}]"
            at += present
        elif kind not in NO_TENSORS and type(key) is int:
            if position == at:
                return str(name)
            at += 1
    return "?"


def operation_name(state: State) -> str:
    """The public name of an edge's operation."""
    head = None if state.edge is None else state.edge[0]
    name = head if isinstance(head, str) else getattr(head, "name", "?")
    return _PUBLIC.get(name, name).removeprefix("nn.functional.").removesuffix("_op")


# Operations that a public function of another name calls.
_PUBLIC: Final = {"index": "x[...]", "index_put_value": "x[...] = y", "scatter_values": "scatter"}


def refusal(state: State, bound: Bound, value: int) -> IndexRangeError:
    """The error of an index value that the call, which is under way, is given."""
    error = IndexRangeError(f"{text(state, bound, value)}\n[{here().told(operation_name(state))}]")
    error.located = True
    return error


def text(state: State, bound: Bound, value: int) -> str:
    """What is wrong with an index value."""
    if bound.skip == COUNT:
        return (
            f"{operation_name(state)}(): Number of elements of source < number of ones in mask: argument '{argument_name(state, bound.position)}' may be True "
            f"for {bound.size} of its elements at most, as there are no more to take, but it is for {value + 1} or more"
        )
    also = "" if bound.skip is None else f", or {bound.skip}, which is ignored"
    return (
        f"{operation_name(state)}(): {bound.what} {value} is out of bounds for dimension {bound.dim} with size {bound.size}: every value of argument "
        f"'{argument_name(state, bound.position)}' must be at least {bound.low} and less than {bound.size}{also}"
    )
