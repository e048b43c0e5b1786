"""Large sums and exchanges by other ranks' memory: the window's bits for all dtypes, the window where it is not allowed, no writes to who has gone on."""

from __future__ import annotations

import sys

import pytest

from tests.distributed.ranks import results


@pytest.mark.skipif(sys.platform != "linux", reason="process_vm_readv is Linux's")
@pytest.mark.parametrize("ranks", [2, 3])
def test_as_by_the_window(ranks, tmp_path):
    found = results("peer_memory.py", ranks, tmp_path, machines=["a"] * ranks)
    if found[0]["usable"] is False:
        pytest.skip("this system lets no process look into another's memory")
    for rank, told in enumerate(found):
        assert told["differ"] == [] and told["not contiguous"] and told["used"] >= 12
        total = ranks * (ranks + 1) / 2
        assert told["_move"] == told["_calls"] == (0, [total])
        assert f"Timed out waiting 500ms for rank {ranks - 1}" in told["error"], told["error"]
        assert rank == ranks - 1 or told["after"] == [7.0]
        assert f"rank {ranks - 1}" in told["read"] and "Timed out" in told["read"], told["read"]
        assert f"rank {ranks - 1}" in told["late"] and "Timed out" in told["late"], told["late"]
        assert rank == ranks - 1 or told["after late"] == [9.0]
