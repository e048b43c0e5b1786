"""Writes the Python source of each public function: the fast path, specialised to its signature.

A call costs one dictionary look-up when its edge is known. What is not a plain tensor, number or hashable static argument
goes to `recover`, which converts (NumPy scalars, lists) and tries again, or raises PyTorch's TypeError.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import sys
from collections.abc import Callable, Sequence
from math import inf
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from flambeau.dtypes import C_NAMES, of_type, uint64
from flambeau.exact import number, plain_number, static, static_number
from flambeau.foreign import refuse
from flambeau.ops import former_orders
from flambeau.ops.from_memory import is_array
from flambeau.ops.signatures import many_numbers, overloads, problem
from flambeau.symbols import Sym, SymFloat, symbolic
from flambeau.trace.limits import look_at_numbers
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import Fragment, local
from flambeau.trace.while_set import while_switched
from flambeau.trace.wrong_calls import Missing, explained, unexpected
from flambeau.tracebacks import shorten
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.ops.registry import Operation


MISSING: Final = Missing()  # the default of a required argument that may come under NumPy's name
_LEAST_INT, _MOST_INT = -(2**63), 2**63 - 1  # of an integer operand


Function = TypeVar("Function", bound=Callable[..., Any])


class NotStrided(TypeError, NotImplementedError):
    """A sparse tensor was asked for its storage. Operations give the whole call to sparse/dispatch.py (see `recover`)."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(f"this needs a strided tensor, but got layout {tensor.layout} (shape {tuple(tensor._meta.shape)}); use its values or to_dense()")


def heading(name: str, parameters: list[inspect.Parameter], scope: dict[str, Any], numpy: bool, out: bool = False) -> tuple[str, list[str]]:
    """The head of a function with these parameters, whose defaults go into `scope`, and its first lines.

    `numpy`: it takes NumPy's names, too. `out`: and an `out`. More arguments by position are for `formerly`, where the function has former orders.
    """
    names = [p.name for p in parameters]
    aliases = [(old, new) for old, new in (("axis", "dim"), ("keepdims", "keepdim")) if numpy and new in names and old not in names]
    head: list[str] = []
    optional: list[str] = []  # required parameters from a renamed one on: they may come under its other name
    star = False
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not star:
            head.append("*former_" if former_orders.has(name) else "*")
        star = star or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        scope[f"D{i}"] = p.default
        if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and (optional or p.name in dict(aliases).values()):
            optional.append(p.name)
            scope[f"D{i}"] = scope["MISSING"] = MISSING
        head.append(f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name if scope[f"D{i}"] is p.empty else f"{p.name}=D{i}")
    if not star and former_orders.has(name):
        head.append("*former_")
        star = True
    extra = (["out=None"] if out else []) + [f"{old}=None" for old, _ in aliases]
    head += ([] if star or not extra else ["*"]) + extra
    lines = []
    for old, new in aliases:
        wrong = f"raise TypeError(\"{name.rsplit('.', 1)[-1]}() got an unexpected keyword argument '{old}': '{new}' is given, too\")"
        lines += [f"    if {old} is not None:", f"        if {new} is not D{names.index(new)}: {wrong}", f"        {new} = {old}"]
    lines += [f"    if {n} is MISSING: raise TypeError('{name.rsplit('.', 1)[-1]}() missing 1 required positional arguments: \"{n}\"')" for n in optional]
    if "*former_" in head:
        places = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
        named = ", ".join([f"{p.name!r}: {p.name}" for p in parameters if p.kind is p.KEYWORD_ONLY] + (["'out': out"] if out else []))
        scope["formerly"] = former_orders.formerly
        lines.insert(0, f"    if former_: return formerly({name!r}, target_, {len(places)}, ({', '.join(places)}, *former_), {{{named}}})")
    return ", ".join(head), lines


