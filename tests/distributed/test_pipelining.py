"""Pipelines: losses and gradients of one process, the numbers of PyTorch's with gloo, and orders in which nobody waits for ever."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.distributed.pipelining import orders
from flambeau.distributed.pipelining.orders import Action, Kind
from tests.distributed.ranks import results
from tests.distributed.test_ddp import close


def simulate(lists: dict[int, list[Action]], places: list[int], count: int) -> None:
    """Let each rank do its list as far as it can, until all are done; AssertionError where nobody can go on."""
    done: set[Action] = set()
    left = {rank: list(actions) for rank, actions in lists.items()}
    last = len(places) - 1
    while any(left.values()):
        went_on = False
        for rank, actions in left.items():
            while actions:
                stage, kind, i = actions[0]
                assert places[stage] == rank
                if kind is Kind.FORWARD:
                    needs = [Action(stage - 1, kind, i)] if stage else []
                elif kind is Kind.BACKWARD_WEIGHT:
                    needs = [Action(stage, Kind.BACKWARD_INPUT, i)]
                else:
                    needs = [Action(stage, Kind.FORWARD, i)]
                    if stage < last and not any(Action(stage + 1, k, i) in done for k in (Kind.FULL_BACKWARD, Kind.BACKWARD_INPUT)):
                        break
                if not done.issuperset(needs):
                    break
                assert actions[0] not in done
                done.add(actions.pop(0))
                went_on = True
        assert went_on, left
    wanted = set()
    for stage, i in itertools.product(range(len(places)), range(count)):
        whole = Action(stage, Kind.FULL_BACKWARD, i) in done
        kinds = (Kind.FORWARD, Kind.FULL_BACKWARD) if whole else (Kind.FORWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT)
        wanted |= {Action(stage, kind, i) for kind in kinds}
    assert done == wanted


def lists_of(name: str, ranks: int, local: int, count: int) -> tuple[dict[int, list[Action]], list[int]]:
    places = orders.looped(ranks, ranks * local)
    if name == "v":
        return {r: orders.zero_bubble_v(r, ranks, count) for r in range(ranks)}, orders.v_shaped(ranks, 2 * ranks)
    if name == "dual":
        return {r: orders.dual_pipe_v(r, ranks, count) for r in range(ranks)}, orders.v_shaped(ranks, 2 * ranks)
    if name == "gpipe":
        return {r: orders.gpipe(r, count) for r in range(ranks)}, places
    if name == "1f1b":
        return {r: orders.one_forward_one_backward(r, ranks, count) for r in range(ranks)}, places
    if name == "bfs":
        return {r: orders.looped_bfs(r, ranks, local, count) for r in range(ranks)}, places
    each = orders.rounds(ranks, count, name)
    return {r: orders.interleaved(r, ranks, local, count, each, name == "zero") for r in range(ranks)}, places


ALL = ["gpipe", "1f1b", "bfs", "interleaved", "zero", "v", "dual"]


@given(name=st.sampled_from(ALL), ranks=st.integers(1, 7), local=st.integers(1, 4), turns=st.integers(1, 5))
def test_orders_end(name, ranks, local, turns):
    local = 1 if name in ("gpipe", "1f1b") else local
    for count in (turns, turns * ranks):
        if name in ("interleaved", "zero") and count % max(1, count // ranks):
            continue
        count = max(count, 2 * ranks) if name == "dual" else count
        simulate(*lists_of(name, ranks, local, count), count)


@pytest.mark.parametrize("name", ["bfs", "interleaved", "zero", "v", "dual"])
def test_orders_are_pytorchs(name):
    pytest.importorskip("torch")
    from torch.distributed.pipelining import schedules

    kind = {
        "bfs": schedules.ScheduleLoopedBFS, "interleaved": schedules.ScheduleInterleaved1F1B, "zero": schedules.ScheduleInterleavedZeroBubble,
        "v": schedules.ScheduleZBVZeroBubble, "dual": schedules.ScheduleDualPipeV,
    }[name]  # fmt: skip
    for ranks in (1, 2, 3, 4):
        for local in (1, 2, 3) if name not in ("v", "dual") else (2,):
            for count in (ranks, 2 * ranks, 4 * ranks) if name != "dual" else (2 * ranks, 2 * ranks + 3, 5 * ranks):
                mine, places = lists_of(name, ranks, local, count)
                turns = max(1, count // ranks)
                as_self = SimpleNamespace(
                    pp_group_size=ranks, _n_microbatches=count, num_stages=len(places), _stages=[None] * local, n_local_stages=local,
                    number_of_rounds=turns, microbatches_per_round=count // turns,
                )  # fmt: skip
                for rank in range(ranks):
                    given_ = [action for action in kind._calculate_single_rank_operations(as_self, rank) if action is not None]
                    theirs = [str(part) for action in given_ for part in action.sub_actions or (action,)]  # of two that overlap one after the other
                    assert list(map(str, mine[rank])) == theirs, (ranks, local, count, rank)


@pytest.mark.parametrize("machines", ["aa", "aaaa", "ab"])
def test_as_one_process_and_as_gloo(machines, tmp_path):
    if len(set(machines)) > 1:
        pytest.importorskip("mpi4py")
    ranks = len(machines)
    mine = results("pipeline.py", ranks, tmp_path, ["mine"], machines=machines)
    for rank, told in enumerate(mine):
        for name, value in told.items():
            if isinstance(value, dict) and "whole" in value:
                exact = 1e-12 if "losses" in value else 1e-5
                whole = value["whole"]
                close(value.get("gradients", value), whole.get("gradients", whole), f"rank {rank} {name}", exact)
                if value.get("losses"):
                    close([loss for loss, _, _ in value["losses"]], whole["losses"], f"rank {rank} {name}", 1e-12)
    assert mine[-1]["1F1B"]["losses"] and mine[0]["ZBVZeroBubble"]["losses"] and not mine[0]["1F1B"]["losses"]
    assert mine[0]["cut by names"]["names"].endswith("first.weight") and mine[0]["cut by names"]["close"]
    for told in mine:
        for name, parts in {
            "index": "ValueError: Stage index 5 is out of range of 4", "few stages": f"Pipeline group size {ranks} cannot be larger",
            "few microbatches": "must be greater than or equal to the number of stages", "foreign": "must have the stages",
            "rounds": "requires the number of microbatches to be a multiple", "small batch": "ValueError: pipelining: a tensor of shape (2,)",
            "no such name": "AttributeError: Specified target 7 referenced nonexistent module", "tied": "is used in stage 0 (as 0.weight) and in stage 1",
            "schedule": "ValueError: Unknown schedule name 'no such'",
        }.items():  # fmt: skip
            assert parts in told["errors"][name], (name, told["errors"].get(name))
    pytest.importorskip("torch")
    if machines != "aa":
        return
    theirs = results("pipeline.py", ranks, tmp_path, ours=False)
    for rank in range(ranks):
        for name, expected in theirs[rank].items():
            close(mine[rank][name], expected, f"rank {rank} {name}", 1e-5)
