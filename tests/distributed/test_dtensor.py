"""DTensor: each function in each placement gives what it gives for whole tensors, with gradients; and PyTorch's numbers."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results
from tests.distributed.test_ddp import close


@pytest.fixture(scope="module", params=[2, 3, 4])
def mine(request, tmp_path_factory):
    return results("dtensor.py", request.param, tmp_path_factory.mktemp("mine"))


def test_as_whole_tensors(mine):
    for each in mine:
        assert not each["wrong"]
        assert not each["refused"]


def test_as_pytorch(mine, tmp_path):
    """Where PyTorch has a rule, and its result is that of whole tensors."""
    pytest.importorskip("torch")
    if len(mine) != 2:
        pytest.skip("PyTorch's numbers are compared on two ranks")
    theirs = results("dtensor.py", 2, tmp_path, ours=False)
    for rank in range(2):
        wrong = {name.rpartition(":")[0] for name in theirs[rank]["wrong"]}
        compared = 0
        for name, expected in theirs[rank]["found"].items():
            if name not in wrong:
                close(mine[rank]["found"][name], expected, f"rank {rank} {name}", 1e-5)
                compared += 1
        assert compared > 150
