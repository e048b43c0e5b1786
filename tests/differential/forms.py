"""The forms in which an operator of PyTorch's database is called: in place, with `out=`, as a method, by its operator, on inputs of
other layouts, sizes and values, with special numbers as arguments, and with arguments that are wrong.

A form makes, from a case, calls of a function of the framework: what it gives back (values, whether a result is the tensor that
was given, strides, warnings) is compared like any result.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType
from typing import Any

import numpy as np

import flambeau
from flambeau.testing.compare import Input
from tests.differential.samples import ALWAYS, OPERATORS, Case, Draw, Unsupported, case_of, cases, for_flambeau, text_of, torch

FORMS = ("function", "inplace", "out", "method", "operator", "layout", "size", "special", "numbers", "errors")
Function = Callable[..., Any]


def form_cases(label: str, dtype: str, form: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    """At most `most` calls of an operator in a form."""
    made = {
        "inplace": _inplace, "out": _out, "method": _method, "operator": _operator, "layout": _layouts, "size": _sizes, "special": _special,
        "numbers": _numbers,
    }  # fmt: skip
    if form == "function":
        yield from cases(label, dtype, gradients, most, draw)
    else:
        yield from made[form](label, dtype, gradients, most, draw)


def _pair(make: Callable[[Any, Function], Function], ours: Function, theirs: Function) -> tuple[Function, Function]:
    return make(flambeau, ours), make(torch, theirs)


def _flat(x: Any) -> list[Any]:
    return [leaf for part in x for leaf in _flat(part)] if isinstance(x, (tuple, list)) else [x]


# -- in place -----------------------------------------------------------------------------------------------------


def _written(module: Any, function: Function) -> Function:
    """In place on a fresh tensor, which is no leaf."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        target = input.clone()
        result = function(target, *args, **kwargs)
        return result, target, result is target

    return call


def _written_view(module: Any, function: Function) -> Function:
    """In place on a view: what it is a view of, before and after."""

    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        base = module.stack([input, input])
        first = base.select(0, 1)
        function(first, *args, **kwargs)
        return base, first, first + first

    return call


