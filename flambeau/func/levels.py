"""Levels: the transforms that are active in a thread, and the tensors that belong to them.

While a function runs under `vmap` or `jvp`, the thread's recorder (`local.trace`) is a Level: every public call comes to its `slow`. A
level knows its own tensors (subclasses of LevelTensor, each around a tensor of what is below), makes from the called operation a
derived one (the operation over batches, or with its derivative) and calls that below: in the next level, or in the Trace. A
derived operation is an operation like any other, so it is one edge of the trie: a second pass over the same function finds every
edge, and compiles and expands nothing.

The body of a derived operation is the body of the operation itself, run in an Expansion: a recorder inside the recorder that
applies a rule for each primitive and hands the primitives that the rule wants to what is outside.

What has several results says what they are by the class of the tuple it returns (`packed`): the classes are kept with the edges.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau import dtypes
from flambeau.compiler.graph import Value
from flambeau.ops.dispatch import disabled_torch_function
from flambeau.ops.registry import Operation
from flambeau.tensor import Tensor
from flambeau.trace.recorder import Fragment, Trace, casting_body, local, run_in
from flambeau.trace.state import COUNT
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flambeau.trace.meta import Meta

_new: Any = object.__new__


def leaves_no_level(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: however the function ends, the thread's recorder is afterwards what it was."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return while_set(local, "trace", local.trace, function, *args, **kwargs)

    return call


class LevelTensor(Tensor):
    """A tensor of a level, around a tensor of what is below the level."""

    __torch_function__ = staticmethod(disabled_torch_function)  # type: ignore[assignment]
    _gen = _slot = -1  # no trace has it
    _storage = _immediate = None
    _is_level = True  # of a subclass it is both (dispatch.leveled)
    _level: Level
    _inner: Any

    def _fresh_meta(self) -> Meta:
        self._inner._fresh_meta()
        return self._meta

    @property
    def _offset(self) -> int:  # type: ignore[override]
        return self._inner._offset  # type: ignore[no-any-return]

    @property
    def _version(self) -> int:
        return self._inner._version  # type: ignore[no-any-return]

    @property
    def _detached(self) -> bool:  # type: ignore[override]
        return self._inner._detached  # type: ignore[no-any-return]

    @_detached.setter
    def _detached(self, value: bool) -> None:
        self._inner._detached = value

    @property
    def is_leaf(self) -> bool:
        return self._inner.is_leaf  # type: ignore[no-any-return]

    @property
    def grad_fn(self) -> Any:
        return self._inner.grad_fn

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Refused: a transform decides what it differentiates."""
        if requires_grad == self.requires_grad:
            return self
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) inside of a function "
            "being transformed by a functorch transform. This is unsupported, please attempt to use the functorch transforms "
            "(e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside of a function being transformed instead."
        )

    def _observed(self) -> Any:
        """The storage, for who wants to see values (trace/evaluate.py)."""
        raise NotImplementedError


