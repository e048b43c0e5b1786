"""Slow: all 2^32 inputs of each float32 function stay within their stated bounds (`pytest -m slow`)."""

from __future__ import annotations

import pytest

from tests.emit.accuracy import BOUND_FLOAT32, REFERENCE
from tests.emit.exhaustive import TABLE, measure, rows_of


@pytest.mark.slow
@pytest.mark.parametrize("op", list(REFERENCE))
def test_all_inputs(op: str) -> None:
    worst = measure(op, 1)
    assert worst.error <= BOUND_FLOAT32[op], f"{op}({worst.at!r}): {worst.error:.3f} ulp"


def test_the_table_in_the_docs_has_every_function() -> None:
    assert set(rows_of(TABLE.read_text())) == set(REFERENCE)
