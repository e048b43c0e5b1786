"""Numbers that a dtype does not hold become infinite, or an error of ours: never a warning of NumPy's, which PyTorch would not give."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as fb

VALUES = (1e300, -1e300, 1e39, float("inf"), float("nan"), 65520.0, 1e-320)
DTYPES = (fb.float32, fb.float16, fb.bfloat16, fb.float64, fb.complex64, fb.int64, fb.uint8, fb.float8_e4m3fn)
CALLS: dict[str, Callable[[float, Any], Any]] = {
    "tensor": lambda v, d: (fb.tensor(v, dtype=d), fb.tensor([v], dtype=d), fb.tensor([[v], [v]], dtype=d)),
    "tensor of an array": lambda v, d: fb.tensor(np.array([v]), dtype=d),
    "as_tensor of a scalar": lambda v, d: fb.as_tensor(np.float64(v), dtype=d),
    "as_tensor of scalars": lambda v, d: fb.as_tensor([np.float64(v)], dtype=d),
    "new_tensor": lambda v, d: fb.ones(2, dtype=d).new_tensor([v]),
    "scalar_tensor": lambda v, d: fb.scalar_tensor(v, dtype=d),
    "full": lambda v, d: fb.full((2,), v, dtype=d),
    "fill_": lambda v, d: fb.ones(2, dtype=d).fill_(v),
    "to": lambda v, d: fb.tensor([v], dtype=fb.float64).to(d),
    "repr": lambda v, d: fb.tensor([v, 1.0, float("nan")]).to(d),
    "mul": lambda v, d: fb.ones(2, dtype=d) * v,
    "mul by a scalar": lambda v, d: fb.ones(2, dtype=d) * np.float64(v),
    "setitem": lambda v, d: fb.ones(2, dtype=d).__setitem__(0, v),
    "linspace": lambda v, d: fb.linspace(-v, v, 5, dtype=d),
    "svdvals": lambda v, d: fb.linalg.svdvals(fb.full((3, 3), v, dtype=d)),
    "inv": lambda v, d: fb.linalg.inv(fb.full((3, 3), v, dtype=d)),
    "fft": lambda v, d: fb.fft.fft(fb.full((3,), v, dtype=d)),
}


@pytest.mark.parametrize("name", CALLS)
def test_none(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for v in VALUES:
            for d in DTYPES:
                with contextlib.suppress(RuntimeError, TypeError):  # of ours; NotImplementedError and LinAlgError are RuntimeErrors
                    repr(CALLS[name](v, d))
