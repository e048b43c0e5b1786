"""Every operator of PyTorch's database on some of its samples: values, dtypes, shapes, views, errors, first and second gradients.

Each is called with float64, with another dtype or in another form (forms.py), and with arguments that are wrong; which dtype or form
goes by its name, so that all of them are tried. `python -m tests.differential.sweep DTYPE MOST --form all` runs more.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.differential.forms import FORMS, hash_of
from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, Unsupported, supported
from tests.differential.sweep import differences, on_alarm

DTYPES = ("int64", "complex128", "float32", "bfloat16", "bool", "int64", "complex128", "float16", "uint8", "complex64", "int32")
OTHER_FORMS = [form for form in FORMS if form not in ("function", "numbers", "errors")]  # test_numbers.py has the numbers


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A case that does not end fails."""
    before = signal.signal(signal.SIGALRM, on_alarm)
    yield
    signal.signal(signal.SIGALRM, before)


def _turn(label: str, among: list[str]) -> str:
    return among[hash_of(label) % len(among)]


def _fails(label: str, dtype: str, form: str, most: int) -> list[str]:
    try:
        return differences(label, dtype, most, form)[1]
    except Unsupported:
        return []


@pytest.mark.parametrize("label", sorted(set(OPERATORS) - INTERNAL))
def test_operator(label: str) -> None:
    found = _fails(label, "float64", "errors", 1)
    dtypes = [dtype for dtype in DTYPES if supported(label, dtype)]
    real = supported(label, "float64")
    if real:
        found += _fails(label, "float64", "function", 1)
    if real and hash_of(label) // 100 % 2:
        found += _fails(label, "float64", _turn(label, OTHER_FORMS), 1)
    elif dtypes:
        found += _fails(label, _turn(label, dtypes), "function", 1)
    assert not found, "\n".join(found)
