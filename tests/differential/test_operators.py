"""Every operator of PyTorch's database on some of its samples: values, dtypes, shapes, views, errors, first and second gradients.

`python -m tests.differential.sweep DTYPE MOST` runs more of them, of any dtype.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, supported
from tests.differential.sweep import differences, on_alarm

DTYPES = ("float64", "int64", "complex128")
MOST = {"float64": 2, "int64": 1, "complex128": 1}  # cases for each operator: what fits into a test run


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A case that does not end fails."""
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("label", sorted(set(OPERATORS) - INTERNAL))
def test_operator(label: str, dtype: str) -> None:
    if not supported(label, dtype):
        pytest.skip(f"PyTorch has no {label} of {dtype}")
    _, found = differences(label, dtype, MOST[dtype])
    assert not found, "\n".join(found)
