"""Groups that are made by themselves, their methods, backends of one's own, replicate, tags, buckets: as PyTorch's."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau
import flambeau.distributed as dist
from flambeau.distributed import _functional_collectives as functional
from flambeau.distributed import distributed_c10d as c10d
from tests.distributed.ranks import results


@pytest.mark.parametrize("ranks", [2, 3])
def test_as_gloo(ranks, tmp_path):
    mine = results("groups.py", ranks, tmp_path)
    pytest.importorskip("torch")
    theirs = results("groups.py", ranks, tmp_path, ours=False)
    for rank in range(ranks):
        assert set(theirs[rank]) == set(mine[rank])
        for name, expected in theirs[rank].items():
            if name == "refused own backend has none":  # PyTorch's own class then says that it has no backend
                assert mine[rank][name][0] == "NotImplementedError"
            else:
                assert mine[rank][name] == expected, (rank, name)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(["float32", "float64", "float16"]), st.booleans()), min_size=1, max_size=12),
    st.lists(st.sampled_from([1, 40, 100, 400]), min_size=1, max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_buckets_are_pytorch_s(tensors, limits):
    torch = pytest.importorskip("torch")
    sparse = [s for _, _, s in tensors]
    mine = dist._compute_bucket_assignment_by_size([flambeau.empty(n, dtype=getattr(flambeau, kind)) for n, kind, _ in tensors], limits, sparse)
    theirs = torch.distributed._compute_bucket_assignment_by_size([torch.empty(n, dtype=getattr(torch, kind)) for n, kind, _ in tensors], limits, sparse)
    assert sorted(zip(*mine, strict=True)) == sorted(zip(*theirs, strict=True))


@pytest.fixture
def alone():
    dist.init_process_group("fake", rank=1, world_size=4, store=dist.HashStore())
    yield
    dist.destroy_process_group()


def test_groups_by_tags(alone):
    first, second = c10d._new_group_with_tag([0, 1], pg_tag="a"), c10d._new_group_with_tag([0, 1], pg_tag="b")
    plain = dist.new_group([0, 1])
    assert c10d._new_group_with_tag([0, 1], pg_tag="a") is first is not second
    for group in (first, second, plain):
        tag, ranks, count = functional._expand_group(group)
        assert (ranks, count) == ([0, 1], 2) and c10d._find_pg_by_ranks_and_tag(tag, ranks) is group
    assert c10d._find_pg_by_ranks_and_tag("", [3, 2, 1, 0]) is dist.group.WORLD
    assert c10d._find_or_create_pg_by_ranks_and_tag("b", [2, 3, 0, 1], 2) is second
    assert functional._expand_group([[0, 1], [2, 3]], "x") == ("x", [0, 1, 2, 3], 2)
    with pytest.raises(ValueError, match="group sizes must be identical"):
        functional._expand_group([[0], [1, 2, 3]])
    with pytest.raises(ValueError, match="empty tag"):
        c10d._find_or_create_pg_by_ranks_and_tag("", [1, 3], 2)
    with pytest.raises(AssertionError, match="doesn't include"):
        c10d._find_or_create_pg_by_ranks_and_tag("b", [2, 3], 2)


def test_collectives_of_meta_tensors(alone):
    x = flambeau.empty(4, 6, device="meta")
    world = dist.group.WORLD
    assert functional.all_reduce(x, "sum", "no such group").shape == (4, 6)
    assert functional.all_gather_tensor(x, 1, world).shape == (4, 24)
    assert functional.reduce_scatter_tensor(x, "sum", 0, world).shape == (1, 6)
    assert functional.broadcast(x, 0, world).shape == (4, 6)
    assert functional.all_to_all_single(x, [1, 2, 3, 4], [1, 1, 1, 1], world).shape == (10, 6)


def test_factors_are_operators_and_can_be_copied():
    op = dist._make_nccl_premul_sum(2.0)
    assert isinstance(op, dist.ReduceOp) and isinstance(dist.ReduceOp.SUM, dist.ReduceOp) and not isinstance("sum", dist.ReduceOp)
    assert copy.deepcopy(op) == op == pickle.loads(pickle.dumps(op)) != dist._make_nccl_premul_sum(3.0)


@pytest.mark.parametrize("unused", [False, True])
def test_a_reducer_by_itself(unused):
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        a, b, c = [flambeau.nn.Parameter(flambeau.ones(2, dtype=kind)) for kind in (flambeau.float32, flambeau.float64, flambeau.float64)]
        with pytest.raises(RuntimeError, match="same dtype; bucket 0"):
            dist.Reducer([a, b, c], [[0, 1, 2]], [1 << 20], dist.group.WORLD)
        reducer = dist.Reducer([a, b, c], [[0], [1, 2]], [1 << 20, 1 << 20], dist.group.WORLD, find_unused_parameters=unused)
        for _ in range(2):
            reducer.prepare_for_forward()
            loss = (a.double() * b).sum() + (0 if unused else c.sum())
            reducer.prepare_for_backward(loss)
            loss.backward()
        assert a.grad.tolist() == [2.0, 2.0] and (c.grad is None) is unused
    finally:
        dist.destroy_process_group()


def test_a_barrier_by_a_store():
    store = dist.HashStore()
    c10d._store_based_barrier(0, store, "alone", 1, timedelta(seconds=1))
    with pytest.raises(dist.DistStoreError, match="Timed out initializing process group in store based barrier on rank 0"):
        c10d._store_based_barrier(0, store, "two", 2, timedelta(milliseconds=10))
