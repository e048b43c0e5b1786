"""Pipelines: losses and gradients of one process, the numbers of PyTorch's with gloo, and orders in which nobody waits for ever."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
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
                stage, kind, i, _ = actions[0]
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


@given(
    st.sampled_from(["Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"]),
    st.integers(2, 4),
    st.integers(1, 3),
    st.booleans(),
)
@settings(deadline=None, max_examples=25)
def test_lowered_lists_are_pytorch_s(name, ranks, rounds, merged):
    """Messages, gathered parameters, merged backward passes, and the steps of a simulation, of the same lists of actions."""
    theirs = pytest.importorskip("torch.distributed.pipelining.schedules")
    from flambeau.distributed.pipelining import lowering, orders

    count, local = 2 * ranks * rounds, 2
    lists = {
        "Interleaved1F1B": lambda r: orders.interleaved(r, ranks, local, count, ranks, False), "LoopedBFS": lambda r: orders.looped_bfs(r, ranks, local, count),
        "InterleavedZeroBubble": lambda r: orders.interleaved(r, ranks, local, count, ranks, True),
        "ZBVZeroBubble": lambda r: orders.zero_bubble_v(r, ranks, count),
        "DualPipeV": lambda r: orders.dual_pipe_v(r, ranks, count),
    }  # fmt: skip
    places = orders.v_shaped(ranks, 2 * ranks) if "V" in name else orders.looped(ranks, 2 * ranks)
    own = {rank: [None, *lists[name](rank)] for rank in range(ranks)}
    other = {rank: [None, *[theirs._Action.from_str(str(a)) for a in own[rank][1:]]] for rank in range(ranks)}
    assert [Action.from_str(str(a)) for a in own[0][1:]] == own[0][1:]
    assert lowering._format_pipeline_order(own, 2) == theirs._format_pipeline_order(other, 2)
    assert lowering._validate_schedule(own, ranks, 2 * ranks, count) == dict(enumerate(places))
    with pytest.raises(AssertionError, match="expected"):
        lowering._validate_schedule(own, ranks, 2 * ranks, count + 1)
    if merged:
        own, other = {r: lowering._merge_bw(row) for r, row in own.items()}, {r: theirs._merge_bw(row) for r, row in other.items()}
        assert {r: list(map(str, row)) for r, row in own.items()} == {r: list(map(str, row)) for r, row in other.items()}
    for rank in range(ranks):
        mine, expected = [list(map(str, f._add_unshard_reshard(rows[rank]))) for f, rows in ((lowering, own), (theirs, other))]
        # What is freed at once has no order with PyTorch, which keeps it in a set.
        assert [a for a in mine if "RESHARD" not in a] == [a for a in expected if "RESHARD" not in a] and sorted(mine) == sorted(expected)
    mine, expected = [f._add_send_recv(rows, places.__getitem__, 2 * ranks) for f, rows in ((lowering, own), (theirs, other))]
    assert {r: list(map(str, row)) for r, row in mine.items()} == {r: list(map(str, row)) for r, row in expected.items()}
    steps = [f._simulate_comms_compute(rows, places.__getitem__, 2 * ranks) for f, rows in ((lowering, mine), (theirs, expected))]
    assert {r: list(map(str, row)) for r, row in steps[0].items()} == {r: list(map(str, row)) for r, row in steps[1].items()}


def test_what_is_no_action_or_no_schedule():
    from flambeau.distributed.pipelining import lowering
    from flambeau.distributed.pipelining.orders import B, F, W

    both = Action.from_str("(0F1;1B0)OVERLAP_F_B")
    assert both.sub_actions == (Action(0, F, 1), Action(1, B, 0)) and str(both) == "(0F1;1B0)OVERLAP_F_B" and both.is_compute_op
    assert Action.from_str(" ") is None and str(Action.from_str("3SEND_F1")) == "3SEND_F1"
    for text in ("F1", "1Q0", "1F0x"):
        with pytest.raises(RuntimeError, match="Invalid"):
            Action.from_str(text)
    with pytest.raises(AssertionError, match="Malformed"):
        lowering._add_send_recv({0: [Action(0, B, 0), Action(0, F, 0)], 1: [Action(1, F, 0), Action(1, B, 0)]}, int, 2)
    with pytest.raises(ValueError, match="not progressing"):
        lowering._simulate_comms_compute({0: [Action.from_str("0RECV_B0")], 1: [Action.from_str("1RECV_F0")]}, int, 2)
    for order, said in (({0: [Action(0, W, 0)]}, "without first running BACKWARD_INPUT"), ({1: []}, "incorrect number of ranks"),
                        ({0: [Action(0, F, 0)]}, "Invalid backward")):  # fmt: skip
        with pytest.raises(AssertionError, match=said):
            lowering._validate_schedule(order, 1, 1, 1)
