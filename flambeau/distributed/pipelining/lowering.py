"""Lists of a pipeline's actions with the messages between ranks in them, as PyTorch's schedules keep them: how they are made, tried out, checked, shown.

A rank of flambeau sends and receives where an action needs it (stage.py), so these lists are for who looks at a schedule, or brings one of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest

from flambeau.distributed.pipelining.orders import Action, B, F, I, Kind, W

Order = Mapping[int, Sequence[Action | None]]
_AHEAD = 3  # stages whose parameters are gathered at a time


def _parts(action: Action) -> Sequence[Action]:
    return (action,) if action.sub_actions is None else action.sub_actions


def _add_unshard_reshard(compute_actions: Sequence[Action | None], max_active_stages: int = _AHEAD) -> list[Action]:
    """A rank's list with what gathers and frees stages' parameters: before an action those of the next stages are there, and no others."""
    actions = [action for action in compute_actions if action is not None]
    there: list[int] = []
    lowered: list[Action] = []
    for i, action in enumerate(actions):
        wanted: list[int] = []
        for later in actions[i:]:
            if len(wanted) >= max_active_stages:
                break
            wanted += [part.stage_index for part in _parts(later) if part.stage_index not in wanted]
        lowered += [Action(stage, Kind.RESHARD) for stage in there if stage not in wanted]
        lowered += [Action(stage, Kind.UNSHARD) for stage in wanted if stage not in there]
        there = [stage for stage in there if stage in wanted] + [stage for stage in wanted if stage not in there]
        lowered.append(action)
    return lowered + [Action(stage, Kind.RESHARD) for stage in there]


def _merge_bw(compute_actions: Iterable[Action | None]) -> list[Action]:
    """A rank's list in which the two parts of a backward pass that follow each other are the whole one."""
    merged: list[Action] = []
    for action in compute_actions:
        if action is None:
            continue
        if action.computation_type is W and merged and merged[-1] == action._replace(computation_type=I):
            merged[-1] = action._replace(computation_type=B)
        else:
            merged.append(action)
    return merged


def _before(action: Action, num_stages: int) -> list[Action]:
    """What a forward or backward action needs, one of them: a message, or the neighbouring stage's action on the same rank. Nothing for the others."""
    stage, kind, i = action.stage_index, action.computation_type, action.microbatch_index
    if kind is F and stage:
        return [Action(stage, Kind.RECV_F, i), Action(stage - 1, F, i)]
    if kind in (I, B) and stage != num_stages - 1:
        return [Action(stage, Kind.RECV_B, i), Action(stage + 1, I, i), Action(stage + 1, B, i)]
    return []


def _messages(action: Action, stage_to_rank: Callable[[int], int], num_stages: int) -> tuple[Action, Action] | None:
    """(the sending of what an action has made, its receiving), where the next stage is on another rank."""
    stage, kind, i = action.stage_index, action.computation_type, action.microbatch_index
    following = stage + 1 if kind is F else stage - 1
    if kind not in (F, I, B) or not 0 <= following < num_stages or stage_to_rank(following) == stage_to_rank(stage):
        return None
    sending, receiving = (Kind.SEND_F, Kind.RECV_F) if kind is F else (Kind.SEND_B, Kind.RECV_B)
    return Action(stage, sending, i), Action(following, receiving, i)


def _add_send_recv(compute_actions: Order, stage_to_rank: Callable[[int], int], num_stages: int) -> dict[int, list[Action]]:
    """The ranks' lists with the messages in them. A receiver's list has a message where its sender sends it, so no two ranks wait for each other.

    AssertionError where no rank can go on.
    """
    left = {rank: list(reversed(actions)) for rank, actions in sorted(compute_actions.items())}
    lowered: dict[int, list[Action]] = {rank: [] for rank in compute_actions}
    done: dict[int, set[Action]] = {rank: set() for rank in compute_actions}
    while any(left.values()):
        progress = False
        for rank, actions in left.items():
            if not actions:
                continue
            action = actions[-1]
            parts = () if action is None else _parts(action)
            needs = [_before(part, num_stages) for part in parts]
            if not all(not need or any(one in done[rank] for one in need) for need in needs):
                continue
            actions.pop()
            progress = True
            if action is None:
                continue
            lowered[rank].append(action)
            for part in parts:
                done[rank].add(part)
                if (messages := _messages(part, stage_to_rank, num_stages)) is not None:
                    for message in messages:
                        place = stage_to_rank(message.stage_index)
                        lowered[place].append(message)
                        done[place].add(message)
        if not progress:
            raise AssertionError("Malformed compute schedule, can't schedule sends/recvs: the next actions are "
                                 f"{ {rank: actions[-1] for rank, actions in left.items() if actions} }")  # fmt: skip
    return lowered


