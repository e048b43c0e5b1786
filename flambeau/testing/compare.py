"""The differential tester: one call, described once, done by flambeau and by a reference with the same API (PyTorch).

    import torch
    from flambeau.testing import Input, compare
    compare("nn.functional.softmax", Input([[1.0, 2.0]], requires_grad=True), reference=torch, dim=-1)   # [] if they agree

An `Input` says everything of a tensor: values, dtype, strides, offset, whether it requires gradients. Compared are values, dtypes,
shapes, strides of views, gradients and gradients of gradients, the method, in-place and `out=` forms, and the types of errors.
This package does not import the reference; whoever compares gives it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

import flambeau
from flambeau.testing.agreement import Answer, unlike, unlike_gradients

Function = Callable[..., Any]
FORMS: Final = ("function", "method", "inplace", "out")
# What a referee computes in, for each dtype that it judges.
_WIDE: Final = {"float16": "float64", "bfloat16": "float64", "float32": "float64", "complex64": "complex128"}


class Input:
    """A tensor, told so that every framework can make it.

    `values`: anything `numpy.asarray` takes; `dtype`: a name ("bfloat16" included), by default that of the values. `strides` and
    `offset` (in elements) place them in a larger storage, whose other elements are 77; `expanded` dims have stride 0.
    """

    def __init__(
        self, values: Any, dtype: str | None = None, *, strides: Sequence[int] | None = None, offset: int = 0, requires_grad: bool = False,
    ) -> None:  # fmt: skip
        array = np.asarray(values)
        if dtype is None and array.dtype == np.float64 and not isinstance(values, np.ndarray):
            dtype = "float32"  # as lists of Python numbers become
        self.dtype = dtype or str(array.dtype)
        self.values = array
        self.strides = None if strides is None else tuple(strides)
        self.offset = offset
        self.requires_grad = requires_grad

    def widened(self) -> Input:
        """The same values in double precision."""
        return Input(self.values, _WIDE.get(self.dtype, self.dtype), strides=self.strides, offset=self.offset, requires_grad=self.requires_grad)

    def build(self, module: Any, copy: bool = False) -> Any:
        """The tensor in a framework; `copy`: a fresh one without gradients, to be written to."""
        dtype = getattr(module, self.dtype)
        strides = self.strides
        if strides is None and not self.offset:
            t = module.tensor(self.values, dtype=dtype) if self.dtype != "bfloat16" else module.tensor(self.values.astype(np.float32)).to(dtype)
        else:
            shape = self.values.shape
            if strides is None:
                strides = tuple(int(s) for s in np.cumprod((1, *reversed(shape[1:])))[::-1])
            size = self.offset + (1 + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)]) if self.values.size else 0)
            storage = module.full((size,), 77, dtype=dtype) if self.dtype != "bool" else module.ones(size, dtype=dtype)
            t = module.as_strided(storage, shape, strides, self.offset)
            if self.values.size:
                source = Input(self.values, self.dtype).build(module)
                if 0 in strides:  # an expanded dim: write each element once
                    index = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
                    t[index].copy_(source[index])
                else:
                    t.copy_(source)
        return t.requires_grad_() if self.requires_grad and not copy else t

    def __repr__(self) -> str:
        layout = "" if self.strides is None else f" strides {list(self.strides)}"
        return f"{self.dtype}{list(self.values.shape)}{layout}{' offset ' + str(self.offset) if self.offset else ''}{' grad' * self.requires_grad}"


class Difference(NamedTuple):
    """What differs: in which form of the call, and how."""

    form: str
    text: str

    def __str__(self) -> str:
        return f"{self.form}: {self.text}"


def describe(t: Any) -> Input:
    """The Input that makes this tensor of any framework again."""
    plain = t.detach()
    name = str(plain.dtype).removeprefix("torch.")
    for resolve in ("resolve_conj", "resolve_neg"):
        plain = getattr(plain, resolve)()
    array = (plain.float() if name == "bfloat16" else plain).numpy()
    strides = None if plain.is_contiguous() else tuple(plain.stride())
    return Input(array.copy(), name, strides=strides, offset=t.storage_offset(), requires_grad=t.requires_grad)


def compare(
    function: str | tuple[Function, Function], *args: Any, reference: Any, forms: Sequence[str] = ("function",), gradients: int = 2,
    tolerance: float | None = None, values: bool = True, strides: bool = True, seed: int | None = 0, referee: bool = False, errors: bool = True,
    indices: bool = True, **kwargs: Any,
) -> list[Difference]:  # fmt: skip
    """Every difference between flambeau's and the reference's answer to one call; an empty list if there is none.

    `function`: a dotted name under both modules (or of a Tensor method), or the two functions, (flambeau's, the reference's).
    `args`, `kwargs`: the call's, with an `Input` for every tensor, at any depth. `forms`: which of "function", "method", "inplace",
    "out" to call (those that the reference has not are left out). `gradients`: 0 none, 1 first, 2 second order too.
    `tolerance`: of values, in relation to max(1, |expected|); by default by dtype. `values=False`: only dtypes,
    shapes and errors count (random results), and `strides=False`: not those of views. `seed`: given to `manual_seed` before each call.
    `indices=False`: whole numbers are not compared (places of equal values). `errors=False`: where the reference raises there is
    nothing to compare. `referee`: judge values of 16 and 32 bits by the reference's answer in double precision (agreement.py).
    Differences are told, not raised; an error of both sides is compared by type. ValueError for an unknown form.
    """
    found: list[Difference] = []
    for form in forms:
        if form not in FORMS:
            raise ValueError(f"compare: unknown form {form!r}; there are {', '.join(FORMS)}")
        sides = [_Side(flambeau, function, 0, form), _Side(reference, function, 1, form)]
        if sides[1].call is None:
            continue
        if sides[0].call is None:
            found.append(Difference(form, f"{function} does not exist"))
            continue
        for side in sides:
            side.run(args, kwargs, seed)
        if not errors and sides[1].error is not None:
            continue
        judge: _Side | None = None
        if referee and values and tolerance is None and sides[1].error is None:
            judge = _Side(reference, function, 1, form)
            args_, kwargs_ = _widened(args), _widened(kwargs)
            judge.run(args_, kwargs_, seed)
        text = unlike(sides[0].answer, sides[1].answer, judge.answer if judge is not None else None, tolerance if values else math.inf, strides, indices)
        if text is None and values and gradients and form == "function" and sides[1].error is None:
            for side in sides:
                side.differentiate(args, kwargs, gradients, seed)
            if judge is not None and judge.error is None:
                judge.differentiate(args_, kwargs_, gradients, seed)
            text = unlike_gradients(sides[0].slopes, sides[1].slopes, judge.slopes if judge is not None else None, tolerance)
        if text is not None:
            found.append(Difference(form, text))
    return found


def error_of(function: tuple[Function, Function], args: Any, kwargs: dict[str, Any], reference: Any) -> tuple[Exception | None, Exception | None]:
    """The errors of flambeau's and the reference's call, None where there is none."""
    sides = [_Side(flambeau, function, 0, "function"), _Side(reference, function, 1, "function")]
    for side in sides:
        side.run(args, kwargs, 0)
    return sides[0].error, sides[1].error


class _Side:
    """One framework's half of a comparison."""

    def __init__(self, module: Any, function: str | tuple[Function, Function], which: int, form: str) -> None:
        self.module = module
        self.form = form
        self.error: Exception | None = None
        self.results: list[Any] = []
        self.gradients: list[Any] = []
        self.call: Function | None = _find(module, function, form) if isinstance(function, str) else function[which] if form == "function" else None

    @property
    def answer(self) -> Answer:
        return Answer(self.module, self.results, self.error)

    @property
    def slopes(self) -> Answer:
        return Answer(self.module, self.gradients, self.error)

    def run(self, args: Any, kwargs: dict[str, Any], seed: int | None) -> None:
        module = self.module
        written = self.form == "inplace"
        try:
            given, named = _built(module, args, written), _built(module, kwargs, written)
            if seed is not None:
                module.default_generator.manual_seed(seed)  # not those of all devices
            assert self.call is not None
            if self.form == "out":
                plain = _flat(self.call(*given, **named))
                named["out"] = [t.new_empty(t.shape) for t in plain] if len(plain) > 1 else plain[0].new_empty(plain[0].shape)
            self.results = _flat(self.call(*given, **named))
            if written:
                self.results.append(given[0])
            for t in self.results:
                if isinstance(t, module.Tensor) and t.numel():
                    t.detach().reshape(-1)[0].item()  # what is deferred happens now
        except Exception as error:
            self.error = error

    def differentiate(self, args: Any, kwargs: dict[str, Any], order: int, seed: int | None) -> None:
        module = self.module
        try:
            given, named = _built(module, args), _built(module, kwargs)
            leaves = [t for t in _flat([given, named]) if isinstance(t, module.Tensor) and t.requires_grad]
            if not leaves:
                return
            if seed is not None:
                module.default_generator.manual_seed(seed)  # not those of all devices
            assert self.call is not None
            outs = [t for t in _flat(self.call(*given, **named)) if isinstance(t, module.Tensor) and t.requires_grad]
            if not outs:
                return
            total = sum([_weighed(module, t) for t in outs])
            self.gradients = first = list(module.autograd.grad(total, leaves, create_graph=order > 1, allow_unused=True))
            usable = [g for g in first if g is not None and g.requires_grad]
            if order > 1 and usable:
                total = sum([_weighed(module, g) for g in usable])
                self.gradients = first + list(module.autograd.grad(total, leaves, allow_unused=True))
        except Exception as error:
            self.error = error


