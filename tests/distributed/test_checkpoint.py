"""Distributed checkpoints: saved by some ranks and loaded by others, by flambeau and by PyTorch; and whole at any time."""

from __future__ import annotations

import os
import pickle

import pytest

from tests.distributed.ranks import results


def go(what, ranks, tmp_path, folder, ours=True):
    return results("checkpoint.py", ranks, tmp_path, [what, str(folder)], ours=ours)


@pytest.mark.parametrize("what", ["save", "save beside"])
def test_another_number_of_ranks(what, tmp_path):
    saved = go(what, 2, tmp_path, tmp_path / "c")[0]
    for ranks in (1, 3):
        for found in go("load", ranks, tmp_path, tmp_path / "c"):
            assert found == saved


@pytest.mark.parametrize(("writer", "reader"), [(True, False), (False, True)])
def test_with_pytorch(writer, reader, tmp_path):
    pytest.importorskip("torch")
    saved = go("save", 2, tmp_path, tmp_path / "c", writer)[0]
    for found in go("load", 3, tmp_path, tmp_path / "c", reader):
        assert found == saved


def test_old_checkpoint_stays_until_the_new_is_whole(tmp_path, monkeypatch):
    import flambeau
    from flambeau.distributed import checkpoint
    from flambeau.distributed.checkpoint import _files

    folder = tmp_path / "c"
    checkpoint.save({"x": flambeau.ones(3)}, checkpoint_id=folder, no_dist=True)
    with monkeypatch.context() as patch:
        patch.setattr(_files, "write_metadata", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save({"x": flambeau.zeros(3)}, checkpoint_id=folder, no_dist=True)
    state = {"x": flambeau.zeros(3)}
    checkpoint.load(state, checkpoint_id=folder, no_dist=True)
    assert state["x"].tolist() == [1, 1, 1]
    for value in (2.0, 3.0):
        checkpoint.save({"x": flambeau.full((3,), value)}, checkpoint_id=folder, no_dist=True)
        checkpoint.load(state, checkpoint_id=folder, no_dist=True)
        assert state["x"].tolist() == [value] * 3
        assert len([name for name in os.listdir(folder) if name.endswith(".distcp")]) == 1


def test_metadata_executes_nothing(tmp_path):
    from flambeau.distributed import checkpoint

    class Bad:
        def __reduce__(self):
            return os.system, ("true",)

    (tmp_path / ".metadata").write_bytes(pickle.dumps(Bad()))
    with pytest.raises(checkpoint.CheckpointException) as caught:
        checkpoint.load({}, checkpoint_id=tmp_path, no_dist=True)
    assert type(caught.value.failures[0][0]) is pickle.UnpicklingError
