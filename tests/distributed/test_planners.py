"""Checkpoints by planners and storages of one's own: the calls, their order and what is loaded are PyTorch's, and each reads the other's files."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


def test_as_pytorch(tmp_path):
    pytest.importorskip("torch")
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir(), theirs.mkdir()
    ours = results("planners.py", 2, tmp_path, ["save", str(mine)])
    assert ours == results("planners.py", 2, tmp_path, ["save", str(theirs)], ours=False)
    assert ours[0]["doubled"][1] == [2.0] * 4 and ours[0]["own storage"][2] == 21 and ours[0]["missing"][0] == "CheckpointException"
    for folder, by_flambeau in ((theirs, True), (mine, False)):
        for told, before in zip(results("planners.py", 2, tmp_path, ["load", str(folder)], ours=by_flambeau), ours, strict=True):
            assert all(told[name] == before[name] for name in ("doubled", "renamed", "unflat"))
