"""Collectives: two to four ranks have what PyTorch's have with gloo, for every operator and dtype, on one machine and on several."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


@pytest.mark.parametrize("machines", ["aa", "aaa", "aaaa", "ab", "aba", "aabb", "abcb"])
def test_as_gloo(machines, tmp_path):
    pytest.importorskip("torch")
    if len(set(machines)) > 1:
        pytest.importorskip("mpi4py")
    ranks = len(machines)
    mine = results("collectives.py", ranks, tmp_path, machines=machines)
    theirs = results("collectives.py", ranks, tmp_path, ours=False)
    for rank in range(ranks):
        assert set(theirs[rank]) <= set(mine[rank])
        for name, expected in theirs[rank].items():
            assert mine[rank][name] == expected, (rank, name)
