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
from itertools import takewhile
from typing import Any, Final, NoReturn, TypeVar

from flambeau.devices import Device
from flambeau.dtypes import dtype, of_type
from flambeau.foreign import refuse
from flambeau.layouts import layout
from flambeau.module_names import home
from flambeau.ops.dispatch import any_dispatched
from flambeau.ops.guard import better, check, marked
from flambeau.ops.registry import Operation
from flambeau.ops.signatures import simple
from flambeau.ops.wrapper import MISSING, from_numpy_scalar, heading, lazy
from flambeau.queries import memory_format
from flambeau.runtime.untracked import keep, record
from flambeau.statistics import counters
from flambeau.trace import recorder
from flambeau.trace.immediate import is_learned
from flambeau.trace.looks import NO_TENSORS
from flambeau.trace.meta import Meta, Size
from flambeau.trace.mutation import ASSIGN, assign, assign_all
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import _PARAMETER, ALIAS, GRAD_MODE, IN, MOST_GIVEN, Fragment, Trace, local
from flambeau.trace.state import State
from flambeau.trace.traces import TRACE_SLOTS
from flambeau.trace.while_set import while_switched

MOST_MISSES: Final = 8  # calls from one state that differ from the one before: then it remembers another only now and then
MOST_KINDS: Final = 1024  # of arguments that are counted
_REST: Final = 64 * TRACE_SLOTS  # generations: traces until it does
_MOST_STEPS: Final = 24
_ENTERED: Final = (IN, ALIAS)  # how tensors become known to a trace
_WRITTEN: Final = (ASSIGN, GRAD_MODE)  # of a tail
_NUMBERS: Final = frozenset(("int", "float", "bool", "complex", "Number", "None"))  # annotations of parameters that take numbers only

Function = TypeVar("Function", bound=Callable[..., Any])


@record
class Given:
    """A tensor among a known call's arguments: its metadata, and its slot if the call has used more than these."""

    __slots__ = ("meta", "slot")

    def __init__(self, meta: Meta, slot: int | None) -> None:
        self.meta = meta
        self.slot = slot


@record
class KnownCall:
    """A call that a state remembers.

    `steps`: for each edge the state that it leads to and which of all tensors (the arguments', then the results of the edges before) it was
    given. `numbers`: its run-time numbers. `tail`: the writes that it ended with, or None: (the state before them, which tensors were written
    to, with which, whether these were fresh, the state after them, the function's name). `result`: None, the index of a tensor, or (class, parts...).
    """

    __slots__ = ("arguments", "function", "gen", "misses", "numbers", "result", "steps", "tail")

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.gen = -1  # of the trace in which a call was remembered last
        self.misses = 0
        self.numbers: tuple[Any, ...] = ()
        self.steps: tuple[tuple[State, tuple[int, ...]], ...] = ()
        self.tail: tuple[State, tuple[int, ...], tuple[int, ...], bool, State, str] | None = None
        self.result: Any = None

    @property
    def end(self) -> State | None:
        """The state that it leads to; None: the one where it is."""
        return self.tail[4] if self.tail is not None else self.steps[-1][0] if self.steps else None


