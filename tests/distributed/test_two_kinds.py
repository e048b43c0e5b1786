"""Parameters over two dims of a mesh: fully_shard of tensor parallel modules, and every change of placements there."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results
from tests.distributed.test_ddp import close

NAMES = ("megatron", "sequence", "along the last dim")


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return results("two_kinds.py", 4, tmp_path_factory.mktemp("mine"))


def test_as_one_process_on_the_whole_batch(mine):
    for each in mine:
        for name in NAMES:
            assert each[name]["differences"] < 1e-9, name


def test_each_process_has_its_share(mine):
    """A quarter; norms and biases that tensor parallelism does not cut, a half."""
    for each in mine:
        assert each["megatron"]["numel"] < 0.27


def test_checkpoints_are_read_by_other_plans(mine):
    assert all(each[name]["loaded"] for each in mine for name in NAMES)


def test_as_pytorch(mine, tmp_path):
    """Parts and numbers; PyTorch has no plan in which all parameters are tensor parallel but "sequence", which its own full_tensor of strided parts
    refuses on some versions."""
    pytest.importorskip("torch")
    theirs = results("two_kinds.py", 4, tmp_path, ours=False)
    for a, b in zip(mine, theirs, strict=True):
        for name in NAMES:
            assert a[name]["local"] == b[name]["local"]
            close(a[name]["values"], b[name]["values"], name, 1e-8)


def test_every_placement_from_every_other(tmp_path):
    assert results("transitions.py", 4, tmp_path) == [[]] * 4