def _waits_for(action: Action, num_stages: int) -> list[Action]:
    """What an action of a lowered list needs, one of them; nothing for one that waits for nothing."""
    stage, kind, i = action.stage_index, action.computation_type, action.microbatch_index
    if kind is Kind.RECV_F:
        return [Action(stage - 1, Kind.SEND_F, i)]
    if kind is Kind.RECV_B:
        return [Action(stage + 1, Kind.SEND_B, i)]
    if kind is Kind.SEND_F:
        return [Action(stage, F, i)]
    if kind is Kind.SEND_B:
        return [Action(stage, I, i), Action(stage, B, i)]
    return _before(action, num_stages)


def _simulate_comms_compute(pipeline_order: Order, stage_to_rank: Callable[[int], int], num_stages: int) -> dict[int, list[Action | None]]:
    """What each rank does in each step, None where it waits, if every action takes a step. ValueError where all wait for each other."""
    left = {rank: [a for a in reversed(actions) if a is not None] for rank, actions in sorted(pipeline_order.items())}
    steps: dict[int, list[Action | None]] = {rank: [] for rank in left}
    done: set[Action] = set()
    waiting: dict[Action, list[int]] = {}  # ranks by what lets them go on
    ready: set[int] = set()

    def look(rank: int) -> None:
        needs = _waits_for(left[rank][-1], num_stages)
        if not needs or any(one in done for one in needs):
            ready.add(rank)
        else:
            for one in needs:
                waiting.setdefault(one, []).append(rank)

    def go_on(rank: int) -> None:
        action = left[rank].pop()
        steps[rank][-1] = action
        done.add(action)
        ready.discard(rank)
        ready.update(waiting.pop(action, ()))
        if left[rank]:
            look(rank)

    active = [rank for rank, actions in left.items() if actions]
    for rank in active:
        look(rank)
    while active:
        moved = set()
        for rank in active:
            steps[rank].append(None)
            if rank in ready:
                moved.add(rank)
                go_on(rank)
        if not moved:
            raise ValueError(f"Schedule is not progressing: the next actions are { {rank: left[rank][-1] for rank in active} }")
        for rank in active:  # those that a rank behind them in this step has let go on
            if rank in ready and rank not in moved:
                go_on(rank)
        active = [rank for rank in active if left[rank]]
    return steps


def _format_pipeline_order(pipeline_order: Order, error_step_number: int | None = None) -> str:
    """A table of the ranks' actions, a line a step. `error_step_number`: the step that is marked."""
    rows = list(zip_longest(*[pipeline_order[rank] for rank in sorted(pipeline_order)]))
    table = [[f"Rank {rank}" for rank in sorted(pipeline_order)], *[["" if a is None else str(a) for a in row] for row in rows]]
    digits = len(str(len(rows) - 1))
    widths = [max(digits + 5, *map(len, column)) for column in zip(*table, strict=True)]  # a column is no narrower than "Step 0"
    lines = []
    for number, row in enumerate(table, -1):
        label = " " * (digits + 7) if number < 0 else f"Step {number:0{digits}}: "
        lines.append(label + " ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)))
        if number == error_step_number and number >= 0:
            lines[-1] += " <-- ERROR HERE"
    return "\n".join(lines) + "\n"


def _validate_schedule(actions: Order, pp_group_size: int, num_stages: int, num_microbatches: int) -> dict[int, int]:
    """The rank of each stage. AssertionError unless each stage takes each microbatch forward, then backward, on one rank."""
    if sorted(actions) != list(range(pp_group_size)):
        raise AssertionError(f"Schedule has incorrect number of ranks - expected {pp_group_size}, actual {len(actions)} ({sorted(actions)})")
    done: dict[tuple[int, Kind], set[int | None]] = {}
    places: dict[int, int] = {}
    needs = {B: F, I: F, W: I}
    for rank, row in actions.items():
        for step, action in enumerate(row):
            if action is None:
                continue
            if not isinstance(action, Action):
                raise AssertionError(f"Rank {rank}, step {step}: Got an invalid action: {action}, expected instance of _Action")
            for stage, kind, i, _ in _parts(action):
                if kind in needs and i not in done.get((stage, needs[kind]), ()):
                    raise AssertionError(
                        f"Rank {rank}, step {step}: Running {kind.name} for stage {stage}, microbatch {i} without first running {needs[kind].name}\n\n"
                        f"Full pipeline schedule:\n{_format_pipeline_order(actions, step)}"
                    )
                done.setdefault((stage, kind), set()).add(i)
                if places.setdefault(stage, rank) != rank:
                    raise AssertionError(f"Rank {rank}, step {step}: Stage {stage} is assigned to both rank {rank} and rank {places[stage]}")
    for stage in range(num_stages):
        forward, full, inputs, weights = [len(done.get((stage, kind), ())) for kind in (F, B, I, W)]
        if forward != num_microbatches:
            raise AssertionError(f"Got {forward} {F} microbatches for stage {stage}, expected {num_microbatches}")
        if inputs != weights or full + inputs != num_microbatches:
            raise AssertionError(
                f"Invalid backward microbatches for stage {stage}: expected {num_microbatches} total backwards, I and W equally many, "
                f"but got B={full}, I={inputs}, W={weights}"
            )
    return places
