"""ShardedTensors: parts with their places, in checkpoints that are cut anew; how gradients come to DTensors. As PyTorch has it."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import results


def test_as_pytorch(tmp_path):
    pytest.importorskip("torch")
    mine, theirs = (results("sharded_tensors.py", 2, tmp_path, ours=ours) for ours in (True, False))
    for rank in range(2):
        for name, expected in theirs[rank].items():
            assert mine[rank][name] == expected, (rank, name)
        assert mine[rank].keys() == theirs[rank].keys()


def test_helpers_of_planners():
    import flambeau as torch
    from flambeau.distributed.checkpoint._dedup_save_plans import dedup_save_plans, dedup_tensors
    from flambeau.distributed.checkpoint._nested_dict import flatten_state_dict, unflatten_state_dict
    from flambeau.distributed.checkpoint._traverse import get_element
    from flambeau.distributed.checkpoint.default_planner import create_default_global_save_plan, create_default_local_save_plan
    from flambeau.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
    from flambeau.distributed.checkpoint.planner_helpers import create_read_items_for_chunk_list
    from flambeau.distributed.checkpoint.utils import find_state_dict_object

    state = {"a": 1, "b": [torch.ones(2), {"c": [3, 4]}, "x"], "d": [1, 2]}
    flat, paths = flatten_state_dict(state)
    assert set(flat) == {"a", "b.0", "b.1.c", "b.2", "d"}
    assert unflatten_state_dict(flat, paths) == state
    assert get_element(state, ("b", 1, "c", 1)) == 4
    assert get_element(state, ("b", 3, "c"), "none") == "none"
    plans = [create_default_local_save_plan({"t": torch.ones(4), "u": torch.ones(3), **own}, i == 0) for i, own in enumerate(({}, {"v": torch.ones(2)}))]
    assert [[item.index.fqn for item in plan.items] for plan in dedup_save_plans(plans)] == [["t"], ["u", "v"]]
    assert [[item.index.fqn for item in plan.items] for plan in dedup_tensors(plans)] == [["t", "u"], ["v"]]
    placed, metadata = create_default_global_save_plan(dedup_save_plans(plans))
    assert [item.index.index for plan in placed for item in plan.items] == [0, 0, 0]
    entry = metadata.state_dict_metadata["t"]
    (item,) = create_read_items_for_chunk_list("t", entry, [ChunkStorageMetadata(torch.Size([1]), torch.Size([2]))])
    assert (item.storage_offsets, item.dest_offsets, item.lengths) == ((1,), (0,), (2,))
    assert find_state_dict_object(state, MetadataIndex("d")) == [1, 2]
    with pytest.raises(ValueError, match="Could not find FQN"):
        find_state_dict_object(state, MetadataIndex("e"))


def test_older_order_of_arguments(tmp_path):
    import flambeau as torch
    from flambeau.distributed import checkpoint

    writer = checkpoint.FileSystemWriter(tmp_path)
    with pytest.warns(UserWarning, match="argument order of save"):
        checkpoint.save({"a": torch.ones(2)}, writer)
    reader, state = checkpoint.FileSystemReader(tmp_path), {"a": torch.zeros(2)}
    with pytest.warns(UserWarning, match="argument order of load"):
        checkpoint.load(state, reader)
    assert state["a"].tolist() == [1, 1]
    found = reader.read_metadata().storage_meta
    assert (found.save_id, found.load_id) == (writer.save_id, reader.load_id)
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        checkpoint.save({}, writer, 1)
