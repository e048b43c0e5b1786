"""NumPy's arrays beside tensors: its functions and operators give tensors, as in PyTorch; `reversed` turns a tensor around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "t - array": lambda m, t: t - np.ones(2), "t * array": lambda m, t: t * np.ones((2, 2)), "t ** array": lambda m, t: t ** np.ones(2),
    "t @ array": lambda m, t: t @ np.ones(2), "t == array": lambda m, t: t == np.ones(2), "array == t": lambda m, t: np.ones(2) == t,
    "int & array": lambda m, t: t.to(m.int64) & np.ones(2, dtype=np.int64), "np.sin": lambda m, t: np.sin(t), "np.add": lambda m, t: np.add(t, np.ones(2)),
    "np.isfinite": lambda m, t: np.isfinite(t), "np.sqrt of a number": lambda m, t: np.sqrt(m.tensor(4.0)), "np.modf": lambda m, t: np.modf(t)[0],
    "np.outer": lambda m, t: np.outer(t, t), "number - t": lambda m, t: np.float64(2) - t, "array - t": lambda m, t: np.ones(2) - t,
    "reversed": lambda m, t: reversed(m.arange(6).reshape(2, 3)), "reversed number": lambda m, t: reversed(m.tensor(1.0)),
    "list": lambda m, t: list(reversed(t)),
    "hypot": lambda m, t: m.hypot(t.to(m.int64), t.to(m.int64)), "nextafter": lambda m, t: m.nextafter(t.to(m.bool), t.to(m.bool)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_call(name: str) -> None:
    answers = []
    for module in (flambeau, torch):
        try:
            found = CALLS[name](module, module.tensor([1.0, 3.0]))
            answers.append((type(found).__name__, str(getattr(found, "dtype", "")), str(found)))
        except Exception as error:
            answers.append((type(error).__name__, "", ""))
    assert answers[0] == answers[1]
