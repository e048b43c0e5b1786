"""Public functions that are no operations of their own: what a call of one has recorded is remembered, and done at once the next time.

Functions like `chunk` or `zeros` look at their arguments and call operations. Where they stand in a trace and what they are given decide what they
record: a State remembers the call that was last made from it (`State.call`), and a builtin (trace/call_code.py) compares the next one with it.
If they agree, it takes the same edges and puts the results together in the same way; else the function runs. So what the function decides is never
decided otherwise, as long as it depends on nothing but its arguments' metadata, its other arguments, and the modes that are places in the trie.
A call that did more than take known edges (wrote in place, drew random numbers, looked at values) is not remembered, nor one with a tensor as an
argument that is no tensor by its annotation: its value may have been looked at.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.ops.registry import Operation
from flambeau.ops.wrapper import MISSING, lazy
from flambeau.trace import recorder
from flambeau.trace.meta import Meta, Size
from flambeau.trace.recorder import _PARAMETER, _TENSOR, ALIAS, IN, MOST_GIVEN, Trace, local
from flambeau.trace.state import State

MOST_MISSES: Final = 8  # calls from one state that differ from the one before: then it remembers no other
_MOST_STEPS: Final = 24
_ENTERED: Final = (IN, ALIAS)  # how tensors become known to a trace

Function = TypeVar("Function", bound=Callable[..., Any])


class Given:
    """A tensor among a known call's arguments: its metadata, and its slot if the call has used more than these."""

    __slots__ = ("meta", "slot")

    def __init__(self, meta: Meta, slot: int | None) -> None:
        self.meta = meta
        self.slot = slot


class KnownCall:
    """A call that a state remembers.

    `steps`: for each edge the state that it leads to and which of all tensors (the arguments', then the results of the edges before) it was
    given. `numbers`: its run-time numbers. `result`: None, the index of a tensor, or (class, parts...).
    """

    __slots__ = ("arguments", "function", "gen", "misses", "numbers", "result", "steps")

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.gen = -1  # of the trace in which a call was remembered last
        self.misses = 0
        self.numbers: tuple[Any, ...] = ()
        self.steps: tuple[tuple[State, tuple[int, ...]], ...] = ()
        self.result: Any = None


class Form:
    """A remembered function: its body, and how its arguments come."""

    __slots__ = ("body", "first", "names", "spread", "tensors")

    def __init__(self, body: Callable[..., Any]) -> None:
        self.body = body
        parameters = list(inspect.signature(body).parameters.values())
        several = [i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL]
        self.spread = several[0] if several else -1  # the position of those that come as one tuple
        self.names = tuple([p.name for p in parameters if p.kind is p.KEYWORD_ONLY])  # of the last ones, which go by name
        self.first = len(parameters) - len(self.names)
        self.tensors = tuple(["Tensor" in str(p.annotation) for p in parameters])

    def call(self, args: tuple[Any, ...]) -> Any:
        """The function itself."""
        given = args[: self.first] if self.spread < 0 else (*args[: self.spread], *args[self.spread])
        return self.body(*given, **dict(zip(self.names, args[self.first :], strict=True))) if self.names else self.body(*given)


class _Unknown(Exception):
    """The call is not one that can be remembered."""


def _expected(a: Any, gen: int, tensors: list[Any] | None) -> Any:
    """An argument as a known call has it; its tensors are added to `tensors` (None: it must not be one)."""
    cls = a.__class__
    if cls is _TENSOR[0] or cls is _PARAMETER[0]:
        if tensors is None:
            raise _Unknown
        tensors.append(a)
        return Given(a._meta, a._slot if a._gen == gen else None)
    if a is None or a is Ellipsis or a is MISSING or cls in _PLAIN:
        return a
    if cls is tuple or cls is Size:
        return tuple([_expected(x, gen, tensors) for x in a])
    if cls is list:
        return [_expected(x, gen, tensors) for x in a]
    if cls is slice:
        for part in (a.start, a.stop, a.step):
            if part is not None and part.__class__ is not int:
                raise _Unknown
        return a
    if isinstance(a, dtype | Device):
        return a
    raise _Unknown


_PLAIN: Final = frozenset((int, float, bool, str))


def _given_slots(state: State) -> list[int]:
    """The slots of the tensors that an edge was given, in their order."""
    slots: list[int] = []
    for kind, part in zip(state.edge[0].kinds, state.edge[1:], strict=True):
        if kind == "tensors":
            slots.extend([s for s in part if s is not None])
        elif kind not in ("static", "number") and part.__class__ is int:
            slots.append(part)
    return slots