def _inplace(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    op = OPERATORS[label]
    if op.inplace_variant is None:
        return
    ours, theirs = for_flambeau(op.inplace_variant, op.name + "_"), op.inplace_variant
    for i, case in enumerate(cases(label, dtype, gradients and op.supports_inplace_autograd, most, draw)):
        if isinstance(case.args[0], Input):
            yield case._replace(function=_pair((_written, _written_view)[i % 2], ours, theirs), text="in place " + case.text)
    for case in cases(label, dtype, False, 1, draw):
        if isinstance(case.args[0], Input) and case.args[0].values.ndim:
            leaf = _like(case.args[0], case.args[0].values, requires_grad=dtype in ("float64", "float32", "complex128"))
            yield case._replace(function=(ours, theirs), args=(leaf, *case.args[1:]), text="in place on a leaf " + case.text)


# -- out= ---------------------------------------------------------------------------------------------------------

OUTS = ("same", "other shape", "empty", "other dtype", "transposed", "strided", "input", "expanded", "shifted", "float", "gradients")


def _given_out(kind: str) -> Callable[[Any, Function], Function]:
    """Called with an `out=` of a kind; back come the results, their strides, what they are, and whether there was a warning."""

    def make(module: Any, function: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if module is torch and kind in ("shifted", "input"):
                _refused(function, args, kwargs, kind)
            plain = function(*args, **kwargs)
            if not all(isinstance(t, module.Tensor) for t in _flat(plain)):
                return ()
            if kind == "expanded" and module is torch and any(t.numel() > 1 for t in _flat(plain)):
                # most functions of PyTorch refuse; some write all the same, a few of them past the end of the memory
                raise RuntimeError("more than one element of the written-to tensor refers to a single memory location")
            # where memory overlaps an input's, some functions of PyTorch read what they have written: ours must give what belongs there
            place = "same" if kind in ("shifted", "input") and module is torch else kind
            outs = [_out_of(module, t, place if i == 0 or place not in ("input", "shifted") else "same", args) for i, t in enumerate(_flat(plain))]
            given = outs[0] if isinstance(plain, module.Tensor) else tuple(outs)
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                result = function(*args, **kwargs, out=given)
            if kind == "gradients" and module is torch and any(t.requires_grad for t in outs):
                raise RuntimeError("out= does not take part in differentiation")  # what has no gradient writes all the same there
            told = [w for w in told if "resized" in str(w.message)]
            keeps = kind not in ("empty", "other shape", "input", "shifted")  # a resized tensor may have any order of dims
            order = [tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() > 1 and keeps else () for t in outs]
            return [t.contiguous() for t in outs], order, [r is t for r, t in zip(_flat(result), outs, strict=True)], bool(told)

        return call

    return make


def _refused(function: Function, args: Any, kwargs: Any, kind: str) -> None:
    """PyTorch's own error, if it refuses an `out` that shares memory with an input, on copies of the arguments."""

    def copied(x: Any) -> Any:
        return x.detach().clone() if isinstance(x, torch.Tensor) else type(x)([copied(y) for y in x]) if type(x) in (list, tuple) else x

    given = copied(tuple(args))
    plain = function(*given, **kwargs)
    outs = [_out_of(torch, t, kind if i == 0 else "same", given) for i, t in enumerate(_flat(plain)) if isinstance(t, torch.Tensor)]
    if not outs or not any(outs[0].untyped_storage()._cdata == t.untyped_storage()._cdata for t in _flat(given) if isinstance(t, torch.Tensor)):
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function(*given, **kwargs, out=outs[0] if isinstance(plain, torch.Tensor) else tuple(outs))


def _out_of(module: Any, t: Any, kind: str, args: Any) -> Any:
    shape = tuple(t.shape)
    if kind == "other shape":
        return module.ones((*shape, 2), dtype=t.dtype)
    if kind == "empty":
        return module.ones((0,), dtype=t.dtype)
    if kind == "other dtype":  # one that does not hold the result, or the narrowest that is like it
        other = {"torch.int64": module.int32, "torch.float64": module.int64, "torch.complex128": module.float64, "torch.bool": module.uint8}
        return module.ones(shape, dtype=other.get(str(t.dtype), module.bool))
    if kind == "float":
        return module.ones(shape, dtype=module.float32 if not t.is_complex() else module.complex64)
    if kind == "transposed":
        return module.ones(shape[::-1], dtype=t.dtype).permute(tuple(range(len(shape)))[::-1])
    if kind == "strided":
        return module.ones((*shape, 2), dtype=t.dtype)[..., 1]
    if kind == "input":
        same = [a for a in _flat(args) if isinstance(a, module.Tensor) and a.dtype == t.dtype and a.shape == t.shape]
        return same[0] if same else module.ones(shape, dtype=t.dtype)
    if kind == "expanded":
        return module.ones((1,) * len(shape), dtype=t.dtype).expand(shape)
    if kind == "shifted":  # memory that overlaps the input's
        whole = next((a for a in _flat(args) if isinstance(a, module.Tensor) and a.dtype == t.dtype and a.is_contiguous() and a.numel() > t.numel()), None)
        return module.ones(shape, dtype=t.dtype) if whole is None else whole.reshape(-1)[1 : 1 + t.numel()].reshape(shape)
    made = module.ones(shape, dtype=t.dtype)
    if kind == "gradients" and t.is_floating_point():
        made.requires_grad_()
    return made


def _out(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    op = OPERATORS[label]
    if not op.supports_out:
        return
    ours, theirs = for_flambeau(op.op, op.name), op.op
    count = 0
    if draw.seed is not None:  # as many samples as there may be, with one kind each
        for i, case in enumerate(cases(label, dtype, False, most, draw)):
            kind = _kind(label, i)
            yield case._replace(function=_pair(_given_out(kind), ours, theirs), text=f"out ({kind}) {case.text}")
        return
    for i, case in enumerate(cases(label, dtype, False, max(most // len(OUTS), 1), draw)):
        for j in range(len(OUTS)):
            if count < most:
                kind = _kind(label, i + j * 7)
                yield case._replace(function=_pair(_given_out(kind), ours, theirs), text=f"out ({kind}) {case.text}")
                count += 1


_UNSAFE = {("linalg.lu", "transposed"), ("triu", "transposed"), ("tril", "transposed")}  # PyTorch writes past the end of the memory


def _kind(label: str, turn: int) -> str:
    kind = OUTS[(turn + hash_of(label)) % len(OUTS)]
    return "same" if (label, kind) in _UNSAFE else kind


def hash_of(label: str) -> int:
    """A number by the name, so that few samples see each kind among many operators."""
    return sum(map(ord, label))


# -- methods and operators ----------------------------------------------------------------------------------------


def _method(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    op = OPERATORS[label]
    if op.method_variant is None or op.method_variant is op.op:
        return
    ours, theirs = for_flambeau(op.method_variant, op.method_variant.__name__), op.method_variant
    for case in cases(label, dtype, gradients, most, draw):
        if isinstance(case.args[0], Input):
            yield case._replace(function=(ours, theirs), text="method " + case.text)


def _operator(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    op = OPERATORS[label]
    for variant, make in ((op.operator_variant, None), (op.inplace_operator_variant, _written)):
        if not isinstance(variant, BuiltinFunctionType):
            continue
        for case in cases(label, dtype, gradients, most, draw):
            if isinstance(case.args[0], Input) and not case.kwargs:
                function = (variant, variant) if make is None else _pair(make, variant, variant)
                yield case._replace(function=function, text=f"{variant.__name__} {case.text}")


# -- inputs -------------------------------------------------------------------------------------------------------


def _like(x: Input, values: Any, **changes: Any) -> Input:
    return Input(values, x.dtype, requires_grad=changes.pop("requires_grad", x.requires_grad), **changes)


def _mapped(x: Any, change: Callable[[Input], Input]) -> Any:
    if isinstance(x, Input):
        return change(x)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([_mapped(y, change) for y in x])
    if isinstance(x, dict):
        return {k: _mapped(v, change) for k, v in x.items()}
    return x


def _spread(x: Input) -> Input:
    """The same values, each dim with gaps, after an offset."""
    steps, step = [], 2
    for n in reversed(x.values.shape):
        steps.append(step)
        step *= max(n, 1) + 1
    return _like(x, x.values, strides=tuple(reversed(steps)), offset=3)


def _transposed(x: Input) -> Input:
    """The same values, in memory with the first dim fastest."""
    steps = np.cumprod([1, *[max(n, 1) for n in x.values.shape[:-1]]])
    return _like(x, x.values, strides=tuple(int(s) for s in steps[: x.values.ndim]))


def _expanded(x: Input) -> Input:
    """Every row is the first one, and is the same memory."""
    a = x.values
    if a.ndim < 2 or not a.size:
        return _like(x, a)
    rest = np.cumprod((1, *reversed(a.shape[2:])))[::-1]
    return _like(x, np.broadcast_to(a[:1], a.shape), strides=(0, *[int(s) for s in rest]))


def _changed(label: str, dtype: str, gradients: bool, most: int, draw: Draw, changes: dict[str, Callable[[Input], Input]]) -> Iterator[Case]:
    names = list(changes)
    for i, case in enumerate(cases(label, dtype, gradients, most, draw)):
        name = names[(i + hash_of(label)) % len(names)]
        args, kwargs = _mapped(case.args, changes[name]), _mapped(case.kwargs, changes[name])
        yield case._replace(args=args, kwargs=kwargs, text=f"{name} {label}{text_of(args, kwargs)}")


_SINGULAR = frozenset("qr svd lu lu_solve cholesky cholesky_solve geqrf ormqr pinverse logdet triangular_solve svd_lowrank pca_lowrank".split())


def _layouts(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    changes = {"spread": _spread, "transposed": _transposed, "expanded": _expanded}
    if OPERATORS[label].aten_name.startswith("linalg") or label in _SINGULAR:
        del changes["expanded"]  # equal rows: nothing is unique
    return _changed(label, dtype, gradients, most, draw, changes)


def _sizes(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    def no_rows(x: Input) -> Input:
        return _like(x, x.values[:0] if x.values.ndim else x.values)

    def no_columns(x: Input) -> Input:
        return _like(x, x.values[..., :0] if x.values.ndim else x.values)

    def one(x: Input) -> Input:
        return _like(x, x.values.reshape(-1)[0].reshape(())) if x.values.size else x

    return _changed(label, dtype, gradients, most, draw, {"no rows": no_rows, "no columns": no_columns, "one element": one})


def _special(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    """NaN, infinities and signed zeros among the values."""
    put = (np.nan, np.inf, -np.inf, -0.0, 0.0)

    def change(x: Input) -> Input:
        if x.values.dtype.kind not in "fc" or not x.values.size or 0 in (x.strides or ()):
            return x
        values = x.values.copy()
        flat = values.reshape(-1)
        for i in range(0, flat.size, 2):
            flat[i] = put[(i // 2 + flat.size) % len(put)]
        return _like(x, values, strides=x.strides, offset=x.offset)

    return _changed(label, dtype, False, most, draw, {"special": change})


NUMBERS = (math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0, 1e-300, 1e300)


def _numbers(label: str, dtype: str, gradients: bool, most: int, draw: Draw = ALWAYS) -> Iterator[Case]:
    """Each number among the arguments, given or by default, is one of NUMBERS in its turn."""
    turns: dict[Any, int] = {}
    count = 0
    for case in cases(label, dtype, False, most, draw):
        for place in sorted(_places(case), key=lambda place: turns.get(place, 0)):
            if count == most:
                return
            turn = turns[place] = turns.get(place, 0) + 1
            number = NUMBERS[(turn - 1 + hash_of(label)) % len(NUMBERS)]
            args, kwargs = case.args, dict(case.kwargs)
            if isinstance(place, str):
                kwargs[place] = number
            else:
                args = (*args[:place], number, *args[place + 1 :])
            yield case._replace(args=args, kwargs=kwargs, text=f"{label}{text_of(args, kwargs)}")
            count += 1


def _places(case: Case) -> list[int | str]:
    """Where a call has numbers that need not be whole: positions, and names of keywords."""
    found: list[int | str] = [i for i, a in enumerate(case.args) if isinstance(a, float)]
    found += [name for name, a in case.kwargs.items() if isinstance(a, float)]
    try:
        parameters = list(inspect.signature(case.function[0]).parameters.values())
    except (TypeError, ValueError):
        return found
    given = {p.name for p in parameters[: len(case.args)]} | set(case.kwargs)
    rest = [p for p in parameters if p.name not in given and p.kind is not p.POSITIONAL_ONLY]
    return found + [p.name for p in rest if isinstance(p.default, float) or (p.name in _SCALES and p.default is not p.empty)]


_SCALES = ("alpha", "beta", "value")  # their defaults may be whole


# -- arguments that are wrong -------------------------------------------------------------------------------------


def error_cases(label: str, most: int) -> Iterator[Case]:
    """At most `most` of the calls that PyTorch's database has as errors, as cases."""
    op = OPERATORS[label]
    if op.error_inputs_func is None:
        return
    ours = for_flambeau(op.op, op.name)
    records = list(op.error_inputs("cpu"))
    for record in records[:: max(1, -(-len(records) // most))]:
        sample = record.sample_input
        try:
            args, kwargs = (case_of(sample.input), *case_of(tuple(sample.args))), case_of(dict(sample.kwargs))
        except Unsupported:
            continue
        yield Case((ours, op.op), args, kwargs, f"wrong {label}{text_of(args, kwargs)}")
