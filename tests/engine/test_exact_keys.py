"""Static arguments are keys by type and bits: what is equal to Python but not the same (0.0 and -0.0, 1 and True, NaNs) never shares an edge."""

from __future__ import annotations

import gc
import inspect
import itertools
import math
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as ft
import flambeau.nn.functional as F
from flambeau.exact import exact, text
from flambeau.ops.registry import Operation
from flambeau.trace.forgetting import keep
from flambeau.trace.immediate import forget
from flambeau.trace.recorder import Trace, local


class Unit(float):
    """A float of a class of its own."""


def bits_of(x: float) -> int:
    return int(struct.unpack("Q", struct.pack("d", x))[0])


def of_bits(bits: int) -> float:
    return float(struct.unpack("d", struct.pack("Q", bits))[0])


NAN, OTHER_NAN = of_bits(0x7FF8000000000000), of_bits(0xFFF8000000000123)
# Values that Python finds equal (or NaNs), and that are not the same.
UNLIKE: dict[str, tuple[Any, ...]] = {
    "zeros": (0, False, 0.0, -0.0, 0j, complex(0.0, -0.0), complex(-0.0, 0.0)),
    "ones": (1, True, 1.0, 1 + 0j, complex(1.0, -0.0)),
    "reals": (1, True, 1.0),
    "real_zeros": (0, False, 0.0, -0.0),
    "NaNs": (NAN, OTHER_NAN),
    "tuples": ((0, 1), (False, 1), (0, True), (0.0, 1), (-0.0, 1), (NAN, 1), (OTHER_NAN, 1)),
    "nested": (((0,), 1), ((False,), 1), ((0.0,), 1), ((-0.0,), 1)),
}
# Values of other classes that a body gets as Python's own numbers.
CONVERTED: tuple[tuple[Any, Any], ...] = (
    (np.float32(1), 1.0), (np.float64(-0.0), -0.0), (np.int64(1), 1), (Unit(1), 1.0), (np.array(0.5), 0.5),
    ((np.int64(0), 1), (0, 1)), ([0, 1], (0, 1)),
)  # fmt: skip


class _Key(Exception):
    """The key of a call, in place of the call."""


def operations() -> list[Operation]:
    found = [x for x in gc.get_objects() if type(x) is Operation and not {"static", "number"}.isdisjoint(x.kinds)]
    return sorted(found, key=lambda op: op.name)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """The key that a call of an operation makes."""

    def slow(self: Trace, op: Any, key: Any, args: Any) -> Any:
        raise _Key(key)

    local.main.roots.clear()  # what other tests have taught it would answer
    local.main.mode_changed = True
    x = ft.ones(2)
    x.tolist()
    monkeypatch.setattr(Trace, "slow", slow)

    def key_of(op: Operation, position: int, value: Any) -> Any:
        args: list[Any] = []
        for kind, default in zip(op.kinds, op.defaults, strict=True):
            otherwise = None if default is inspect.Parameter.empty else default
            args.append([x] if kind == "tensors" else x if kind in ("tensor", "operand", "exponent") else otherwise)
        args[position] = value
        try:
            op.call(args)
        except _Key as key:
            return key.args[0]
        raise AssertionError(f"{op.name} was not recorded")

    yield key_of


def places(op: Operation) -> list[int]:
    return [i for i, kind in enumerate(op.kinds) if kind in ("static", "number")]


@pytest.mark.parametrize("kind", UNLIKE)
def test_every_static_argument_tells_unlike_values_apart(kind: str, recorded: Callable[..., Any]) -> None:
    checked = 0
    for op in operations():
        for position in places(op):
            if op.kinds[position] == "number" and kind in ("tuples", "nested"):
                continue
            for a, b in itertools.permutations(UNLIKE[kind], 2):
                first, second = (recorded(op, position, v) for v in (a, b))
                data = op.kinds[position] == "number" and float in (first[position + 1], second[position + 1])
                assert data or {first: 1}.get(second) is None, f"{op.name}, argument {op.names[position]}: {a!r} and {b!r} have one key"
                checked += 1
    assert checked > 500


def test_every_static_argument_finds_like_values_equal(recorded: Callable[..., Any]) -> None:
    """Also a NaN that is another object, and a value of a class that is converted."""
    checked = 0
    for op in operations():
        for position in places(op):
            pairs = [(a, b) for a, b in CONVERTED if op.kinds[position] == "static" or not isinstance(b, tuple)]
            for a, b in ((of_bits(0x7FF8000000000000), NAN), (float("-0.0"), -0.0), *pairs):
                try:
                    first, second = (recorded(op, position, v) for v in (a, b))
                except TypeError:  # no value of this argument
                    continue
                checked += 1
                assert {first: 1}.get(second) == 1, f"{op.name}, argument {op.names[position]}: {a!r} and {b!r} have two keys"
    assert checked > 500


