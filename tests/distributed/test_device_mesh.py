"""DeviceMesh says on each rank what PyTorch's says."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_as_pytorch(ranks, tmp_path):
    pytest.importorskip("torch")
    mine, theirs = (results("mesh.py", ranks, tmp_path, ours=ours) for ours in (True, False))
    for a, b in zip(mine, theirs, strict=True):
        assert {key: (a.get(key), b.get(key)) for key in a.keys() | b.keys() if a.get(key) != b.get(key)} == {}