class Level:
    """An active transform. It looks like a Trace to the generated wrappers; what it does not know is the thread's Trace's."""

    state = Fragment._NoChildren
    kind = "?"

    def __init__(self) -> None:
        self.below: Any = local.trace
        if isinstance(self.below, Fragment):
            raise RuntimeError("an operation's body must not use a function transform")
        self.main: Trace = local.main
        self.number: int = getattr(self.below, "number", 0) + 1

    def __enter__(self) -> Any:
        local.trace = self
        return self

    def __exit__(self, *_: Any) -> None:
        local.trace = self.below

    def __getattr__(self, name: str) -> Any:
        if name == "main":
            raise AttributeError(name)
        return getattr(self.main, name)

    @property
    def gen(self) -> int:
        return self.main.gen

    @property
    def held(self) -> bool:
        return self.main.held

    @held.setter
    def held(self, value: bool) -> None:
        self.main.held = value

    @property
    def grad_enabled(self) -> bool:
        return self.main.grad_enabled

    def resolve(self, t: Tensor) -> int:
        """The slot of a tensor of the Trace; others have none."""
        return self.main.resolve(t) if not isinstance(t, LevelTensor) else -1

    def mine(self, t: Any) -> bool:
        """Whether `t` is a tensor of this level."""
        return isinstance(t, LevelTensor) and t._level is self

    def call_below(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A call as what is below this level sees it."""
        return while_set(local, "trace", self.below, function, *args, **kwargs)

    def call_on_trace(self, function: Callable[..., Any], *args: Any) -> Any:
        """A call as the thread's Trace sees it, under all levels."""
        return while_set(local, "trace", self.main, function, *args)

    def check_out(self, target: Tensor, source: Tensor, name: str) -> None:
        """Whether an operation may write to `out=`."""
        if self.mine(target) or self.mine(source):
            raise RuntimeError(f"{name}(): out= is not supported under {self.kind}: use the form that returns its result")
        if isinstance(self.below, Level):
            self.below.check_out(target, source, name)

    # what each kind of level does
    def slow(self, op: Any, key: Any, args: Sequence[Any]) -> Any:
        """A public call."""
        raise NotImplementedError

    def assign(self, target: Tensor, source: Tensor, name: str, fresh: bool) -> Tensor:
        """An in-place write (trace/mutation.py)."""
        raise NotImplementedError

    def before_write(self, target: Tensor) -> Tensor:
        """What an in-place operation reads where it writes. Where a level has tangents, a copy: gradients of tangents need what the primal was."""
        return target.clone() if any(level.kind == "jvp" for level in levels()) else target

    def random(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function that draws random numbers at its call (ops/random.py)."""
        raise NotImplementedError

    def stream(self, count: int) -> int:
        """How many numbers of the counter-based stream an operation takes that asks for `count` (dropout)."""
        raise NotImplementedError

    def custom_function(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`function.apply(*args)` of a torch.autograd.Function."""
        raise NotImplementedError

    def pull(self, outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
        """Reverse mode (func/pullback.py)."""
        raise NotImplementedError


def levels() -> Iterator[Level]:
    """The active levels, innermost first."""
    level = local.trace
    while isinstance(level, Level):
        yield level
        level = level.below


def bottom(t: Any) -> Any:
    """The tensor of the Trace under all levels."""
    while isinstance(t, LevelTensor):
        t = t._inner
    return t


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """The tensor under the transform that it belongs to (under all transforms, with `recurse`)."""
    if not isinstance(tensor, LevelTensor):
        return tensor
    return bottom(tensor) if recurse else tensor._inner  # type: ignore[no-any-return]


# -- tuples that say what is in them --------------------------------------------------------------------------------------
class Packed(tuple[Any, ...]):
    """Results with what is known of them. `note`: for the level; `like`: the class of the operation's own result (None: one tensor)."""

    _fields = ()  # the recorder calls the class with one argument for each result
    note: Any
    like: Any

    def __new__(cls, *parts: Any) -> Packed:
        return tuple.__new__(cls, parts)


_packed: dict[tuple[Any, Any], type[Packed]] = {}


def packed(note: Any, like: Any) -> type[Packed]:
    """The class of tuples with this note."""
    found = _packed.get((note, like))
    if found is None:
        found = _packed[note, like] = type("Packed", (Packed,), {"note": note, "like": like})
    return found


def rebuild(like: Any, parts: Sequence[Any]) -> Any:
    """The parts as the operation would have returned them."""
    if like is None:
        return parts[0]
    return like(*parts) if hasattr(like, "_fields") else like(parts)


# -- expansions -----------------------------------------------------------------------------------------------------------
class Expansion(Fragment):
    """The recorder inside the body of a derived operation: each primitive becomes what a rule makes of it, outside.

    A tensor's `_slot` is its place in `items`. The values of `outside` are named by negative slots: `bound` gives them names.
    """

    def __init__(self, outer: Any) -> None:
        self.gen = local.main.next_generation()
        self.state = Fragment._NoChildren
        self.outer = outer
        self.autocast = None
        self.items: list[Any] = []
        self.bound: list[int] = []

    @property
    def grad_enabled(self) -> bool:  # type: ignore[override]
        return self.outer.grad_enabled  # type: ignore[no-any-return]

    @grad_enabled.setter
    def grad_enabled(self, mode: bool) -> None:
        self.outer.grad_enabled = mode

    @property
    def forward_mode(self) -> bool:
        """Whether derivatives are being recorded, whatever grad mode says."""
        return getattr(self.outer, "forward_mode", False)

    def enter(self, item: Any, meta_: Meta) -> Tensor:
        """A tensor of this expansion for an item."""
        self.items.append(item)
        return self.placeholder(len(self.items) - 1, meta_)

    def _name(self, slot: int) -> int:
        """A slot of this expansion for a slot outside."""
        self.bound.append(slot)
        return -len(self.bound)

    def outer_value(self, slot: int) -> Value:
        return self.outer.value(slot)  # type: ignore[no-any-return]

    def tensor_of(self, item: Any) -> Any:
        """The tensor outside behind an item."""
        raise NotImplementedError

    def _sample(self, item: Any, v: Value) -> Value:
        """What the value of an item is inside."""
        return v

    def value(self, slot: int) -> Value:
        if slot < 0:
            return self.outer.value(self.bound[-1 - slot])  # type: ignore[no-any-return]
        item = self.items[slot]
        v = self._sample(item, self.outer.value(self.tensor_of(item)._slot))
        base = None if v.base is None else self._name(v.base)
        return Value(v.shape, v.dtype, v.strides, v.offset, base, tuple([(self._name(s), m) for s, m in v.dynamic]), v.device)

    def at(self, slot: int) -> Tensor:
        if slot >= 0:
            raise AssertionError("slots of an expansion are known as tensors")
        return self.plain(self.outer.at(self.bound[-1 - slot]))

    def plain(self, t: Any) -> Tensor:
        """A tensor from outside, as it is."""
        raise NotImplementedError

    def needs(self, slot: int) -> bool:
        return self.tensor_of(self.items[slot])._meta.requires_grad  # type: ignore[no-any-return]

    def note(self, t: Tensor, low: int, size: int, dim: int, skip: int | str | None, what: str) -> None:
        if t._gen == self.gen and hasattr(self.outer, "note"):
            whole = self.tensor_of(self.items[t._slot])
            if skip != COUNT or whole._meta.numel == t._meta.numel:  # what may be counted in one sample may not in all of them together
                self.outer.note(whole, low, size, dim, skip, what)

    def look(self, t: Tensor) -> Any:
        return self.outer.look(self.tensor_of(self.items[t._slot]))

    def changes(self, x: Any) -> bool:
        return hasattr(x, "_slot") and x._gen == self.gen and bool(self.outer.changes(self.tensor_of(self.items[x._slot])))

    def limit(self, t: Tensor, d: dtypes.dtype, name: str, single: bool) -> None:
        if t._gen == self.gen and hasattr(self.outer, "limit"):
            self.outer.limit(self.tensor_of(self.items[t._slot]), d, name, single)

    def item(self, t: Tensor) -> Any:
        """The item of a tensor that a primitive is given."""
        if t._gen != self.gen:
            self.resolve(t)
        return self.items[t._slot]


def derived_signature(op: Any, extra: Sequence[inspect.Parameter] = ()) -> inspect.Signature:
    """The parameters of an operation, all by position, and some more."""
    parameters = [
        inspect.Parameter(p.name, p.POSITIONAL_OR_KEYWORD, default=p.default, annotation=p.annotation) for p in inspect.signature(op.body).parameters.values()
    ]
    # a parameter without a default may follow one with a default only by keyword: the calls here give all of them
    seen = False
    made = []
    names = {p.name for p in parameters}
    for i, p in enumerate([*parameters, *extra]):
        while i >= len(parameters) and p.name in names:
            p = p.replace(name=p.name + "_")
        if p.default is p.empty and seen:
            p = p.replace(default=None)
        seen = seen or p.default is not p.empty
        made.append(p)
    return inspect.Signature(made)


def derive(op: Any, prefix: str, body: Callable[..., Any], extra: Sequence[inspect.Parameter] = ()) -> Operation:
    """The operation `body` over the parameters of `op` and some more."""
    body.__signature__ = derived_signature(op, extra)  # type: ignore[attr-defined]
    body.__doc__ = op.body.__doc__
    return Operation(body, f"{prefix}.{op.name}", (), False, False, False, None)


def expand_in(expansion: Expansion, op: Any, args: Sequence[Any]) -> Any:
    """The body of an operation run inside an expansion, under the thread's autocast."""
    lower = local.main.autocast
    body = op.apply if lower is None else casting_body(op, lower)
    return run_in(expansion, body, args)


def refuse_observation(what: str) -> NoReturn:
    """The error of whoever wants to see values under vmap."""
    if what == "control flow":
        raise RuntimeError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet, please "
            "shout over at https://github.com/pytorch/functorch/issues/257 . Use torch.where instead of `if`."
        )
    if what == "item":
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please try to "
            "rewrite what you're doing with other operations. If error is occurring somewhere inside PyTorch internals, please file a bug report."
        )
    raise RuntimeError(
        f"vmap: It looks like you're calling {what} on a Tensor. We don't support vmap over {what}: its result depends on the values of each "
        "sample. Rewrite it with operations whose results have one shape for all samples (torch.where instead of a mask), or call it outside of vmap."
    )