def make_wrapper(op: Operation) -> Callable[..., Any]:
    """The public function of an operation."""
    signature = inspect.signature(op.body)
    parameters = list(signature.parameters.values())
    scope: dict[str, Any] = {"OP": op, "local": local, "new": object.__new__, "CLASS": _TENSOR, "recover": recover}
    scope |= {"L_": _LEAST_INT, "M_": _MOST_INT, "number": number, "plain_number": plain_number, "static": static, "static_number": static_number}
    scope["look_at_numbers"] = look_at_numbers
    scope["no_tensor_that_answers"] = no_tensor_that_answers
    head, first_lines = heading(op.name, parameters, scope, numpy=True, out=op.out)
    names = [p.name for p in parameters]
    body: list[str] = []
    keys: list[str] = []
    learned: list[str] = []  # the keys of immediate calls: metadata where the trace's have slots
    pushes: list[str] = []
    data: list[str] = []  # the numbers that are data
    flat: list[str] = []
    simple = True  # every tensor argument always present and single
    learnable = True
    head_lines: list[str] = []  # before the look-ups: the classes of what may be a number, and the keys of what is no tensor
    for i, (p, kind) in enumerate(zip(parameters, op.kinds, strict=True)):
        n = p.name
        slot = f"s_ if (s_ := {n}._slot) is not None and {n}._gen == g_ else tr_.resolve({n})"  # in this order: see Trace.slot_of
        if kind in ("tensor", "tensor?"):
            head_lines.append(f"if {n}.__class__ is not T_ and not isinstance({n}, T_): no_tensor_that_answers({n})")
        if kind == "tensor":
            body.append(f"k{i} = {slot}")
            learned.append(f"{n}._meta")
            flat.append(n)
        elif kind == "tensor?":
            body.append(f"k{i} = None if {n} is None else ({slot})")
            learned.append(f"None if {n} is None else {n}._meta")
            flat.append(n)
            simple = False
        elif kind in ("operand", "operand?", "exponent"):
            head_lines.append(f"c{i} = {n}.__class__")
            head_lines.append(f"if c{i} is not T_ and c{i} is not float and c{i} is not int and not isinstance({n}, T_): no_tensor_that_answers({n})")
            changes = f"c{i} is float and LOW{i} <= {n} <= HIGH{i} and {n} not in APART{i}"  # see ops/changing.py
            as_number = f"c{i} if {changes if kind == 'exponent' else f'c{i} is float or c{i} is int'} else number({n})"
            learned.append(f"{n}._meta if c{i} is T_ else None if {n} is None else {as_number}")
            body.append(f"if c{i} is T_: k{i} = {slot}")  # the usual case first
            if kind == "exponent":
                scope[f"LOW{i}"], scope[f"HIGH{i}"], scope[f"APART{i}"] = inf, -inf, frozenset()
                body.append(f"elif {changes}: k{i} = c{i}")
                body.append(f"elif c{i} is float or c{i} is int or c{i} is bool or c{i} is complex: k{i} = number({n})")
            else:
                body.append(f"elif c{i} is float or c{i} is int and L_ <= {n} <= M_: k{i} = c{i}")
                body.append(f"elif c{i} is bool or c{i} is complex: k{i} = number({n})")
            pushes.append(f"k{i} is c{i} and tr_.params.append({n}); ")
            data.append(f"*([{n}] if k{i} is c{i} else ())")
            if kind == "operand?":
                body.append(f"elif {n} is None: k{i} = None")
            body.append(f"else: k{i} = {slot}")
            flat.append(n)
            simple = False
        elif kind == "number":
            head_lines.append(f"c{i} = {n}.__class__")
            head_lines.append(f"k{i} = c{i} if (c{i} is float or c{i} is int and L_ <= {n} <= M_) and {n} != D{i} else plain_number({n})")
            learned.append(f"k{i}")
            pushes.append(f"k{i} is c{i} and tr_.params.append({n}); ")
            data.append(f"*([{n}] if k{i} is c{i} else ())")
        elif kind == "tensors":
            body.append(f"k{i} = tuple([None if t_ is None else s_ if (s_ := t_._slot) is not None and t_._gen == g_ else tr_.resolve(t_) for t_ in {n}])")
            flat.append("*" + n)
            learned.append(f"tuple([None if t_ is None else t_._meta for t_ in {n}]) if {n}.__class__ is list or {n}.__class__ is tuple else None")
            simple = False
        else:
            annotation = str(p.annotation).removesuffix(" | None")
            if annotation in ("float", "Whole"):  # may change: then its limits are no longer empty (ops/changing.py)
                scope[f"LOW{i}"], scope[f"HIGH{i}"], scope[f"APART{i}"], scope[f"INT{i}"] = inf, -inf, frozenset(), -1
                head_lines.append(f"c{i} = {n}.__class__")
                changes = f"c{i} is float and LOW{i} <= {n} <= HIGH{i} and {n} not in APART{i} or c{i} is int and -INT{i} <= {n} <= INT{i}"
                head_lines.append(f"k{i} = c{i} if {changes} else {n} if {n} is None or c{i} is int else static_number({n})")
                pushes.append(f"k{i} is c{i} and tr_.params.append({n}); ")
                data.append(f"*([{n}] if k{i} is c{i} else ())")
            elif annotation == "bool":  # True stands for itself, so 1 must not
                head_lines.append(f"k{i} = {n} if {n} is False or {n} is True or {n} is None else ({n}.__class__, static({n}))")
            else:
                head_lines.append(f"k{i} = {n} if {n} is None or {n}.__class__ is {'str' if annotation == 'str' else 'int'} else static({n})")
            learned.append(f"k{i}")
        keys.append(f"k{i}")
    arguments = ", ".join(names) + ("," if len(names) == 1 else "")
    tensors = ", ".join(flat) + ("," if len(flat) == 1 else "")
    given = f"({tensors})" if simple else f"[t_ for t_ in ({tensors}) if isinstance(t_, CLASS[0])]"
    source = [f"def {op.name.replace('.', '_')}({head}):", *first_lines]
    if op.out:
        call = ", ".join(n if p.kind is not p.KEYWORD_ONLY else f"{n}={n}" for n, p in zip(names, parameters, strict=True))
        from flambeau.trace.mutation import into
        from flambeau.trace.overlap import OUT_KEEPS, OUT_REFUSES, STARTS_AS_INPUT, refuse_overlaps

        read = [n for n, kind in zip(names, op.kinds, strict=True) if kind.startswith(("tensor", "operand", "exponent"))]
        if op.name in STARTS_AS_INPUT:  # `out` may be the first argument
            read = read[1:]
        source.append("    if out is not None:")
        source.append(f"        if BELOW and (t_ := with_out(OP, out, ({', '.join(names)},))) is not NotImplemented: return t_")
        scope |= {"BELOW": BELOW, "with_out": _with_out}
        if op.name.rsplit(".", 1)[-1] in OUT_REFUSES:
            source.append(f"        refuse_overlaps(out, ({', '.join(read)},), OP.name)")
        if "dtype" in names:  # computed in the dtype of `out`
            inferred = " and input.dtype.category >= 2" * op.name.endswith("mean")  # of whole numbers there is no mean, whatever `out` is
            source.append(f"        if dtype is None and hasattr(out, 'dtype'){inferred}: dtype = out.dtype")
            source.append("        if dtype is not None and getattr(out, 'dtype', dtype) is not dtype: refuse_dtype_of_out(OP.name, dtype, out)")
            scope["refuse_dtype_of_out"] = _refuse_dtype_of_out
        kept = " or ".join([f"out is {n}" for n in read]) if op.name.rsplit(".", 1)[-1] in OUT_KEEPS and len(read) > 1 else ""
        source.append(f"        return into(out, not_cast(OP.function)({call}), OP.name{', ' * bool(kept)}{kept})")
        scope |= {"into": into, "not_cast": not_cast, "refuse_overlaps": refuse_overlaps}
    immediately = [
        "        l_ = tr_.state.immediate",
        "        if l_ is not None and not tr_.held:",
        f"            l_ = l_[OP, {', '.join(learned)}]",  # None where none is learned
        "            if l_ is not None:",
        "                OP.recent = l_",
        f"                l_ = l_.run({', '.join(names)})",
        "                if l_ is not None: return l_",
    ]
    scope["step_"] = None
    lists = [
        f"    if tr_.__class__ is TRACE_ and {names[0]}.__class__ in (list, tuple) and len({names[0]}) >= FEWEST_:",
        f"        t_ = collected_(tr_, OP, {', '.join(names)})",
        "        if t_ is not None: return t_",
    ]
    if op.collects:
        from flambeau.trace.recorder import Trace

        scope |= {"FEWEST_": FEWEST, "TRACE_": Trace, "collected_": collected}
    source += ["    if step_ is not None:", f"        t_ = step_({', '.join(names)})", "        if t_ is not None: return t_"]
    source += [
        "    tr_ = local.trace",
        *(lists if op.collects else []),
        "    g_ = tr_.gen",
        "    try:",
        *[f"        {line}" for line in head_lines],
        *(immediately if learnable and flat else []),
        *[f"        {line}" for line in body],
        f"        key_ = (OP, {', '.join(keys)})" if keys else "        key_ = (OP,)",
        "        n_ = tr_.state.children.get(key_)",
        "    except (AttributeError, TypeError) as error:",
        f"        return recover(OP, error, ({arguments}))",
        "    if n_ is None:",
        f"        return tr_.slow(OP, key_, ({arguments}))",
        *([f"    if n_.limits: look_at_numbers(n_, [{', '.join(data)}])"] if data else []),
        "    if n_.plain and not n_.bounds:",
        f"        {''.join(pushes)}tr_.state.next = tr_.state = n_",  # one line, so that no debugger can come in between
        "        t_ = new(T_)",
        "        t_._gen = g_",
        "        t_._slot = n_.slot",
        "        t_._meta = n_.meta",
        "        t_._storage = t_._immediate = None",
        "        tr_.tensors.append(t_)",
        "        return t_",
        f"    {''.join(pushes)}return tr_.follow(n_, {given})",
    ]
    function = lazy("\n".join(source), op.name, scope)
    function.__doc__ = op.body.__doc__
    function.__name__ = op.name.rsplit(".", 1)[-1]
    function.__qualname__ = function.__name__
    function.__module__ = op.body.__module__
    function.__annotations__ = dict(op.body.__annotations__)
    function.operation = op
    function.__signature__ = signature
    return function


