"""`tensor.grad_fn`: a handle that names the operation a tensor came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.trace.recorder import local

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


class Node:
    """The operation behind a tensor. Its class is named as PyTorch names it: MulBackward0, ..."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """The class's name."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """Not kept: histories are graphs of primitives, see docs/differences.md."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


_CLASSES: dict[str, type[Node]] = {}


def node_of(t: Tensor) -> Node:
    """The node of a tensor with history."""
    tr = local.trace
    op = "Recorded"
    if t._history is not None and t._gen != tr.gen:
        segment, slot = t._history
        context = segment.custom.get(slot)
        node = segment.tape.producer.get(slot)
    else:
        slot = t._slot
        context = tr.custom.get(slot) if t._gen == tr.gen else None
        node = None
        state = tr.state if t._gen == tr.gen else None
        while state is not None and node is None:
            node = next((n for n in state.nodes if slot in n.outputs), None)
            state = state.parent
    if context is not None:
        name = f"{context._function.__name__}Backward"
    else:
        op = node.op if node is not None else op
        name = _NAMES.get(op) or "".join(part.capitalize() for part in op.split("_")) + "Backward0"
    cls = _CLASSES.get(name)
    if cls is None:
        cls = _CLASSES[name] = type(name, (Node,), {})
    return cls(op)


_NAMES = {"matmul": "MmBackward0", "permute": "PermuteBackward0", "reshape": "ViewBackward0", "concatenate": "CatBackward0"}
