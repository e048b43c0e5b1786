"""Checks of parameters and samples are off but in tests of `VALIDATED`: each check is a plan of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import flambeau.distributions as D

VALIDATED = ("test_shapes_moments_and_repr", "test_expanded_and_copied", "test_edges", "test_the_same_losses", "test_distributions_of_random_parameters")


@pytest.fixture(autouse=True)
def _validation(request: pytest.FixtureRequest) -> Iterator[None]:
    D.Distribution.set_default_validate_args(request.node.name.split("[")[0] in VALIDATED or "test_interface" in request.node.nodeid)
    yield
    D.Distribution.set_default_validate_args(True)