class Form:
    """A remembered function: its body, how its arguments come, and whether it writes to some of them."""

    __slots__ = (
        "body", "defaults", "first", "kept", "marked", "name", "names", "numbers", "quick", "recorded", "scope", "spread", "tensors", "writes",
    )  # fmt: skip

    def __init__(self, body: Callable[..., Any], writes: bool) -> None:
        self.body = body
        self.writes = writes
        parameters = list(inspect.signature(body).parameters.values())
        several = [i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL]
        self.spread = several[0] if several else -1  # the position of those that come as one tuple
        self.names = tuple([p.name for p in parameters if p.kind is p.KEYWORD_ONLY])  # of the last ones, which go by name
        self.first = len(parameters) - len(self.names)
        self.tensors = tuple(["Tensor" in str(p.annotation) for p in parameters])
        self.numbers = tuple([_NUMBERS.issuperset(str(p.annotation).split(" | ")) for p in parameters])
        self.defaults = tuple([p.default for p in parameters])
        self.marked = marked(parameters)
        self.quick: tuple[tuple[int, frozenset[type]], ...] | None = None  # see ops/signatures.py; found when it is first wanted
        # How often calls of these kinds of arguments were recorded where others are learned, and whether the kinds alone say that they are right.
        self.recorded: dict[Any, tuple[int, bool]] = {}
        self.kept: set[Any] = set()  # of these kinds, those whose last call is remembered behind its inputs
        self.scope: dict[str, Any] = {}  # of the public function
        self.name = body.__name__ if body.__name__.startswith("__") else body.__name__.lstrip("_")
        if home(body.__module__) == "torch.nn.functional":
            self.name = f"nn.functional.{self.name}"

    def call(self, args: tuple[Any, ...]) -> Any:
        """The function itself."""
        return self._call(self.plain(args))

    def plain(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Where it takes a number, it also takes a tensor without dims; NumPy's scalars anywhere; and for a dtype Python's classes of numbers."""
        return tuple([a if a.__class__ in _PLAIN or a is None else self._number(a, number) for a, number in zip(args, self.numbers, strict=True)])

    def _call(self, args: tuple[Any, ...]) -> Any:
        given = args[: self.first] if self.spread < 0 else (*args[: self.spread], *args[self.spread])
        return self.body(*given, **dict(zip(self.names, args[self.first :], strict=True))) if self.names else self.body(*given)

    def spelled(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call's arguments as a program writes them: positions up to the last that is not its default, and names."""
        given = list(args[: self.first] if self.spread < 0 else (*args[: self.spread], *args[self.spread]))
        while self.spread < 0 and given and given[-1] is self.defaults[len(given) - 1]:
            given.pop()
        named = zip(self.names, args[self.first :], self.defaults[self.first :], strict=True)
        return tuple(given), {name: a for name, a, default in named if a is not default}

    @staticmethod
    def _number(a: Any, number: bool) -> Any:
        if a.__class__ is type:
            return of_type(a)
        return a.item() if number and isinstance(a, _TENSOR[0]) and a.ndim == 0 else from_numpy_scalar(a)


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
    raise _Unknown


_PLAIN: Final = frozenset((int, float, bool, str, dtype, Device, layout, memory_format))


def _given_slots(state: State) -> list[int]:
    """The slots of the tensors that an edge was given, in their order."""
    slots: list[int] = []
    for kind, part in zip(state.edge[0].kinds, state.edge[1:], strict=True):
        if kind == "tensors":
            slots.extend([s for s in part if s is not None])
        elif kind not in NO_TENSORS and part.__class__ is int:
            slots.append(part)
    return slots


def _steps(chain: list[State], made: list[Any], slots: list[int | None], handed: list[Any], written: bool) -> list[tuple[State, tuple[int, ...]]]:
    """The steps of a known call; the tensors that the edges handed out are added to `made`, their slots then to `slots`.

    `written`: what has been written to since, and views of it, are known under other slots or none.
    """
    rest = iter(handed)
    steps = []
    for state in chain:
        if state.edge.__class__ is not tuple or state.edge[0].__class__ is not Operation or not state.native:
            raise _Unknown
        sources = tuple([_place(slots, slot) for slot in _given_slots(state)])
        steps.append((state, sources))
        for out in state.outs:
            base = None if out.alias is None else sources[out.alias]
            slots.append(out.slot)
            if base is not None and slots[base] == out.slot:
                made.append(made[base])
                continue
            t: Any = next(rest, None)
            if t.__class__ is not _TENSOR[0] or (t._slot != out.slot and not written) or t._meta is not out.meta or t._hooks:
                raise _Unknown
            detached = 0
            if base is not None:
                source = made[base]
                detached = source._detached or (source._meta.requires_grad and not out.meta.requires_grad)
                if t._storage is not source._storage:
                    raise _Unknown
            if t._detached != detached:
                raise _Unknown
            made.append(t)
    if not all(written and any(t is known for known in made) for t in rest) or len(made) > MOST_GIVEN:
        raise _Unknown
    return steps


def _place(slots: list[int | None], slot: int) -> int:
    """Which tensor is meant by a slot."""
    for i, known in enumerate(slots):
        if known == slot:
            return i
    raise _Unknown


def _tail(before: State, chain: list[State], slots: list[int | None], name: str) -> tuple[State, tuple[int, ...], tuple[int, ...], bool, State, str]:
    """The tail of a known call: writes, which may stand in a block without gradients."""
    states = chain
    if states[0].edge == (GRAD_MODE, False) and states[-1].edge == (GRAD_MODE, True):
        before, states = states[0], states[1:-1]
    if not states or any(s.edge[0] is not ASSIGN or s.external or s.info.moving for s in states) or len({s.edge[5] for s in states}) != 1:
        raise _Unknown
    targets, sources = (tuple([_place(slots, s.edge[i]) for s in states]) for i in (1, 2))
    return before, targets, sources, states[0].edge[5], chain[-1], name


def finish(task: tuple[list[Any], list[Any], KnownCall]) -> None:
    """The writes of a known call, where native code has found that they are not those that were made before."""
    targets, sources, call = task
    assert call.tail is not None
    before, _, _, fresh, _, name = call.tail
    if before.edge == (GRAD_MODE, False):
        while_switched(local.trace.set_grad_enabled, True, False, assign_all, targets, sources, name)
    elif len(targets) == 1:
        assign(targets[0], sources[0], name, fresh)
    else:
        assign_all(targets, sources, name)


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


def _remember(tr: Trace, form: Form, expected: list[Any], made: list[Any], slots: list[int | None], result: Any, before: State, tensors: int) -> bool:
    """Remember a call that has been made, if that can be. `expected`, `made`, `slots`: of its arguments; `tensors`: how many the trace had before it."""
    first = before
    chain: list[State] = []
    state: State | None = tr.state
    try:
        while state is not before:
            if state is None or len(chain) == _MOST_STEPS:
                raise _Unknown
            chain.append(state)
            state = state.parent
        chain.reverse()
        inputs = list(takewhile(lambda s: s.edge[0] in _ENTERED, chain))
        chain = chain[len(inputs) :]
        before = inputs[-1] if inputs else before
        if before.external or not _open(before, tr.gen) or (chain and is_learned(first, chain[0], inputs)):
            raise _Unknown
        edges = next((i for i, s in enumerate(chain) if s.edge[0] in _WRITTEN), len(chain))
        call = KnownCall(form.body, tuple(expected))
        call.steps = tuple(_steps(chain[:edges], made, slots, tr.tensors[tensors:], edges < len(chain)))
        if edges < len(chain):
            if not form.writes:
                raise _Unknown
            call.tail = _tail(chain[edges - 1] if edges else before, chain[edges:], slots, form.body.__name__)
        call.result = _result(result, made)
    except _Unknown:
        _missed(first, _last(first), tr.gen)
        return False
    count = sum([len(s.parameters) for s in chain[:edges]])
    call.numbers = tuple(tr.params[len(tr.params) - count :])
    if before.call is not None and before.call.misses >= 0:
        call.misses, call.gen = before.call.misses, before.call.gen
    _missed(before, call, tr.gen)
    return True


def _open(state: State, gen: int) -> bool:
    """Whether a state may remember another call."""
    call = state.call
    return call is None or call.misses < MOST_MISSES or call.gen == gen or gen - call.gen >= _REST


def _waiting(visits: int) -> KnownCall:
    made = KnownCall(None, ())
    made.misses = -visits
    return made


# What stands for the call of a state of a path by class until it has been visited so often that to remember a call, which costs as much as five of them,
# pays; `misses`: less than 0.
_NOT_YET: Final = tuple([_waiting(visits) for visits in (1, 2, 3, 4)])
# By the number of a model: the function that was last called from there, what it was given beside tensors, how often in a row that was something else.
_given: Final[dict[int, tuple[Any, list[Any], int]]] = {}
_CHANGES: Final = 3  # calls at one place of a path by class that differ in more than sizes: then none is remembered there until two are alike


def is_fleeting(state: State, body: Any) -> bool:
    """Whether a call from a state that a path by class has reached is not worth remembering: its sizes are new, or such calls always differ."""
    call = state.call
    if call is None or call.misses < -1:
        return True
    last = _given.get(id(state.model))
    return last is not None and last[0] is body and last[2] >= _CHANGES


def not_remembered(state: State) -> None:
    """A call from there was fleeting; another one may come again."""
    call = state.call
    if call is None:
        state.call = _NOT_YET[-1]
    elif call.misses < -1:
        state.call = _NOT_YET[-2 - call.misses]


def _plainly(a: Any) -> Any:
    """An argument as far as it can be compared: of anything but numbers and the like its class."""
    cls = a.__class__
    if cls is int or cls is str or cls is bool or a is None:
        return a
    if cls is slice:
        return cls, _plainly(a.start), _plainly(a.stop), _plainly(a.step)
    return (cls, *map(_plainly, a)) if cls is tuple or cls is list else cls


def _changes(state: State, body: Any, args: tuple[Any, ...]) -> bool:
    """Note what a call by class is given beside tensors, and whether that is always something else."""
    name, others = id(state.model), [_plainly(a) for a in args]
    last = _given.get(name)
    count = 0
    if last is not None and last[0] is body and last[1] != others:
        count = min(last[2] + 1, _CHANGES)
    if len(_given) > MOST_KINDS:
        _given.clear()
    _given[name] = body, others, count
    return count >= _CHANGES


def _last(state: State) -> KnownCall:
    """The call that a state remembers, or one that is none."""
    return KnownCall(None, ()) if state.call is None or state.call.misses < 0 else state.call


def _missed(state: State, call: KnownCall, gen: int) -> None:
    """Remember the call. It counts as a miss, once in a pass."""
    call.misses += call.gen != gen
    call.gen = gen
    keep(call)
    state.call = call


def _checked(form: Form, args: tuple[Any, ...]) -> bool:
    """Refuse arguments that the function does not take. Whether all are of the usual classes, so that others of these classes need no look."""
    quick = form.quick
    if quick is None:
        quick = form.quick = simple(form.name, form.marked, form.defaults)
    usual = True
    for i, classes in quick:
        if args[i].__class__ not in classes:
            check(form.name, form.marked, args, form.defaults)
            usual = False
    return usual


def _run(form: Form, args: tuple[Any, ...], kinds: Any = None) -> Any:
    """The function itself, and the call is remembered; its errors say what is wrong. `kinds`: see `_at_root`."""
    refuse(args, f"{form.body.__name__}()")
    _checked(form, args)
    if any_dispatched(args) and not isinstance(local.trace, Fragment):  # inside of a `__torch_function__`: what is below is asked
        from flambeau.ops.below import redispatch

        return redispatch(form.body, *form.spelled(args))
    try:
        return _run_and_remember(form, args, kinds)
    except Exception as error:
        _tell(error, form, args)


def _tell(error: Exception, form: Form, args: tuple[Any, ...]) -> NoReturn:
    """Raise the error of a failed call, or one that says what is wrong with the arguments."""
    told = better(error, form.name, form.marked, args, form.defaults)
    if told is None:
        raise error
    raise told from (told.__cause__ or error)


def _run_and_remember(form: Form, args: tuple[Any, ...], kinds: Any) -> Any:
    tr = local.trace
    if type(tr) is not Trace or recorder.take is None:
        return form.call(args)
    before = tr.state
    if not _open(before, tr.gen):
        return form.call(args)
    if before.sizes and (is_fleeting(before, form.body) or _changes(before, form.body, args)):
        not_remembered(before)
        return form.call(args)
    made_of_models = counters.class_edges
    made: list[Any] = []
    expected: list[Any] = []
    try:
        if form.writes:  # what is written to has another slot afterwards
            for a, tensor in zip(args, form.tensors, strict=True):
                expected.append(_expected(a, tr.gen, made if tensor else None))
            for t in made:
                tr.slot_of(t)
            if any(_uncommon(t) for t in made):
                raise _Unknown
            made, before = [], tr.state
            known, step = before.call, form.scope["step_"]
            if known is not None and known.function is form.body and step is not None and (again := step(*args)) is not None:
                return again  # it is remembered behind its inputs, where native code does not look
            expected = [_expected(a, tr.gen, made) for a in args]
    except _Unknown:
        return form.call(args)
    slots: list[int | None] = [t._slot if t._gen == tr.gen else None for t in made]
    gen, tensors, drawn, looks = tr.gen, len(tr.tensors), _drawn(), tr.looks
    result = form.call(args)
    if tr.looks != looks or counters.class_edges != made_of_models:
        return result  # the next call may look at something else; at sizes that are new, it is not likely to come again
    if tr.gen != gen or _drawn() != drawn:
        _missed(before, _last(before), gen)
        return result
    if not form.writes:
        try:
            expected = [_expected(a, gen, made if tensor else None) for a, tensor in zip(args, form.tensors, strict=True)]
        except _Unknown:
            _missed(before, _last(before), gen)
            return result
        slots = [t._slot if t._gen == gen else None for t in made]
    if _remember(tr, form, expected, made, slots, result, before, tensors) and kinds is not None:
        if len(form.kept) > MOST_KINDS:
            form.kept.clear()
        form.kept.add(kinds)
    return result


def _as_before(form: Form, tr: Trace, args: tuple[Any, ...]) -> Any:
    """The call as it is remembered behind its inputs, or None. Native code does not enter them where calls are learned: theirs may be one."""
    gen = tr.gen
    for a in args:
        if a.__class__ is tuple or a.__class__ is list:
            for x in a:
                if x.__class__ is _TENSOR[0] and x._gen != gen:
                    tr.slot_of(x)
        elif a.__class__ is _TENSOR[0] and a._gen != gen:
            tr.slot_of(a)
    return form.scope["step_"](*args)


def _at_root(form: Form, tr: Trace, args: tuple[Any, ...]) -> Any:
    """The function where calls are learned (trace/immediate.py): a learned one needs nothing but its body. One that has been recorded
    a few times all the same is remembered."""
    kinds = tuple([a._meta if a.__class__ is _TENSOR[0] else a.__class__ for a in args])
    count, usual = form.recorded.get(kinds, (-1, False))
    if not usual:
        refuse(args, f"{form.body.__name__}()")
        usual = _checked(form, args)
        if count < 0:
            count = 0
            _count(form, kinds, 0, usual)
    state = tr.state
    if count == MOST_MISSES:
        if kinds in form.kept and form.scope["step_"] is not None:
            if (result := _as_before(form, tr, args)) is not None:
                return result
            form.kept.discard(kinds)
        result = _run(form, args, kinds)
    else:
        try:
            result = form._call(args)
        except Exception as error:
            return _again(form, error, args)
    if tr.state is state:
        if count:
            form.recorded[kinds] = 0, usual
    elif count < MOST_MISSES:
        _count(form, kinds, count + 1, usual)
    return result


def _count(form: Form, kinds: Any, count: int, usual: bool) -> None:
    if len(form.recorded) > MOST_KINDS:
        form.recorded.clear()
    form.recorded[kinds] = count, usual


def _again(form: Form, error: Exception, args: tuple[Any, ...]) -> Any:
    """A call that has failed, with its numbers as Python's, if some were not; else its error, which says what is wrong."""
    plain = form.plain(args) if isinstance(error, (AttributeError, TypeError)) else args
    if all(a is b for a, b in zip(args, plain, strict=True)):
        _tell(error, form, args)
    return _run(form, plain)


def _uncommon(t: Any) -> bool:
    """Whether a write to a tensor may do more than it says: hooks, or a history of its own."""
    return t._hooks is not None or t._retains_grad


def _drawn() -> int:
    from flambeau.ops.random import default_generator

    return default_generator.state.counter


def remembered(function: Function, numpy: bool = False, writes: bool = False, nothing: bool = False, by_values: Callable[..., Any] | None = None) -> Function:
    """Decorator of a function that calls operations, and whose calls may be remembered.

    `numpy`: it takes `axis` for `dim` and `keepdims` for `keepdim`. `writes`: it ends by writing to some of its tensors, all of which it uses.
    `nothing`: it returns None, which its body says by returning a tensor. `by_values`: answers calls that look at values, which cannot be
    remembered, at once; None: it is another call.
    """
    signature = inspect.signature(function)
    form = Form(function, writes)
    scope = form.scope = {"run": _run, "FORM": form, "OP": function, "at_root": _at_root, "step_": None, "LOCAL": local, "TRACE": Trace}
    name = function.__name__
    parameters = list(signature.parameters.values())
    head, named_otherwise = heading(name, parameters, scope, numpy)
    given = ", ".join(signature.parameters)
    back = "" if nothing else "return "
    # Calls that are learned where the trace is now are looked for by the operations.
    learned = ["    tr_ = LOCAL.trace", "    if tr_.__class__ is TRACE and tr_.state.immediate is not None:", f"        {back}at_root(FORM, tr_, ({given},))"]
    learned += ["        return"] if nothing else []
    source = [f"def {name}({head}):", *named_otherwise]
    source += ["    if step_ is not None:", f"        t_ = step_({given})", f"        if t_ is not None: return{'' if nothing else ' t_'}"]
    if by_values is not None:
        scope["by_values"] = by_values
        source += [f"    t_ = by_values({given})", f"    if t_ is not None: return{'' if nothing else ' t_'}"]
    source += learned
    source.append(f"    {back}run(FORM, ({given},))")
    made = lazy("\n".join(source), name, scope)
    made.__doc__, made.__name__, made.__qualname__, made.__module__ = function.__doc__, name, function.__qualname__, function.__module__
    made.__annotations__ = dict(function.__annotations__)
    made.__signature__ = signature
    made.body = function
    return made  # type: ignore[no-any-return]


def remembered_with_axis(function: Function) -> Function:
    """`remembered` for a function that also takes NumPy's names of its arguments."""
    return remembered(function, numpy=True)


def remembered_writes(function: Function) -> Function:
    """`remembered` for a function that ends by writing."""
    return remembered(function, writes=True)