def no_tensor_that_answers(a: Any) -> None:
    """AttributeError, which leads to `recover`, for what is no tensor and answers for itself: it may pass on every look-up to a tensor that it wraps."""
    if hasattr(type(a), "__torch_function__"):
        raise AttributeError(f"a {type(a).__name__} answers for itself")


_equipped: list[dict[str, Any]] = []  # globals of the wrappers that can do a known edge in native code
_equip: Callable[[Operation], Any] | None = None


FEWEST: Final = 4  # tensors of a list that may be collected: fewer lengths than that are soon known


@upward
def collect(tr: Any, op: Any, tensors: Any, dim: Any) -> Any:
    """The result of a call of `stack` or `cat`, or None where it is to be recorded (autograd/collected.py)."""
    raise NotImplementedError


@upward
def sparse_dispatch(name: str, args: Sequence[Any]) -> Any:
    """The call of an operation of which an argument is sparse (sparse/dispatch.py)."""
    raise NotImplementedError


def collected(*call: Any) -> Any:
    """See autograd/collected.py."""
    return collect(*call)


def equip_with(equip: Callable[[Operation], Any]) -> None:
    """Give the wrappers `step_`: a builtin for the operation, which does a known edge or answers None (ops/known_edge.py)."""
    global _equip
    _equip = equip
    for scope in _equipped:
        scope["step_"] = equip(scope["OP"])


