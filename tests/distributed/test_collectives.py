"""Collectives: two, three and four ranks have what PyTorch's have with gloo, for every operator and dtype; wrong calls are told apart on every rank."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_as_gloo(ranks, tmp_path):
    pytest.importorskip("torch")
    mine = results("collectives.py", ranks, tmp_path)
    theirs = results("collectives.py", ranks, tmp_path, ours=False)
    for rank in range(ranks):
        assert set(theirs[rank]) <= set(mine[rank])
        for name, expected in theirs[rank].items():
            assert mine[rank][name] == expected, (rank, name)