def _steps(chain: list[State], made: list[Any], handed: list[Any], gen: int) -> list[tuple[State, tuple[int, ...]]]:
    """The steps of a known call; the tensors that the edges handed out are added to `made`."""
    rest = iter(handed)
    steps = []
    for state in chain:
        if state.edge.__class__ is not tuple or state.edge[0].__class__ is not Operation or not state.native:
            raise _Unknown
        places = {t._slot: i for i, t in reversed(list(enumerate(made))) if t._gen == gen}
        try:
            sources = tuple([places[slot] for slot in _given_slots(state)])
        except KeyError:
            raise _Unknown from None
        steps.append((state, sources))
        for out in state.outs:
            base = None if out.alias is None else made[sources[out.alias]]
            if base is not None and base._slot == out.slot:
                made.append(base)
                continue
            t = next(rest, None)
            if t.__class__ is not _TENSOR[0] or t._slot != out.slot or t._gen != gen or t._meta is not out.meta or t._hooks:  # type: ignore[union-attr]
                raise _Unknown
            detached = 0 if base is None else base._detached or (base._meta.requires_grad and not out.meta.requires_grad)
            if t._detached != detached or (base is not None and t._storage is not base._storage):  # type: ignore[union-attr]
                raise _Unknown
            made.append(t)
    if next(rest, None) is not None or len(made) > MOST_GIVEN:
        raise _Unknown
    return steps


def _result(result: Any, made: list[Any]) -> Any:
    """How the result is put together."""
    if result is None:
        return None
    if result.__class__ in (tuple, list) or hasattr(result, "_fields"):
        return (result.__class__, *[_result(part, made) for part in result])
    for i in range(len(made) - 1, -1, -1):
        if made[i] is result:
            return i
    raise _Unknown


def _remember(tr: Trace, form: Form, args: tuple[Any, ...], result: Any, before: State, tensors: int) -> None:
    gen = tr.gen
    first = before
    chain: list[State] = []
    state: State | None = tr.state
    made: list[Any] = []
    try:
        while state is not before:
            if state is None or len(chain) == _MOST_STEPS:
                raise _Unknown
            chain.append(state)
            state = state.parent
        chain.reverse()
        while chain and chain[0].edge[0] in _ENTERED:
            before = chain.pop(0)
        if before.external or before.immediate is not None:
            raise _Unknown
        expected = [_expected(a, gen, made if tensor else None) for a, tensor in zip(args, form.tensors, strict=True)]
        call = KnownCall(form.body, tuple(expected))
        call.steps = tuple(_steps(chain, made, tr.tensors[tensors:], gen))
        call.result = _result(result, made)
    except _Unknown:
        _missed(first, first.call or KnownCall(None, ()), gen)
        return
    count = sum([len(s.parameters) for s in chain])
    call.numbers = tuple(tr.params[len(tr.params) - count :])
    if before.call is not None:
        call.misses, call.gen = before.call.misses, before.call.gen
    _missed(before, call, gen)


def _missed(state: State, call: KnownCall, gen: int) -> None:
    """Remember the call. It counts as a miss, once in a pass."""
    call.misses += call.gen != gen
    call.gen = gen
    state.call = call


def _run(form: Form, args: tuple[Any, ...]) -> Any:
    """The function itself, and the call is remembered."""
    tr = local.trace
    if type(tr) is not Trace or recorder.take is None:
        return form.call(args)
    before = tr.state
    if before.immediate is not None or ((known := before.call) is not None and known.misses >= MOST_MISSES):
        return form.call(args)
    gen, tensors, drawn = tr.gen, len(tr.tensors), _drawn()
    result = form.call(args)
    if tr.gen == gen and _drawn() == drawn:
        _remember(tr, form, args, result, before, tensors)
    else:
        _missed(before, before.call or KnownCall(None, ()), gen)
    return result


def _drawn() -> int:
    from flambeau.ops.random import default_generator

    return default_generator.drawn


def remembered(function: Function, numpy: bool = False) -> Function:
    """Decorator of a function that calls operations, and whose calls may be remembered. `numpy`: it takes `axis` for `dim` and `keepdims` for `keepdim`."""
    signature = inspect.signature(function)
    scope: dict[str, Any] = {"run": _run, "FORM": Form(function), "OP": function, "step_": None}
    head: list[str] = []
    star = False
    for i, p in enumerate(signature.parameters.values()):
        scope[f"D{i}"] = p.default
        if p.kind is p.KEYWORD_ONLY and not star:
            head.append("*")
        star = star or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        head.append(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name if p.default is p.empty else f"{p.name}=D{i}")
    given = ", ".join(signature.parameters)
    aliases = [(old, new) for old, new in (("axis", "dim"), ("keepdims", "keepdim")) if numpy and new in signature.parameters]
    head += ([] if star or not aliases else ["*"]) + [f"{old}=None" for old, _ in aliases]
    name = function.__name__
    source = [f"def {name}({', '.join(head)}):"]
    source += [f"    if {old} is not None: {new} = {old}" for old, new in aliases]
    source += ["    if step_ is not None:", f"        t_ = step_({given})", "        if t_ is not None: return t_", f"    return run(FORM, ({given},))"]
    made = lazy("\n".join(source), name, scope)
    made.__doc__, made.__name__, made.__qualname__, made.__module__ = function.__doc__, name, function.__qualname__, function.__module__
    made.__annotations__ = dict(function.__annotations__)
    made.__signature__ = signature
    return made  # type: ignore[no-any-return]


def remembered_with_axis(function: Function) -> Function:
    """`remembered` for a function that also takes NumPy's names of its arguments."""
    return remembered(function, numpy=True)
