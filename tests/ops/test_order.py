"""Complex numbers have no order: what needs one says so at the call, with PyTorch's type of error."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
CALLS: dict[str, tuple[Any, ...]] = {
    "argmax": (), "argmin": (), "max": (), "min": (), "amax": (), "amin": (), "aminmax": (), "sort": (), "argsort": (), "msort": (), "topk": (1,),
    "kthvalue": (1,), "median": (), "nanmedian": (), "mode": (), "cummax": (0,), "cummin": (0,), "floor": (), "ceil": (), "trunc": (), "round": (),
    "clamp": (0, 1), "erf": (), "digamma": (), "gt": (1,), "le": (1,),
}  # fmt: skip


def error_of(m: Any, name: str, *arguments: Any) -> str:
    """The type of a call's error; nothing is looked at."""
    try:
        getattr(m, name)(m.ones(2, 3, dtype=m.complex64), *arguments)
    except Exception as error:
        return type(error).__name__
    return "none"


@pytest.mark.parametrize("name", CALLS)
def test_functions_that_need_an_order(name: str) -> None:
    assert error_of(ft, name, *CALLS[name]) == error_of(torch, name, *CALLS[name]) != "none"


@pytest.mark.parametrize("name", ("max", "min", "argmax", "median", "mode"))
def test_along_a_dim(name: str) -> None:
    assert error_of(ft, name, 1) == error_of(torch, name, 1) != "none"


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("name", ["mT", "mH", "H"])
@pytest.mark.filterwarnings("ignore:Tensor")
def test_matrix_properties(name: str, shape: tuple[int, ...]) -> None:
    def seen(m: Any) -> Any:
        try:
            return tuple(getattr(m.ones(shape), name).shape)
        except Exception as error:
            return type(error).__name__

    assert seen(ft) == seen(torch)


@pytest.mark.parametrize("shape", [(0, 0, 2), (2, 0, 3), (0, 3), (3, 0)])
def test_indices_into_empty_dims(shape: tuple[int, ...]) -> None:
    def seen(m: Any) -> list[Any]:
        found: list[Any] = [m.tensor([[], []]).stride()]
        for d in range(len(shape)):
            for index in (m.tensor([0, -1]), m.tensor([], dtype=m.int64)):
                x, key = m.zeros(shape), (slice(None),) * d + (index,)
                for call in (lambda x=x, key=key: tuple(x[key].shape), lambda x=x, key=key: x.__setitem__(key, 0)):
                    try:
                        found.append(call())
                    except IndexError:
                        found.append("IndexError")
            x = m.zeros(shape, requires_grad=True)
            x.prod(d).sum().backward()
            found.append(tuple(x.grad.shape))
        return found

    assert seen(ft) == seen(torch)
