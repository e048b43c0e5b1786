"""What is found out about a function by calling it: dtypes that it takes, the shape and dtype of its result, errors of wrong arguments."""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any, Final, NamedTuple

import flambeau
from tests.documentation.samples import Sample, Scope, fixtures_of

DTYPES: Final = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
INTEGERS: Final = frozenset("bool uint8 int8 int16 int32 int64".split())
ERRORS: Final = (TypeError, ValueError, IndexError, RuntimeError, NotImplementedError, AssertionError, AttributeError, KeyError, OverflowError)
_DIMS: Final = frozenset("dim dims dim0 dim1 dim2 start_dim end_dim axis axis0 axis1 dimension source destination".split())


class Findings(NamedTuple):
    """`dtypes`: of the first tensor, taken; `results`: {dtype of the first tensor: that of the result}; `shape`: words; `raises`: (type, condition)."""

    dtypes: tuple[str, ...]
    results: dict[str, str]
    shape: str
    raises: tuple[tuple[str, str], ...]


def _call(sample: Sample, scope: dict[str, Any]) -> Any:
    flambeau.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(sample.text(), {"__builtins__": __builtins__}, scope)  # not computed: errors of arguments come at the call


def _tensor_arguments(sample: Sample) -> list[int]:
    """Positions whose argument is a fixture that is a tensor."""
    scope = Scope()
    return [i for i, a in enumerate(sample.args) if a.isidentifier() and fixtures_of(a) and isinstance(scope[a], flambeau.Tensor)]


def _with(sample: Sample, position: int, text: str) -> Sample:
    args = [*sample.args]
    args[position] = text
    return sample._replace(args=tuple(args))


# What an error that is about the dtype says; another error is one of this call's other arguments, and then nothing is said of dtypes.
_OF_DTYPES: Final = re.compile(
    r"not implemented for|dtype|not support|unsupported|[Cc]omplex|floating|[Ii]nteg|[Bb]ool|Float|Half|Long|Byte|Char|Short|Int\b|Double"
)