def equip_again(op: Operation) -> None:
    """The same for one operation whose arguments have other kinds now."""
    if _equip is not None:
        for scope in _equipped:
            if scope["OP"] is op:
                scope["step_"] = _equip(op)


def lazy(source: str, name: str, scope: dict[str, Any]) -> Any:
    """A function that compiles its source at the first call and from then on is that code: importing stays quick."""

    def build(*args: Any, **kwargs: Any) -> Any:
        made: dict[str, Any] = {}
        scope["T_"] = _TENSOR[0]
        exec(compile(_shortening(source), f"<flambeau operation {name}>", "exec"), scope, made)
        real = made[source.split("(", 1)[0].rsplit(" ", 1)[-1]]  # by name: a debugger adds names of its own
        target = scope["target_"]
        target.__defaults__, target.__kwdefaults__ = real.__defaults__, real.__kwdefaults__
        target.__code__ = real.__code__
        for operator, other in scope.get("twins_", {}).items():
            other.__defaults__, other.__kwdefaults__ = real.__defaults__, real.__kwdefaults__
            other.__code__ = real.__code__.replace(co_name=operator)
        if "step_" in scope:
            _equipped.append(scope)
            if _equip is not None:
                scope["step_"] = _equip(scope["OP"])
        return scope.get("twins_", {}).get(sys._getframe(1).f_code.co_name, target)(*args, **kwargs)

    scope["build"], scope["failed_"] = build, failed
    scope["target_"] = stub = FunctionType(_STUB, scope)  # ops/instrument.py puts a copy there while the function itself asks others
    return stub