def _find(module: Any, name: str, form: str) -> Function | None:
    """The function of this name in one of its forms, or None."""
    if form in ("method", "inplace"):
        method = name.rsplit(".", 1)[-1] + ("_" if form == "inplace" else "")
        found: Function | None = getattr(module.Tensor, method, None)
        return found
    for root in (module, module.Tensor):
        place = root
        try:
            for part in name.split("."):
                place = getattr(place, part)
        except AttributeError:
            continue
        return place  # type: ignore[no-any-return]
    return None


def _built(module: Any, x: Any, copy: bool = False) -> Any:
    if isinstance(x, Input):
        return x.build(module, copy)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([_built(module, y, copy) for y in x])
    if isinstance(x, dict):
        return {k: _built(module, v, copy) for k, v in x.items()}
    if isinstance(x, Named):
        place = module
        for part in x.name.split("."):
            place = getattr(place, part)
        return place
    return x


def _widened(x: Any) -> Any:
    """Arguments in double precision, dtypes among them too."""
    if isinstance(x, Input):
        return x.widened()
    if isinstance(x, Named):
        return Named(_WIDE.get(x.name, x.name))
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)([_widened(y) for y in x])
    if isinstance(x, dict):
        return {k: _widened(v) for k, v in x.items()}
    return x


class Named(NamedTuple):
    """An argument that each framework has under this name: a dtype, a memory format, a layout."""

    name: str


def _flat(x: Any) -> list[Any]:
    """The leaves of a result, in order."""
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in _flat(part)]
    if isinstance(x, dict):
        return [leaf for key in x for leaf in _flat(x[key])]
    return [x]


def _weighed(module: Any, t: Any) -> Any:
    """A scalar in which each element has a weight of its own."""
    flat = t.reshape(-1)
    weights = module.linspace(0.5, 1.5, max(flat.numel(), 1), dtype=module.float64)[: flat.numel()]
    return (flat.real * weights).sum() + (flat.imag * weights).sum() * 0.7 if flat.is_complex() else (flat * weights).sum()
