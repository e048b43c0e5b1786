"""DistributedDataParallel: the numbers of PyTorch's with gloo, the same bits on each rank, and those of one process on the whole batch."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from tests.distributed.ranks import results


def close(mine: Any, theirs: Any, where: str, tolerance: float = 2e-5) -> None:
    """Compare nested results."""
    if isinstance(theirs, dict):
        assert set(mine) >= set(theirs), where
        for key in theirs:
            close(mine[key], theirs[key], f"{where}.{key}", tolerance)
    elif theirs is None or isinstance(theirs, (bool, str)):
        assert mine == theirs, where
    elif isinstance(theirs, list) and any(entry is None or isinstance(entry, list) for entry in theirs):
        assert len(mine) == len(theirs), where
        for i, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            close(a, b, f"{where}[{i}]", tolerance)
    else:
        numpy.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance, err_msg=where)


@pytest.fixture(scope="module", params=["aa", "aaa", "aaaa", "ab", "abba"])
def mine(request, tmp_path_factory):
    """`params`: the machine of each rank."""
    if len(set(request.param)) > 1:
        pytest.importorskip("mpi4py")
    return results("ddp.py", len(request.param), tmp_path_factory.mktemp("mine"), ["synchronised", "mine"], timeout=300, machines=request.param)


def test_same_bits_on_each_rank(mine):
    for name in ("mlp", "gpt", "lstm", "double", "accumulated", "unused", "synchronised"):
        for part in ("gradients", "state"):
            assert all(other[name][part] == mine[0][name][part] for other in mine), (name, part)
    for name in ("cnn", "static"):  # buffers are each rank's own until the next forward pass
        assert all(other[name]["gradients"] == mine[0][name]["gradients"] for other in mine)
    for name in ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook", "join True", "join False"):
        assert all(other[name] == mine[0][name] for other in mine), name


def test_as_one_process_on_the_whole_batch(mine):
    for name in ("mlp", "gpt", "lstm", "double", "synchronised"):
        close(mine[0][name]["state"], mine[0][name]["whole"], name, 1e-12 if name == "double" else 2e-4)


def test_unfinished_passes_name_parameters(mine):
    assert "did not receive grad for rank 1: unused.weight, unused.bias" in mine[1]["names"]


def test_as_gloo(mine, tmp_path):
    pytest.importorskip("torch")
    theirs = results("ddp.py", len(mine), tmp_path, ours=False, timeout=300)
    for rank in range(len(mine)):
        for name, expected in theirs[rank].items():
            tolerance = {"bf16_compress_hook": 1e-2, "fp16_compress_hook": 1e-3}.get(name, 2e-4)
            close(mine[rank][name], expected, f"rank {rank} {name}", tolerance)