def _dtypes(sample: Sample, places: list[int]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of the first tensor; others of the same dtype as it change with it. None of in-place calls: whether a result fits depends on the other arguments."""
    if sample.function.endswith("_"):
        return (), {}
    scope = Scope()
    first = scope[sample.args[places[0]]].dtype
    names = {sample.args[i] for i in places if scope[sample.args[i]].dtype is first}
    taken, results = [], {}
    device = _device(sample)
    for d in DTYPES:
        scope = _on(sample, device)
        try:
            scope |= {n: scope[n].to(getattr(flambeau, d)) for n in names}
            result = _call(sample, scope)
        except ERRORS as error:
            if not isinstance(error, NotImplementedError) and not _OF_DTYPES.search(str(error)):
                return (), {}
            continue
        taken.append(d)
        result = result[0] if isinstance(result, (tuple, list)) and result else result
        if isinstance(result, flambeau.Tensor):
            results[d] = str(result.dtype).removeprefix("torch.")
    return tuple(taken), results


def _on(sample: Sample, device: str) -> Scope:
    """The fixtures of a call; on `meta` nothing of the call is compiled."""
    scope = Scope()
    for n in fixtures_of(sample.text()):
        if isinstance(scope[n], flambeau.Tensor):
            scope[n] = scope[n].detach().to(device)
    return scope


def _device(sample: Sample) -> str:
    """Where the call can be made without its values, if it can."""
    try:
        _call(sample, _on(sample, "meta"))
    except Exception:
        return "cpu"
    return "meta"


_SHAPES: Final = ((2, 3), (5, 4), (4, 3, 2), (6,))


def _shape(sample: Sample, places: list[int]) -> str:
    """How the result's shape follows from those of the tensors, where other shapes show it."""

    device = _device(sample)

    def shape_of(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
        scope = _on(sample, device)
        one = sample
        for i, shape in zip(places, shapes, strict=True):
            scope[f"t{i}"] = flambeau.ones(shape, dtype=scope[sample.args[i]].dtype, device=device)
            one = _with(one, i, f"t{i}")
        try:
            result = _call(one, scope)
        except ERRORS:
            return None
        return tuple(result.shape) if isinstance(result, flambeau.Tensor) else None

    if len(places) == 1:
        seen = [(s, r) for s in _SHAPES if (r := shape_of([s])) is not None]
        if len(seen) >= 2:
            if all(r == s for s, r in seen):
                return "of the shape of `{0}`"
            if all(r == () for _, r in seen):
                return "with no dimensions: one number"
            for cut in range(3):
                if all(r == (*s[:cut], *s[cut + 1 :]) for s, r in seen if len(s) > cut) and len([s for s, _ in seen if len(s) > cut]) >= 2:
                    return f"of the shape of `{{0}}` without one dimension (here the {('first', 'second', 'third')[cut]})"
    elif len(places) == 2:
        if shape_of([(2, 1), (3,)]) == (2, 3) and shape_of([(4, 1, 2), (3, 1)]) == (4, 3, 2):
            return "of the shape to which `{0}` and `{1}` broadcast"
        if shape_of([(2, 3), (3, 4)]) == (2, 4):
            return "of the rows of `{0}` and the columns of `{1}`"
        seen = [(s, r) for s in _SHAPES if (r := shape_of([s, s])) is not None]
        if len(seen) >= 2 and all(r == s for s, r in seen):
            return "of the shape of `{0}`"
    elif len(places) == 3 and shape_of([(2, 1), (3,), (1,)]) == (2, 3):
        return "of the shape to which the tensors broadcast"
    return ""


def _raises(sample: Sample, names: list[str], kinds: dict[str, str], places: list[int]) -> tuple[tuple[str, str], ...]:
    """Types of errors, with what was wrong: one argument of the valid call at a time."""
    found: dict[tuple[str, str], list[str]] = {}

    def note(kind: str, what: str, name: str, text: str, position: int) -> None:
        wrong = _with(sample, position, text) if position >= 0 else sample._replace(kwargs=(*[k for k in sample.kwargs if k[0] != name], (name, text)))
        try:
            _call(wrong, Scope())
        except ERRORS as error:
            head = next(e.__name__ for e in type(error).__mro__ if e in ERRORS)
            found.setdefault((head, what), []).append(name)
        except Exception:
            return

    given = [(names[i], i, a) for i, a in enumerate(sample.args) if i < len(names)] + [(n, -1, a) for n, a in sample.kwargs]
    for name, position, text in given:
        if sample.method and position == 0:
            continue
        kind = kinds.get(name, "")
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = None
        note("type", "is of another type", name, "object()", position)
        if name in _DIMS:
            note("dim", "is no dimension of the tensor", name, "7" if not isinstance(value, (tuple, list)) else "(7,)", position)
        elif isinstance(value, int) and not isinstance(value, bool):
            note("range", "is out of its range", name, "-7", position)
        if position in places and len(places) > 1:
            note("shape", "has a shape that does not fit the others", name, "torch.ones(7, 5)" if "int64" not in kind else "torch.ones(7, 5).long()", position)
        elif position in places:
            note("shape", "has a number of dimensions that is not taken", name, "torch.ones(1, 2, 1, 2, 1, 2)", position)
    for name in names[len(sample.args) :]:
        if name not in dict(sample.kwargs):
            note("type", "is of another type", name, "object()", -1)
    return tuple((kind, f"if {_listed(which)} {what}") for (kind, what), which in found.items())


def of_module(call: str, given: str) -> tuple[tuple[str, str], ...]:
    """Errors of a module's call: its input of another type, of another number of dimensions, or of a dtype that it does not take."""
    first, _, rest = given.partition(",")
    rest = f", {rest.strip()}" if rest else ""
    tries = {"is no tensor": "object()", "has a number of dimensions that is not taken": "torch.ones(1, 2, 1, 2, 1, 2, 1)", "is of bool": f"{first} > 0"}
    found = []
    for what, text in tries.items():
        scope = Scope()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                scope["m"] = eval(call, {}, scope)
                eval(f"m({text}{rest})", {}, scope)
        except ERRORS as error:
            found.append((next(e.__name__ for e in type(error).__mro__ if e in ERRORS), f"at the call, if the input {what}"))
        except Exception:
            continue
    return tuple(found)


def _listed(names: list[str]) -> str:
    names = [f"`{n}`" for n in dict.fromkeys(names)]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def probe(sample: Sample, names: list[str], kinds: dict[str, str]) -> Findings:
    """All of it. `names`: of the function's parameters, in order; `kinds`: what each takes."""
    places = _tensor_arguments(sample)
    dtypes, results, shape = ((), {}, "")
    if places:
        dtypes, results = _dtypes(sample, places)
        shape = _shape(sample, places).format(*[names[i] if i < len(names) else sample.args[i] for i in places])
    raises = _raises(sample, names, kinds, places)
    refused = [d for d in DTYPES if d not in dtypes]
    if dtypes and refused:
        scope = Scope()
        name = sample.args[places[0]]
        try:
            scope[name] = scope[name].detach().to(getattr(flambeau, refused[0]))
            _call(sample, scope)
        except ERRORS as error:
            head = next(e.__name__ for e in type(error).__mro__ if e in ERRORS)
            first = names[places[0]] if places[0] < len(names) else "input"
            raises = (*raises, (head, f"if `{first}` is of another dtype than those above"))
    return Findings(dtypes, results, shape, raises)
