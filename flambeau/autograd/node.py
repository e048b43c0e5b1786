"""`tensor.grad_fn`: a handle that names the operation a tensor came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.autograd.hooks import RemovableHandle, register_hook
from flambeau.autograd.node_names import camel, name_of_call
from flambeau.trace.recorder import is_view, local

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


class _NotKept(Sequence[Any]):
    """What hooks of a node get for the gradients of its inputs: whoever looks at it is told that they are not there."""

    def __getitem__(self, i: Any) -> Any:
        raise NotImplementedError(
            "hooks of grad_fn: the gradients of a node's inputs are not kept, as histories are graphs of primitives; register a hook on the input tensors"
        )

    def __len__(self) -> int:
        self[0]
        return 0

    def __repr__(self) -> str:
        return "<gradients of the inputs, which are not kept>"


class Node:
    """The operation behind a tensor. Its class is named as PyTorch names it: MulBackward0, ..."""

    def __init__(self, name: str, tensor: Tensor | None = None) -> None:
        self._name = name
        self._tensor = tensor
        self._version = 0 if tensor is None else tensor._version

    def _made(self) -> Tensor:
        """The tensor that the operation made. RuntimeError if it was written to since, or if the node is none of a tensor's."""
        t = self._tensor
        if t is None or t._version != self._version:
            why = "the tensor was written to since" if t is not None else "it is none of a tensor's history"
            raise RuntimeError(f"hooks of grad_fn: {self._name} takes none, as {why}; register the hook on the tensor (Tensor.register_hook)")
        return t

    def register_prehook(self, fn: Callable[[tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call `fn` with the gradients that come to this node, a tuple of one, before they go on; a tuple that it returns takes their place."""

        def hook(gradient: Tensor) -> Tensor | None:
            found = fn((gradient,))
            return found[0] if isinstance(found, tuple) else found

        return register_hook(self._made(), hook)

    def register_hook(self, fn: Callable[[Any, tuple[Any, ...]], Any]) -> RemovableHandle:
        """Call `fn(grad_inputs, grad_outputs)` when the gradients of this node are computed. Those of its inputs are not there to be read or replaced."""

        def hook(gradient: Tensor) -> None:
            if fn(_NotKept(), (gradient,)) is not None:
                raise NotImplementedError("hooks of grad_fn: gradients of a node's inputs cannot be replaced; register a hook on the input tensors")

        return register_hook(self._made(), hook)

    def name(self) -> str:
        """The class's name; of those that PyTorch does not generate, with its namespace."""
        return f"torch::autograd::{self._name}" if self._name in _WRITES.values() else self._name

    @property
    def next_functions(self) -> tuple[Any, ...]:
        """Not kept: histories are graphs of primitives, see docs/differences.md."""
        return ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


_CLASSES: dict[str, type[Node]] = {}
# Writes that no public call stands behind as an operation: to a part of the memory, and to all of it.
_WRITES = {"scatter_view": "CopySlices", "copy": "CopyBackwards"}


def calls_of(path: list[Any]) -> dict[int, Any]:
    """The public call behind each result of a trace: slot -> the key of its edge, which names the operation and its arguments."""
    calls: dict[int, Any] = {}
    for state in path:
        key = state.edge
        if type(key) is tuple and key and hasattr(key[0], "kinds"):
            for slot in (state.slot,) if state.plain else [out.slot for out in state.outs]:
                calls.setdefault(slot, key)
    return calls


def node_of(t: Tensor) -> Node:
    """The node of a tensor with history."""
    tr = local.trace
    slot, history = t._slot, t._history
    # What was written last is found past these: the base of views is the memory itself.
    passed = ("alias",) if is_view(t) else ("alias", "as_strided")
    while history is None or (t._gen == tr.gen and slot not in tr.boundaries):
        context, key, node = _in_trace(tr, slot) if t._gen == tr.gen else (None, None, None)
        if context is not None or node is None or node.op not in passed or key is not None:
            break
        slot = node.inputs[0]  # the memory as it was written last
        history = tr.boundaries[slot].history if slot in tr.boundaries else None
        if history is not None:
            break
    if history is not None:
        segment, slot = history
        calls = {} if segment.state is None else calls_of(segment.state.path())
        while True:
            context, key, node = segment.custom.get(slot), calls.get(slot), segment.tape.producer.get(slot)
            if node is None or node.op not in passed or key is not None or context is not None:
                break
            slot = node.inputs[0]
    if context is not None:
        name = context.kind if hasattr(context, "kind") else f"{context._function.__name__}Backward"
    elif key is not None:
        name = name_of_call(key, slot, tr.values() if history is None else history[0].tape.values)
    else:
        op = "recorded" if node is None else node.op
        name = _WRITES.get(op) or camel(op)
    cls = _CLASSES.get(name)
    if cls is None:
        cls = _CLASSES[name] = type(name, (Node,), {})
    return cls(name, t)


def _in_trace(tr: Any, slot: int) -> tuple[Any, Any, Any]:
    """(context of a custom function, key of the public call, primitive) behind a slot of the current trace."""
    context, state = tr.custom.get(slot), tr.state
    while state is not None:
        node = next((n for n in state.nodes if slot in n.outputs), None)
        if node is not None:
            return context, calls_of([state]).get(slot), node
        state = state.parent
    return context, None, None
