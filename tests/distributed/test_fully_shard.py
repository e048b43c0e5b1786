"""fully_shard: the numbers of one process on the whole batch, parts of parameters and states, and PyTorch's numbers."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results
from tests.distributed.test_ddp import close


@pytest.fixture(scope="module", params=[2, 3, 4])
def mine(request, tmp_path_factory):
    return results("fully_shard.py", request.param, tmp_path_factory.mktemp("mine"))


def test_as_one_process_on_the_whole_batch(mine):
    for each in mine:
        for name in ("reshard", "keep", "accumulate", *(["replicas"] if len(mine) % 2 == 0 else [])):
            run = each[name]
            if name == "accumulate":  # the same batch twice, halved
                run = {**run, "gradients": run["gradients"][:1]}
            assert max(*run["gradients"], *run["norms"], run["parameters"]) < 1e-9, name
        assert each["loaded"]


def test_memory_is_shared_out(mine):
    """Parameters and the optimizer's state: a share each, but for dims that cannot be cut evenly."""
    for each in mine:
        assert each["reshard"]["memory"] < 1.1 / len(mine)
    assert abs(sum(each["reshard"]["memory"] for each in mine) - 1) < 1e-9


def test_mixed_precision(mine):
    assert mine[0]["mixed"] == ["torch.bfloat16", "torch.float32", "torch.float32"]


def test_scaled_steps_are_left_out_by_all(mine):
    for each in mine:
        for (grown, moved), (shrunk, stayed) in each["scaled"]:
            assert (grown, shrunk, stayed) == (16.0, 8.0, 0.0) and 0 < moved < 1


def test_class(mine):
    if len(mine) == 2:
        assert mine[0]["class"] < 1e-9
        assert mine[0]["class names"] == mine[0]["names"] and mine[0]["summoned"]


def test_as_pytorch(mine, tmp_path):
    pytest.importorskip("torch")
    if len(mine) != 2:
        pytest.skip("PyTorch's numbers are compared on two ranks")
    theirs = results("fully_shard.py", 2, tmp_path, ours=False)
    for a, b in zip(mine, theirs, strict=True):
        for name in ("reshard", "keep", "accumulate", "replicas"):
            close(a[name]["values"], b[name]["values"], name, 1e-9)
            assert a[name]["local"] == b[name]["local"]
        assert a["names"] == b["names"] and a["mixed"] == b["mixed"]
        assert a["wrapper names"] == b["wrapper names"]