def twin(function: Any, name: str) -> Any:
    """A public function as one of Python's operators, which `name` is: the same code, but TypeErrors of its arguments become NotImplemented, so that the
    other operand's own method gets its chance, as for any Python object. The name of its code says so (`_from_operator`)."""
    scope = function.__globals__
    if scope.get("target_") is not function:
        return _declining(function, name)
    code = function.__code__
    made = FunctionType(code.replace(co_name=name), scope, function.__name__, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    made.__doc__, made.__qualname__, made.__module__ = function.__doc__, function.__qualname__, function.__module__
    if name != "__rsub__":  # what `__torch_function__` is asked with: there, this one is not the method that a user may call by name
        made.twin_of = function  # type: ignore[attr-defined]
    else:
        made.__name__ = made.__qualname__ = name
    scope.setdefault("twins_", {})[name] = made
    return made


def declined(name: str, other: Any) -> Any:
    """NotImplemented for an operand that was not taken. TypeError for one of PyTorch's own, whose method would make False, or nonsense, of our tensor."""
    refuse((other,), f"{name}()")
    return NotImplemented


def _declining(function: Any, name: str) -> Any:
    """A function that is no operation, as an operator."""

    def operator(self: Any, other: Any) -> Any:
        try:
            return NotImplemented if is_foreign(other) else function(self, other)
        except TypeError:
            return declined(name, other)

    operator.__name__ = operator.__qualname__ = name
    operator.__annotations__ = function.__annotations__
    return operator


def failed(error: BaseException) -> None:
    """After an error in a public function: run-time numbers that it has left for an edge that was not taken are not the next one's."""
    local.main.heal()
    shorten(error)


def _shortening(source: str) -> str:
    """The source of a function that ends in `failed` where it raises."""
    head, *lines = source.split("\n")
    return "\n".join([head, "    try:", *[f"    {line}" for line in lines], "    except BaseException as error_:", "        failed_(error_)", "        raise"])


def _stub(*args: Any, **kwargs: Any) -> Any:
    try:
        return build(*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821 - in the scope that the stub is given
    except BaseException as error:
        failed_(error)  # type: ignore[name-defined]  # noqa: F821
        raise


_STUB = _stub.__code__


_SCANS = frozenset(("cumsum", "cumprod"))  # in place, PyTorch computes them in their tensor's dtype, bool too
_TAKES_EXPANDED = frozenset(("masked_fill", "index_fill"))  # whose in-place forms write to expanded tensors

# Operations in autocast's lists (ops/autocast_lists.py) that have an in-place form, which autocast leaves alone.
_LISTED_IN_PLACE = frozenset(("addmm", "addbmm", "baddbmm", "index_copy"))


def numpy_names(function: Function) -> Function:
    """Let a function that is no operation take `axis` for `dim` and `keepdims` for `keepdim`, as PyTorch's native functions do."""

    parameters = list(inspect.signature(function).parameters.values())
    scope: dict[str, Any] = {"function": function}
    name = function.__name__
    head, lines = heading(name, parameters, scope, numpy=True)
    passed = ", ".join([f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters])
    exec(compile("\n".join([f"def {name}({head}):", *lines, f"    return function({passed})"]), f"<flambeau operation {name}>", "exec"), scope)
    return cast(Function, functools.wraps(function)(scope[name]))


BELOW: list[type] = []  # the classes with `__torch_dispatch__` (ops/dispatch.py)


def _refuse_dtype_of_out(name: str, wanted: Any, out: Any) -> None:
    """RuntimeError where `dtype` was given and an `out` of another one."""
    wanted = of_type(wanted)
    if out.dtype is wanted:
        return
    words = f"Expected out tensor to have dtype {wanted}, but got {out.dtype} instead"
    if name.startswith("nan"):
        words = f"provided dtype must match dtype of result. Got {C_NAMES[out.dtype.name]} and {C_NAMES[wanted.name]}"
    raise RuntimeError(f"{name}: {words}: leave `dtype` out, or give an `out` of it")


def _with_out(op: Operation, out: Any, args: tuple[Any, ...]) -> Any:
    from flambeau.ops.below import with_out

    return with_out(op, out, args)


def not_cast(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as it is without autocast: PyTorch's in-place and out= forms do not take part in it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        tr = local.main
        lower = tr.autocast
        if lower is None:
            return function(*args, **kwargs)
        return while_switched(tr.set_autocast, lower, None, function, *args, **kwargs)

    return call


def make_inplace(op: Operation) -> Callable[..., Any]:
    """`name_`: the operation, then its result written over its first argument."""
    from flambeau.trace.mutation import PARTIAL, assign, replace
    from flambeau.trace.overlap import refuse_overlap

    function = not_cast(op.function) if op.name in _LISTED_IN_PLACE else op.function
    name = op.name + "_"
    scope: dict[str, Any] = {"OP": op, "replace": replace, "assign": assign, "function": function, "NAME": name, "step_": None}
    parameters = list(inspect.signature(op.body).parameters.values())
    head, named_otherwise = heading(name, parameters, scope, numpy=True)
    arguments, named = list(op.names), list(op.names[len(op.names) - op.keywords :])
    first, *rest = arguments
    given = ", ".join([n for n in rest if n not in named])
    source = [f"def {name.replace('.', '_')}({head}):", *named_otherwise]
    if op.name == "abs":
        refused = "RuntimeError('In-place abs is not supported for complex tensors: the result is real; use abs')"
        source.append(f"    if isinstance({first}, T_) and {first}.is_complex(): raise {refused}")
    if op.name in _SCANS:  # in the dtype of what they write
        source.append(f"    if dtype is None and {first}.__class__ is T_ and not {first}.dtype.category: dtype = {first}.dtype")
    if function is op.function:  # what `replace` does, where the edge is known
        single = ("tensor", "tensor?", "operand", "operand?", "exponent")
        read = [n for n, kind in zip(op.names, op.kinds, strict=True) if n != first and kind in single]
        partial = name in PARTIAL  # where elements share memory it has to be known which of them are written
        known = f"step_ is not None and ({first}.__class__ is not T_ or not shares_places({first}._meta))" if partial else "step_ is not None"
        source += [f"    if {known}:", f"        t_ = step_({', '.join(arguments)})", "        if t_ is not None:"]
        for n in read:  # other views of the memory that is written to
            shared = f"{n}.__class__ is T_ is {first}.__class__ and {n}._storage is {first}._storage is not None"
            source.append(f"            if {shared}: refuse({first}, {n}, NAME)")
        source.append(f"            return assign({first}, t_, NAME, True)")
        scope["refuse"] = refuse_overlap
        if partial:
            from flambeau.ops.expanded_writes import shares_places

            scope["shares_places"] = shares_places
    if len(op.names) > 1 and op.kinds[1] in ("operand", "exponent"):  # `a += b`: the other operand's own method gets its chance
        source.append(f"    if {op.names[1]}.__class__ is not T_ and foreign({op.names[1]}) and from_operator(): return NotImplemented")
        scope |= {"foreign": _is_anothers, "from_operator": _from_operator}
    source.append(f"    return replace(function, {first}, ({given}{',' if given else ''}), {{{', '.join(f'{n!r}: {n}' for n in named)}}}, NAME)")
    if op.name in _TAKES_EXPANDED:
        from flambeau.ops.expanded_writes import fill, is_expanded

        scope |= {"is_expanded": is_expanded, "fill": fill}
        head_line, *lines = source
        source = [head_line, "    try:", *["    " + line for line in lines], "    except RuntimeError:", f"        if not is_expanded({first}): raise"]
        source.append(f"        return fill(NAME, {', '.join(arguments)})")
    inplace = lazy("\n".join(source), name, scope)
    if op.name.startswith("logical_"):
        return _outside_history(inplace, name)
    inplace.__name__ = inplace.__qualname__ = name
    inplace.__signature__ = inspect.signature(op.body)
    inplace.__doc__ = f"In-place form of `{op.name}`: the result replaces the values of the first argument, which is returned."
    inplace.__module__ = op.body.__module__
    return inplace  # type: ignore[no-any-return]


def _outside_history(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """An in-place function whose result is never differentiable: it may write to a leaf, and leaves the history of what it writes as it was."""

    def inplace(input: Any, *args: Any, **kwargs: Any) -> Any:
        from flambeau.grad_modes import no_grad

        with no_grad():
            return function(input, *args, **kwargs)

    inplace.__name__ = inplace.__qualname__ = name
    inplace.__doc__ = f"In-place form of `{name[:-1]}`: the result replaces the values of the first argument, which is returned; its history stays."
    return inplace


def recover(op: Operation, error: Exception, args: tuple[Any, ...]) -> Any:
    """Convert what PyTorch would convert, and call again; else raise the error in PyTorch's words.

    Arguments that answer for themselves (`__torch_function__`) come here, too: their wrappers' look-ups fail (ops/dispatch.py).
    """
    if symbolic(args) and type(local.trace) is Fragment:
        return local.trace.slow(op, None, args)
    if type(error) is NotStrided:
        try:
            if op.checks is not None and op.checks.layouts:
                op.checks(op, args)
            return sparse_dispatch(op.name, args)
        except Exception as failure:
            if unexpected(failure):
                raise explained(failure, op.name, op.names, args) from failure
            raise
    refuse(args, f"{op.name}()")
    tensor = _TENSOR[0]
    if any(type(a) is not tensor and hasattr(a, "__torch_function__") for a in args) or any(type(a) in (list, tuple) for a in args):
        from flambeau.ops.dispatch import from_wrapper

        answer = from_wrapper(op, args)
        if answer is not NotImplemented:
            return answer
    wrong = problem(op.name, op.names, args, op.defaults)
    if wrong is not None:
        if isinstance(wrong, TypeError) and len(args) > 1 and _from_operator():
            return NotImplemented  # the other operand's own method gets its chance, as for any Python object
        raise wrong
    converted = []
    changed = False
    for position, (name, kind, a) in enumerate(zip(op.names, op.kinds, args, strict=True), start=1):
        if kind in ("operand", "operand?") and type(a) is int and _MOST_INT < a < 2**64 and (wide := _of_64_bits(a, args)) is not None:
            converted.append(wide)
            changed = True
            continue
        if kind in ("operand", "operand?", "number") and type(a) is int and not _LEAST_INT <= a <= _MOST_INT:
            raise OverflowError(
                f"{op.name}(): argument '{name}' (position {position}) is {a}: an integer operand must lie within 64 bits "
                f"({_LEAST_INT} to {_MOST_INT}); give a float where the tensor is a floating one"
            )
        b = a
        if kind in ("operand", "operand?", "exponent", "number") and not isinstance(a, (tensor, int, float, complex)):
            if isinstance(a, numbers.Number) or (hasattr(a, "item") and getattr(a, "ndim", 1) == 0):
                b = a if is_array(a) and _from_operator() else from_numpy_scalar(a)
            elif a is not None and hasattr(a, "__index__") and not getattr(a, "ndim", 0):
                b = a.__index__()
        elif kind == "number" and isinstance(a, tensor) and a._meta.ndim == 0:
            b = a.item()
        fixed = kind in ("static", "changing")
        b = _plain(b) if not fixed else of_type(a) if name.endswith("dtype") else freeze(a)
        if fixed and isinstance(b, bool) and isinstance(a, tensor) and overloads(op.name):
            b = int(b)  # PyTorch's parser, which has let it pass, takes it for a dim
        changed = changed or b is not a
        if fixed and isinstance(b, tensor):
            raise many_numbers(op.name, name, position, b)
        if kind in ("tensor", "operand", "exponent") and not isinstance(b, (tensor, int, float, complex)):
            if len(args) > 1 and _from_operator():
                return NotImplemented  # the other operand's own method gets its chance, as for any Python object
            expected = "Tensor" if kind == "tensor" else "Tensor or Number"
            raise TypeError(f"{op.name}(): argument '{name}' (position {position}) must be {expected}, not {type(a).__name__}")
        if kind == "tensor" and not isinstance(b, tensor):
            raise TypeError(f"{op.name}(): argument '{name}' (position {position}) must be Tensor, not {type(a).__name__}")
        if kind == "tensor?" and a is not None and not isinstance(a, tensor):
            raise TypeError(f"{op.name}(): argument '{name}' (position {position}) must be Tensor, not {type(a).__name__}")
        if kind == "tensors":
            if isinstance(a, tensor) or not hasattr(a, "__iter__"):
                raise TypeError(f"{op.name}(): argument '{name}' (position {position}) must be tuple of Tensors, not {type(a).__name__}")
            items = tuple(a)
            for i, item in enumerate(items):
                if not isinstance(item, tensor):
                    raise TypeError(f"{op.name}(): expected Tensor as element {i} in argument '{name}' (position {position}), but got {type(item).__name__}")
            if not isinstance(a, (tuple, list)):
                b, changed = items, True
        converted.append(b)
    if not changed:
        raise explained(error, op.name, op.names, args) if unexpected(error) else error
    return op.call(converted)


def _of_64_bits(number: int, args: tuple[Any, ...]) -> Any:
    """An integer beyond int64 as what the tensors beside it can compute with: of uint64, or a float; None beside other integers."""
    found = [a._meta.dtype for a in args if isinstance(a, _TENSOR[0])]
    if any(d.category >= 2 for d in found):
        return float(number)
    if uint64 not in found:
        return None
    from flambeau.ops.from_data import tensor

    return tensor(number, dtype=uint64)


def is_foreign(other: Any) -> bool:
    """Whether an operand is neither a number nor like a tensor: it gets its own chance (NotImplemented)."""
    if isinstance(other, type):  # it may have the attributes that its instances are known by
        return True
    known = isinstance(other, (int, float, complex)) or hasattr(other, "_meta") or hasattr(other, "item")
    return not known and not hasattr(other, "__torch_function__") and not hasattr(other, "__index__")


def _is_anothers(other: Any) -> bool:
    return is_foreign(other) or is_array(other)


_ON_THE_WAY: Final = ("<flambeau operation", __file__, *[os.path.join(os.path.dirname(__file__), n) for n in ("instrument.py", "dispatch.py")])


def _from_operator() -> bool:
    """Whether the public function that came here was called by an operator (`a + b`, `operator.add(a, b)`), not by name."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_ON_THE_WAY):  # at a first call the wrapper is compiled on the way
        if frame.f_code.co_name.startswith("__") and not frame.f_code.co_name.startswith("__call"):
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def freeze(a: Any) -> Any:
    """Lists as tuples (deeply), numbers as those of Python's own classes; anything else as it is."""
    if isinstance(a, type):  # it may have the attributes that its instances are known by
        return a
    if isinstance(a, (list, tuple)) and not hasattr(a, "_fields"):
        frozen = tuple(freeze(x) for x in a)
        return a if isinstance(a, tuple) and all(x is y for x, y in zip(frozen, a, strict=True)) else frozen
    if isinstance(a, _TENSOR[0]):
        return a.item() if a._meta.numel == 1 else a
    if hasattr(a, "item") and getattr(a, "ndim", 1) == 0:
        return a.item()
    if not isinstance(a, (int, float, complex)) and hasattr(a, "__index__"):
        return a.__index__()
    return _plain(a)


def from_numpy_scalar(a: Any) -> Any:
    """NumPy's scalars (and arrays without dims) as Python's numbers; its bool is a float, as to PyTorch. Anything else, tensors too, as it is."""
    if not hasattr(a, "item") or getattr(a, "ndim", 1) != 0 or isinstance(a, _TENSOR[0]):
        return a
    value = a.item()
    return float(value) if value.__class__ is bool else value


def _plain(a: Any) -> Any:
    """A number of a class derived from one of Python's as a number of that class (an IntEnum, a float with a unit); anything else as it is."""
    classes: tuple[type[Any], ...] = (bool, int, float, complex)
    if a.__class__ is Sym or a.__class__ is SymFloat:
        return a
    for cls in classes:
        if isinstance(a, cls):
            return a if type(a) is cls else cls(a)
    return a
