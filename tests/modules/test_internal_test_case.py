"""torch.testing._internal.common_utils.TestCase: which comparisons pass and which fail, as with PyTorch's."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")

PAIRS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "equal tensors": lambda m: (m.ones(2), m.ones(2)),
    "close tensors": lambda m: (m.ones(2), m.ones(2) + 1e-7),
    "far tensors": lambda m: (m.ones(2), m.ones(2) + 1e-3),
    "shapes": lambda m: (m.ones(2), m.ones(3)),
    "dtypes": lambda m: (m.ones(2), m.ones(2, dtype=m.float64)),
    "nan": lambda m: (m.full((2,), float("nan")), m.full((2,), float("nan"))),
    "tensor and list": lambda m: (m.ones(2), [1, 1]),
    "list and tensor": lambda m: ([1.0, 2.0], m.ones(2)),
    "tensor and number": lambda m: (m.tensor(2.0), 2.0),
    "number and tensor": lambda m: (2.0, m.tensor(2.5)),
    "numbers": lambda m: (1, 1.0),
    "close numbers": lambda m: (1.0, 1.0 + 1e-9),
    "far numbers": lambda m: (1.0, 1.01),
    "strings": lambda m: ("a", "a"),
    "other strings": lambda m: ("a", "b"),
    "lists": lambda m: ([m.ones(2), 1, "x"], [m.ones(2), 1, "x"]),
    "lengths": lambda m: ([1, 2], [1]),
    "dicts": lambda m: ({"a": m.ones(2)}, {"a": m.ones(2)}),
    "keys": lambda m: ({"a": 1}, {"b": 1}),
    "other values": lambda m: ({"a": m.ones(2)}, {"a": m.zeros(2)}),
    "sets": lambda m: ({1, 2}, {2, 1}),
    "none": lambda m: (None, None),
    "none and number": lambda m: (None, 1),
    "sizes": lambda m: (m.ones(2, 3).shape, (2, 3)),
    "dtype objects": lambda m: (m.float32, m.float64),
    "bools": lambda m: (True, False),
    "nested": lambda m: ([{"a": [m.ones(1)]}], [{"a": [m.ones(1)]}]),
}


def verdict(name: str, pair: str, how: str, **options: Any) -> bool:
    """Whether a comparison passes."""
    m = importlib.import_module(name)
    case = importlib.import_module(f"{name}.testing._internal.common_utils").TestCase("setUp")
    try:
        getattr(case, how)(*PAIRS[pair](m), **options)
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("how", ["assertEqual", "assertNotEqual"])
@pytest.mark.parametrize("options", [{}, {"atol": 1e-2, "rtol": 0.0}, {"exact_dtype": False}], ids=str)
def test_verdicts(how: str, options: dict[str, Any]) -> None:
    wrong = [pair for pair in PAIRS if verdict("flambeau", pair, how, **options) != verdict("torch", pair, how, **options)]
    assert not wrong


def test_each_test_begins_with_the_same_seed() -> None:
    found = []
    for name in ("flambeau", "torch"):
        m = importlib.import_module(name)
        case = importlib.import_module(f"{name}.testing._internal.common_utils").TestCase("setUp")
        case.setUp()
        found.append(m.rand(3).tolist())
    assert found[0] == found[1]
