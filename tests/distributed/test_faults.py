"""A few faults of each kind on two machines (network namespaces); `python -m tests.distributed.faults` does fifty."""

from __future__ import annotations

import pytest

from tests.distributed import faults


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kill", "stop", "cut"])
def test_a_run_goes_on(kind):
    pytest.importorskip("mpi4py")
    if not faults.can_run():
        pytest.skip("it needs root and network namespaces")
    found = faults.suffer(kind, 2)
    assert not found["wrong"], (found["wrong"], found.get("log"))
