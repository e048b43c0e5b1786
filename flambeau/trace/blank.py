"""Tensors without memory: what the device `meta` means to storages, plans and reads.

A tensor of `meta` is recorded like any other: shapes, dtypes, strides, views, writes and gradients are those of its path. Only there is no
buffer under it: its storage has one that says how many bytes it would be and is at no address, plans leave out what is computed on `meta`,
and whoever asks for a value is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.graph import Graph
from flambeau.devices import CPU, META, Device
from flambeau.runtime.buffers import Buffer

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# Operations that take indices from the CPU to tensors of another device.
_INDEXING: Final = frozenset("index index_put_value index_put nn.functional.embedding".split())
_new: Final = Buffer.__new__


def blank(nbytes: int) -> Buffer:
    """A buffer of so many bytes that are nowhere."""
    made = _new(Buffer)
    made.address, made.nbytes, made._class, made.owner = 0, nbytes, None, None
    return made


def refuse_read(t: Tensor) -> None:
    """PyTorch's NotImplementedError for a value that a tensor of `meta` does not have."""
    if t._meta.device is META:
        raise no_data()


def no_data() -> NotImplementedError:
    """The error of whoever wants the elements of a tensor of `meta`."""
    return NotImplementedError("Cannot copy out of meta tensor; no data!")


def device_of(op: Any, tensors: Sequence[Tensor]) -> Device:
    """The device of an operation's results: its tensors'. Those of the CPU without dims go with tensors of any device, as numbers do.

    RuntimeError (PyTorch's) if the tensors are on two devices.
    """
    for t in tensors:
        if t._meta.device is not CPU:
            break
    else:
        return CPU
    for position, other in enumerate(tensors):
        m = other._meta
        if m.device is CPU and m.ndim and not (op.name in _INDEXING and not (m.dtype.is_floating_point or m.dtype.is_complex)):
            raise RuntimeError(
                f"{op.name}(): Tensor on device cpu is not on the expected device meta! All tensors must be on one device: tensor {position + 1} of "
                f"the call has shape {tuple(m.shape)} and is on the CPU; move it with .to('meta'), or make the others on the CPU"
            )
    return META


def split(graph: Graph) -> tuple[Graph, list[tuple[int, int]]]:
    """(what of a graph has to be computed, for each of its results on `meta` (position among the outputs, bytes)).

    Nothing on another device depends on what is on `meta`, so its nodes are left out as a whole.
    """
    values = graph.values
    bare = [(i, values[slot].numel * values[slot].dtype.itemsize) for i, slot in enumerate(graph.outputs) if values[slot].device is META]
    if not bare and all(values[slot].device is not META for _, slot in graph.updates):
        return graph, bare
    without = {i for i, _ in bare}
    nodes = [n for n in graph.nodes if values[n.outputs[0]].device is not META]
    outputs = [slot for i, slot in enumerate(graph.outputs) if i not in without]
    updates = [(i, slot) for i, slot in graph.updates if values[slot].device is not META]
    return Graph(values, nodes, graph.inputs, graph.parameters, outputs, updates), bare


def with_blanks(run: Callable[..., list[Any]], bare: list[tuple[int, int]]) -> Callable[..., list[Any]]:
    """A plan's `run` whose results have buffers of `meta` at their places among them."""

    def whole(inputs: Any, parameters: Any) -> list[Any]:
        buffers = list(run(inputs, parameters))
        for position, nbytes in bare:
            buffers.insert(position, blank(nbytes))
        return buffers

    return whole