# -- by what functions give ---------------------------------------------------------------------------------------------
X = ft.tensor([[1.0, -2.0, math.nan], [0.0, 3.0, -0.5]], dtype=ft.float64)
FUNCTIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "pad": (lambda v: F.pad(X, (1, 1), value=v), "zeros ones NaNs"),
    "constant_pad_nd": (lambda v: ft.constant_pad_nd(X, (0, 1), v), "zeros ones NaNs"),
    "threshold": (lambda v: F.threshold(X, 1.0, v), "zeros ones NaNs"),
    "threshold at": (lambda v: F.threshold(X, v, 7.0), "zeros ones NaNs"),
    "full": (lambda v: ft.full((3,), v, dtype=ft.float64), "zeros ones NaNs"),
    "full, its dtype": (lambda v: ft.full((3,), v), "zeros ones NaNs"),
    "full_like": (lambda v: ft.full_like(X, v), "zeros ones NaNs"),
    "fill_": (lambda v: X.clone().fill_(v), "zeros ones NaNs"),
    "masked_fill": (lambda v: X.masked_fill(X > 0, v), "zeros ones NaNs"),
    "setitem": (lambda v: _set(X.clone(), v), "zeros ones NaNs"),
    "nan_to_num": (lambda v: ft.nan_to_num(X, nan=v), "zeros ones NaNs"),
    "clamp": (lambda v: X.clamp(min=v), "zeros ones NaNs"),
    "where": (lambda v: ft.where(X > 0, X, v), "zeros ones NaNs"),
    "mul": (lambda v: X * v, "zeros ones NaNs"),
    "copysign": (lambda v: ft.copysign(X, v), "real_zeros reals NaNs"),
    "pow": (lambda v: X**v, "zeros ones NaNs"),
    "division of ints": (lambda v: ft.tensor([4, 5]) * v, "zeros ones NaNs"),
    "hardtanh": (lambda v: F.hardtanh(X, v, 2.0), "zeros NaNs"),
    "leaky_relu": (lambda v: F.leaky_relu(X, v), "zeros ones NaNs"),
    "hardshrink": (lambda v: F.hardshrink(X, v), "zeros ones"),
    "where twice": (lambda v: ft.where(X > 0, v, v), "zeros ones NaNs"),
    "arange": (lambda v: ft.arange(3) + v, "zeros ones"),
    "scalar_tensor": (lambda v: ft.scalar_tensor(v), "zeros ones NaNs"),
    "tensor": (lambda v: ft.tensor([v]), "zeros ones NaNs"),
    "std": (lambda v: X[1].std(correction=v), "real_zeros reals"),
    "softplus": (lambda v: F.softplus(X, threshold=v), "zeros ones"),
    "addcmul": (lambda v: ft.addcmul(X, X, X, value=v), "zeros ones NaNs"),
    "addmm": (lambda v: ft.addmm(ft.full((2, 2), NAN, dtype=ft.float64), X, X.T, beta=v), "zeros ones"),
    "lerp": (lambda v: ft.lerp(X, X + 1, v), "zeros ones NaNs"),
    "norm": (lambda v: ft.linalg.vector_norm(X[1], v), "zeros ones"),
    "index_fill": (lambda v: X.index_fill(1, ft.tensor([0]), v), "zeros ones NaNs"),
    "cumsum": (lambda v: ft.cumsum(X, 1).fmod(v), "reals"),
}


def _set(x: Any, v: Any) -> Any:
    x[0] = v
    return x


def fresh() -> None:
    """An engine that has learned nothing."""
    ft.zeros(()).item()
    keep(0)
    forget()


def shown(function: Callable[..., Any], value: Any) -> str:
    """What a call gives: dtype, and values by their bits; or the type of its error."""
    try:
        t = function(value)
    except (TypeError, RuntimeError, ValueError) as error:
        return type(error).__name__
    parts = ft.view_as_real(t) if t.is_complex() else t
    values = [f"{bits_of(v):x}" if isinstance(v, float) else repr(v) for v in parts.flatten().tolist()]
    return f"{t.dtype} {values}"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_was_learned_of_a_value_answers_for_no_other(name: str) -> None:
    function, kinds = FUNCTIONS[name]
    for kind in kinds.split():
        expected = []
        for v in UNLIKE[kind]:
            fresh()
            expected.append(shown(function, v))
        for a, b in itertools.permutations(range(len(expected)), 2):
            fresh()
            for i in (a, a, a, a, a, b, a, b):  # learned (trace/immediate.py), then another
                got = shown(function, UNLIKE[kind][i])
                assert got == expected[i], f"{UNLIKE[kind][i]!r} after {UNLIKE[kind][a]!r}"


def test_keys_of_the_compiler_tell_unlike_values_apart() -> None:
    for values in UNLIKE.values():
        for a, b in itertools.combinations(values, 2):
            assert {exact(a): 1}.get(exact(b)) is None
            assert text(a) != text(b)
    assert exact(of_bits(bits_of(NAN))) == exact(NAN)


def test_one_program_with_unlike_constants_computes_each() -> None:
    """Common subexpressions."""
    x = ft.ones(2, dtype=ft.float64, requires_grad=True)
    a, b = F.pad(x, (1, 0), value=0.0), F.pad(x, (1, 0), value=-0.0)
    c, d = F.pad(x, (1, 0), value=NAN), F.pad(x, (1, 0), value=OTHER_NAN)
    assert [bits_of(t.tolist()[0]) for t in (a, b, c, d)] == [bits_of(v) for v in (0.0, -0.0, NAN, OTHER_NAN)]
