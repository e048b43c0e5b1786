"""Tensor parallel plans: the numbers of one process, and PyTorch's, with the parameters cut as PyTorch cuts them."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results
from tests.distributed.test_ddp import close


@pytest.fixture(scope="module", params=[2, 3])
def mine(request, tmp_path_factory):
    return results("tensor_parallel.py", request.param, tmp_path_factory.mktemp("mine"))


def test_as_one_process(mine):
    for each in mine:
        for name in ("megatron", "sequence"):
            assert each[name]["differences"] < 1e-9


def test_as_pytorch(mine, tmp_path):
    pytest.importorskip("torch")
    theirs = results("tensor_parallel.py", len(mine), tmp_path, ours=False)
    for a, b in zip(mine, theirs, strict=True):
        for name in ("megatron", "sequence"):
            assert a[name]["local"] == b[name]["local"]
            close(a[name]["values"], b[name]["values"], name, 1e-8)
