"""Checkpoints by planners and storages of one's own: the calls, their order and what is loaded are PyTorch's, and each reads the other's files."""

from __future__ import annotations

import importlib.util

import pytest

import flambeau
from flambeau.distributed import checkpoint
from tests.distributed.ranks import results

MISSING = ("CheckpointException", [0, 1], ["KeyError", "KeyError"])


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_as_pytorch(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir(), theirs.mkdir()
    ours = results("planners.py", 2, tmp_path, [str(mine)])
    assert ours[0]["doubled"][1] == [2.0] * 4 and ours[0]["own storage"][2] == 21 and ours[0]["missing"][0] == "CheckpointException"
    other = results("planners.py", 2, tmp_path, [str(theirs), str(mine)], ours=False)
    for told, by_pytorch in zip(ours, other, strict=True):
        (of_mine,) = by_pytorch.pop("of others")
        assert told.pop("broadcast to parts") == told["broadcast"][0] and told.pop("broadcast of what is missing") == MISSING
        assert not told.pop("of others") and told == by_pytorch
        assert of_mine == {name: told[name] for name in of_mine}
    # What two ranks of PyTorch wrote, by one process of flambeau.
    state = {"model": {"w": flambeau.zeros(5, 3), "b": flambeau.zeros(4)}, "step": 0}
    checkpoint.load(state, checkpoint_id=theirs / "files", no_dist=True)
    assert [state["model"]["w"].tolist(), state["model"]["b"].tolist(), state["step"]] == ours[0]["doubled"]
    unflat = {"flat": flambeau.zeros(3), "nested": {}}
    checkpoint.load(unflat, checkpoint_id=theirs / "unflat", planner=checkpoint.DefaultLoadPlanner(flatten_state_dict=False), no_dist=True)
    assert [unflat["flat"].tolist(), unflat["nested"]] == ours[0]["unflat"]
    for name in ("shards", "consolidated"):
        loaded = {"w": flambeau.zeros(5, 3)}
        checkpoint.load(loaded, storage_reader=checkpoint.HuggingFaceStorageReader(theirs / name), no_dist=True)
        assert loaded["w"].tolist() == ours[0]["safetensors " + name]
