"""split_group, and shrink_group, by which ranks go on without one that was killed: on one machine and on several, in memory, without a restart."""

from __future__ import annotations

import pickle
from datetime import timedelta

import pytest

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed import distributed_c10d as c10d
from tests.distributed.ranks import started


def one_process(victim: int, size: int) -> tuple[list[list[float]], list[object]]:
    """The losses of each rank and the parameters of the same training in one process."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(8):
        ranks = size if step < 4 else size - 1
        optimizer.zero_grad()
        own = []
        for rank in range(ranks):
            data = torch.Generator().manual_seed(100 * step + rank)
            loss = model(torch.randn(6, 8, generator=data, dtype=torch.float64)).square().mean()
            (loss / ranks).backward()
            own.append(loss.item())
        optimizer.step()
        losses.append(own)
    return losses, [p.detach() for p in model.parameters()]


@pytest.mark.parametrize("machines, victim", [("aaa", 1), ("aaa", 0), ("aab", 1), ("aab", 2), ("abc", 1), ("abcc", 3)])
def test_ranks_go_on_without_one(machines, victim, tmp_path):
    if len(set(machines)) > 1:
        pytest.importorskip("mpi4py")
    size = len(machines)
    with started("regroup.py", size, tmp_path, [str(victim)], machines) as processes:
        ends = [process.communicate(timeout=200) for process in processes]
    losses, parameters = one_process(victim, size)
    stay = [rank for rank in range(size) if rank != victim]
    for new, rank in enumerate(stay):
        assert processes[rank].returncode == 0, ends[rank]
        found = pickle.loads((tmp_path / f"regroup.py-True-{rank}").read_bytes())
        assert found["split"] == (
            ([0], 0, 1.0, 0, "default_pg:split:0") if rank == 0 else (list(range(1, size)), rank - 1, sum(range(2, size + 1)), rank - 1, "default_pg:split:0")
        )
        assert found["again"] == {0: ([0], 1.0, "last"), size - 1: ([size - 1], float(size), "last")}.get(rank)
        assert found["none"] == (([0, 1], 30.0, 3.0) if rank < 2 else None)
        assert f"rank {victim} died" in found["told"]
        assert found["after"] == (new, size - 1, sum(range(1, size)), "default:shrunken")
        assert found["losses"] == pytest.approx([own[rank if step < 4 else new] for step, own in enumerate(losses)], rel=1e-12)
        for mine, theirs in zip(found["parameters"], parameters, strict=True):
            torch.testing.assert_close(torch.tensor(mine, dtype=torch.float64), theirs, rtol=1e-12, atol=1e-14)


@pytest.fixture
def alone():
    dist.init_process_group("fake", rank=1, world_size=4, store=dist.HashStore())
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize("parts, more, error, text", [
    (None, {}, ValueError, "cannot be None or empty"), ([], {}, ValueError, "cannot be None or empty"), ([[]], {}, ValueError, "cannot be empty"),
    ([[0, 0]], {}, ValueError, "duplicate"), ([[0, 1, 2, 3, 0]], {}, ValueError, "less or equal to the world_size"),
    ([[0, 1], [1, 2]], {}, ValueError, "1 is in groups 0 and 1"), ([[4]], {}, ValueError, "between 0 and 3"),
    ([[0]], {"timeout": 3}, TypeError, "datetime.timedelta"), ([[0]], {"backend": "cuda:nccl"}, ValueError, "mismatch|not present"),
])  # fmt: skip
def test_wrong_splits(alone, parts, more, error, text):
    with pytest.raises(error, match=text):
        dist.split_group(None, parts, **more)


def test_a_split_of_a_group_that_is_left(alone):
    part = dist.split_group(None, [[0, 1], [2, 3]], timedelta(seconds=9), group_desc="half")
    assert (part.ranks, part.rank(), part.timeout.total_seconds(), part.group_desc) == ([0, 1], 1, 9.0, "half")
    dist.destroy_process_group(part)
    with pytest.raises(ValueError, match="is not registered"):
        dist.split_group(part, [[0]])
    assert dist.split_group(None, [[0], [2, 3]]) is None


@pytest.mark.parametrize("gone, flags, error, text", [
    ((1,), 0, TypeError, "must be a list, but got tuple"), ([], 0, ValueError, "cannot be empty"), ([0], 7, ValueError, "Invalid shrink_flags value: 7"),
    ([0, "1"], 0, TypeError, "index 1 is str"), ([4], 0, ValueError, "Rank 4 at index 0 is out of bounds for group size 4"),
    ([0, 0], 0, ValueError, "Duplicate rank 0"), ([0, 1, 2, 3], 0, ValueError, "Cannot exclude all 4"), ([1], 0, RuntimeError, "Current rank 1"),
])  # fmt: skip
def test_wrong_exclusions(alone, gone, flags, error, text):
    with pytest.raises(error, match=text):
        dist.shrink_group(gone, shrink_flags=flags)
    assert dist.get_world_size() == 4


def test_shrinking_a_part_keeps_the_others(alone):
    part = dist.new_group([0, 1, 3])
    smaller = c10d.shrink_group([0], part, c10d.SHRINK_ABORT)
    assert (smaller.ranks, smaller.rank(), dist.get_world_size()) == ([1, 3], 0, 4)
    with pytest.warns(UserWarning, match="will destroy 1 other process groups"):
        assert dist.shrink_group([0, 3]) is dist.group.WORLD
    assert (dist.get_rank(), dist.get_world_size(), dist.get_process_group_ranks(None)) == (0, 2, [0, 1])
