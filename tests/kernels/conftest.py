"""Tests of kernels choose kernels: each plan is made here, for its own sizes, by the choice of the test that runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flambeau.compiler import pipeline
from flambeau.trace import classes


@pytest.fixture(autouse=True)
def plans_of_this_test(whole: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No plan from the disk, in pieces, or of other sizes."""
    monkeypatch.setattr(pipeline, "USE_STORED", [False])
    classes.ENABLED[0] = False
    yield
    classes.ENABLED[0] = True
