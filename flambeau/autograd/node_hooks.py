"""Hooks of nodes (`grad_fn.register_prehook`, `register_hook`): a tuple of gradients each, of what a call made, and of what it was made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.autograd import fitting
from flambeau.trace.arrival import value_at
from flambeau.trace.look_up import state_behind

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

Gradients = tuple[Any, ...]  # a tensor, or None, for each result or input


class NodeHooks:
    """The hooks of one node. It is among the hooked tensors of its trace or segment, at `place(results)`.

    `results`, `edges`: the slots of what it made and of what it leads to, None where no gradient goes; `span`: the first and the last slot of the call. Where
    `edges` is None the gradients of the inputs are not to be had (the call is several nodes in PyTorch).
    """

    __slots__ = ("__weakref__", "_hooks", "_retains_grad", "_storage", "edges", "results", "span")

    def __init__(self, results: Sequence[int | None], edges: Sequence[int | None] | None, span: tuple[int, int]) -> None:
        self._hooks: dict[int, tuple[bool, Callable[..., Any]]] = {}  # by number: whether it comes after the node, and the hook
        self._storage, self._retains_grad = None, False  # who looks for a tensor's hooks finds none of it
        self.results, self.edges, self.span = tuple(results), None if edges is None else tuple(edges), span

    def come_after(self) -> bool:
        """Whether a hook wants the gradients of the inputs."""
        return any(after for after, _ in self._hooks.values())

    def names(self) -> list[int | None]:
        """By which slots the gradients of the inputs come: an input that is there twice has a name of its own each time, of which there is no slot."""
        assert self.edges is not None
        more = self._twice()
        return [-1 - i if slot in more else slot for i, slot in enumerate(self.edges)]

    def apart(self) -> tuple[tuple[tuple[int, int], ...], int, int] | None:
        """What the stage of this node tells apart: see `Region.tell_apart`; None if nothing."""
        if self.edges is None or not (more := self._twice()):
            return None
        return tuple([(-1 - i, slot) for i, slot in enumerate(self.edges) if slot is not None and slot in more]), *self.span

    def _twice(self) -> set[int]:
        return {slot for slot, times in Counter(self.edges).items() if slot is not None and times > 1}

    def before(self, gradients: Gradients) -> Gradients:
        """The gradients that go on to the node."""
        for after, hook in list(self._hooks.values()):  # one that takes others away does it for the next pass
            if not after and (given := hook(gradients)) is not None:
                gradients = checked(hook, gradients, given)
        return gradients

    def after(self, inputs: Gradients | NotKept, gradients: Gradients) -> Any:
        """The gradients that go on from the node."""
        for after, hook in list(self._hooks.values()):
            if after and (given := hook(inputs, gradients)) is not None:
                if type(inputs) is NotKept:
                    raise NotImplementedError("hooks of grad_fn: gradients of a node's inputs cannot be replaced; register a hook on the input tensors")
                inputs = checked(hook, inputs, given)
        return inputs


class NotKept(Sequence[Any]):
    """What hooks of a node get for the gradients of its inputs where the call is several nodes in PyTorch: whoever looks at it is told so."""

    def __getitem__(self, i: Any) -> Any:
        raise NotImplementedError(
            "hooks of grad_fn: the gradients of this node's inputs are not kept, as what is several nodes in PyTorch is one call here; register a hook on the "
            "input tensors"
        )

    def __len__(self) -> int:
        self[0]
        return 0

    def __repr__(self) -> str:
        return "<gradients of the inputs, which are not kept>"


def hooked_nodes(owner: Any) -> list[NodeHooks]:
    """Of a trace or a segment, but for custom functions: nodes with hooks, and those with several results of which one is a tensor with hooks. The last is
    the first."""
    found = {t.span: t for slot, t in owner.hooked.items() if slot < 0 and t._hooks and t.results[0] not in owner.custom}
    for slot, t in owner.hooked.items():
        if slot >= 0 and t._hooks and slot not in owner.custom and slot not in owner.boundaries and (one := _of_several(owner, slot)) is not None:
            found.setdefault(one.span, one)
    return [found[span] for span in sorted(found, reverse=True)]


def _of_several(owner: Any, slot: int) -> NodeHooks | None:
    """The node of a result that is not the only one."""
    state = state_behind(owner.state, slot)
    if state is None or type(state.edge) is not tuple or not state.edge or not hasattr(state.edge[0], "kinds") or state.plain:
        return None
    results = [out.slot for out in state.outs if out.slot >= state.first_value and value_at(owner, out.slot).dtype.category >= 2]
    return NodeHooks(results, (), (state.first_value, state.value_count - 1)) if len(results) > 1 and slot in results else None


def place(results: Sequence[int | None]) -> int:
    """The key, among hooked tensors, of the hooks of a node that made these slots."""
    return -1 - min(slot for slot in results if slot is not None)


def call_with_none(t: Tensor) -> None:
    """Call the hooks of a tensor to which no gradient comes, where one comes to another result of its node."""
    for hook in list((t._hooks or {}).values()):
        if hook(None) is not None:
            raise RuntimeError("can't replace a None gradient with a non-None value")


def checked(hook: Callable[..., Any], before: Any, given: Any) -> Gradients:
    """What a hook of a node has returned in the place of gradients; TypeError or RuntimeError if it does not fit."""
    if type(given) is not tuple:
        raise TypeError(f"expected tuple, but hook returned '{type(given).__name__}': a hook of a node returns a tuple of gradients, or None")
    if len(given) != len(before):
        name = getattr(hook, "__name__", "<unknown>")
        raise RuntimeError(f"hook '{name}' has returned an incorrect number of values (got {len(given)}, but expected {len(before)})")
    for was, is_now in zip(before, given, strict=True):
        if is_now is not None:
            if was is None:
                raise RuntimeError("can't replace a None gradient with a non-None value")
            fitting.replacement(hook, was, is_now)
    return given
