"""`out=` of every public function that takes it holds the result, and is what is returned; where it is an operand, too, PyTorch's rules."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.ops.named import parameters_of
from tests.errors.calls import SECTIONS, Call, Scope, all_calls

torch = pytest.importorskip("torch")

_OF_NOTHING_KNOWN = ("empty",)  # their values are whatever was there


def _takes_out(call: Call) -> bool:
    try:
        return any(p.name == "out" for p in parameters_of(call.function(Scope(flambeau))))
    except (AttributeError, TypeError, ValueError):
        return False


def _made(call: Call, **more: Any) -> Any:
    scope = Scope(flambeau)
    flambeau.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kwargs = {k: make(scope) for k, make in call.kwargs.items() if k != "out"}
        return call.function(scope)(*[make(scope) for make in call.args], **kwargs, **more)


def _check(call: Call) -> bool:
    """One call without `out`, and one with it; False where it cannot be made here, or gives something else than tensors."""
    try:
        expected = _made(call)
    except Exception:
        return False  # a sample that this package has not
    several = isinstance(expected, (tuple, list))
    results = list(expected) if several else [expected]
    if not all(isinstance(x, flambeau.Tensor) for x in results):
        return False
    outs = [flambeau.empty(0, dtype=x.dtype) for x in results]
    with flambeau.no_grad():
        try:
            got = _made(call, out=tuple(outs) if several else outs[0])
        except TypeError as error:
            assert "'dim', which is not given" in str(error), call.text
            return False
    returned = list(got) if isinstance(got, (tuple, list)) else [got] * len(outs)
    for out, x, y in zip(outs, results, returned, strict=True):
        assert y is out or got is None, call.text  # functions of copies of several views return nothing, as in PyTorch
        assert out.shape == x.shape and np.array_equal(out.detach().numpy(), x.detach().numpy(), equal_nan=x.dtype.is_floating_point), call.text
    return True


def _calls(*sections: str) -> list[Call]:
    chosen = [c for c in all_calls(*sections) if not c.text.startswith("torch.func.") and not any(word in c.text for word in _OF_NOTHING_KNOWN)]
    return [call for call in chosen if _takes_out(call)]


def test_it_holds_the_result() -> None:
    """Of the table those whose own code hands `out` on, each once; for the others the same generated lines do it."""
    left = {}
    for call in _calls(*SECTIONS):
        record = getattr(call.function(Scope(flambeau)), "operation", None)
        if record is None or not record.out:
            left.setdefault(call.text.partition("(")[0].rpartition(" ")[2], call)
    assert sum(map(_check, left.values())) > 20, len(left)


@pytest.mark.slow
def test_it_holds_the_result_in_all_calls() -> None:
    assert sum(map(_check, _calls())) > 400


_OPERANDS = (
    "add sub mul div pow atan2 maximum minimum fmax fmin hypot copysign remainder fmod floor_divide eq lt logical_and logaddexp nextafter heaviside "
    "true_divide ldexp outer kron"
).split()


@pytest.mark.parametrize("name", _OPERANDS)
def test_an_operand_as_out_keeps_its_shape(name: str) -> None:
    for shapes in (((3,), (2, 3)), ((3,), (3,)), ((2, 2), (2, 2)), ((), (2,)), ((1, 3), (2, 3))):
        for swapped in (False, True):
            found: list[Any] = []
            for m in (torch, flambeau):
                x, y = (m.full(shape, 2.0) for shape in shapes)
                z = y.int() if name == "ldexp" else y
                if name == "ldexp" and swapped:
                    continue
                try:
                    made = getattr(m, name)(*((z, x) if swapped else (x, z)), out=x)
                    found.append((made is x, made.tolist(), made.stride()))
                except RuntimeError:
                    found.append("refused")
            assert not found or found[0] == found[1], (shapes, swapped, found)


def test_what_overlaps_is_refused() -> None:
    for m in (torch, flambeau):
        x = m.ones(4, dtype=m.int64)
        with pytest.raises(RuntimeError, match="single memory location"):
            m.nonzero(x, out=x)
        y = m.ones(4, dtype=m.bool)
        with pytest.raises(RuntimeError, match="single memory location"):
            m.masked_select(y, y, out=y)


def test_medians_along_a_dim() -> None:
    for name in ("median", "nanmedian"):
        for m in (torch, flambeau):
            values, indices = m.empty(0), m.empty(0, dtype=m.int64)
            made = getattr(m, name)(m.tensor([[3.0, 1.0], [2.0, 4.0]]), 0, out=(values, indices))
            assert made[0] is values and values.tolist() == [2, 1] and indices.tolist() == [1, 0]
            with pytest.raises(TypeError):
                getattr(m, name)(m.ones(3), out=values)
