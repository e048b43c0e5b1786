"""The orders in which the ranks of a pipeline take microbatches through their stages, as lists of actions.

A rank does its list from first to last and waits only for what an action needs; what it hands on never waits. So an order is right if somebody can
always go on, which tests simulate for many sizes.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What is done: forward, the whole backward pass, or its two parts: inputs' gradients and parameters'. The others are in lowered lists (lowering.py)."""

    FORWARD, FULL_BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = "F", "B", "I", "W"
    UNSHARD, RESHARD, REDUCE_GRAD, OVERLAP_F_B = "UNSHARD", "RESHARD", "REDUCE_GRAD", "OVERLAP_F_B"
    SEND_F, RECV_F, SEND_B, RECV_B = "SEND_F", "RECV_F", "SEND_B", "RECV_B"

    @staticmethod
    def from_str(action: str) -> Kind:
        """The kind that is written so; RuntimeError for others."""
        try:
            return Kind(action)
        except ValueError:
            raise RuntimeError(f"Invalid computation type {action}") from None


class Action(NamedTuple):
    """A microbatch in a stage; or several such that overlap (`sub_actions`)."""

    stage_index: int
    computation_type: Kind
    microbatch_index: int | None = None
    sub_actions: tuple[Action, ...] | None = None

    def __str__(self) -> str:
        if self.sub_actions is not None:
            return f"({';'.join(map(str, self.sub_actions))}){self.computation_type}"
        return f"{self.stage_index}{self.computation_type}{'' if self.microbatch_index is None else self.microbatch_index}"

    def __repr__(self) -> str:
        return str(self)

    @property
    def is_compute_op(self) -> bool:
        """Whether something is computed, not sent, gathered or freed."""
        return self.computation_type in (F, B, I, W, Kind.OVERLAP_F_B)

    @staticmethod
    def from_str(action_string: str) -> Action | None:
        """What is written like "2F0", "1UNSHARD", "3SEND_F1" or "(0F1;1B0)OVERLAP_F_B"; None for nothing. RuntimeError for anything else."""
        text = action_string.strip()
        if not text:
            return None
        if text.startswith("("):
            inside, _, kind = text[1:].partition(")")
            parts = [Action.from_str(part) for part in inside.split(";")]
            return Action(-1, Kind.from_str(kind), None, tuple(part for part in parts if part is not None) or None)
        found = re.fullmatch(r"(\d+)([A-Z_]+)(\d*)", text)
        if found is None:
            raise RuntimeError(f"Invalid action string: {text}, should be formatted as [stage][action type][(microbatch)] e.g. 2F0")
        return Action(int(found[1]), Kind.from_str(found[2]), int(found[3]) if found[3] else None)


F, B, I, W = Kind.FORWARD, Kind.FULL_BACKWARD, Kind.BACKWARD_INPUT, Kind.BACKWARD_WEIGHT  # noqa: E741  # as schedules write them


def looped(ranks: int, stages: int) -> list[int]:
    """The rank of each stage, round and round."""
    return [stage % ranks for stage in range(stages)]


def v_shaped(ranks: int, stages: int) -> list[int]:
    """The rank of each stage, there and back."""
    return [stage % ranks if stage // ranks % 2 == 0 else ranks - 1 - stage % ranks for stage in range(stages)]


def gpipe(rank: int, count: int) -> list[Action]:
    """All forward, then all backward. One stage a rank."""
    return [Action(rank, kind, i) for kind in (F, B) for i in range(count)]


def one_forward_one_backward(rank: int, ranks: int, count: int) -> list[Action]:
    """As many forward as there are stages from here on; then backward and forward in turn. One stage a rank."""
    ahead = min(count, ranks - rank)
    actions = [Action(rank, F, i) for i in range(ahead)]
    for i in range(count):
        actions.append(Action(rank, B, i))
        if ahead + i < count:
            actions.append(Action(rank, F, ahead + i))
    return actions


def looped_bfs(rank: int, ranks: int, local: int, count: int) -> list[Action]:
    """All microbatches through a stage, then through the rank's next one; backward the other way round."""
    own = [rank + i * ranks for i in range(local)]
    forward = [Action(stage, F, i) for stage in own for i in range(count)]
    return forward + [Action(stage, B, i) for stage in reversed(own) for i in reversed(range(count))]


def rounds(ranks: int, count: int, name: str) -> int:
    """How many microbatches go through a stage before the rank turns to its next one. ValueError unless they come out even."""
    turns = max(1, count // ranks)
    if count % turns:
        raise ValueError(f"{name} requires the number of microbatches to be a multiple of the number of rounds ({turns}), but got {count}.")
    return count // turns


def interleaved(rank: int, ranks: int, local: int, count: int, each: int, zero_bubble: bool) -> list[Action]:
    """Microbatches in rounds of `each` through the rank's stages: some forward, then forward and backward in turn, then the rest backward.

    `zero_bubble`: parameters' gradients are an action of their own, which comes up to `rank` backward passes later.
    """
    total = local * count
    ahead = min((local - 1) * each + (1 if zero_bubble else 2) * (ranks - 1 - rank), total)
    done: dict[tuple[int, Kind], int] = {}

    def next_of(stage: int, kind: Kind) -> Action:
        done[stage, kind] = done.get((stage, kind), -1) + 1
        return Action(stage, kind, done[stage, kind])

    def stage_at(i: int) -> int:
        return i // each % local * ranks + rank

    actions = [next_of(stage_at(i), F) for i in range(ahead)]
    waiting: list[int] = []
    for i in range(total):
        if ahead + i < total:
            actions.append(next_of(stage_at(ahead + i), F))
        stage = (local - 1 - i // each % local) * ranks + rank
        actions.append(next_of(stage, I if zero_bubble else B))
        if zero_bubble:
            waiting.append(stage)
            if len(waiting) > rank:
                actions.append(next_of(waiting.pop(0), W))
    return actions + [next_of(stage, W) for stage in waiting]


def zero_bubble_v(rank: int, ranks: int, count: int) -> list[Action]:
    """Two stages a rank, there and back (Qi and others, arXiv 2405.15362): a rank has the first and the last stages, so backward passes begin early."""
    there, back = rank, 2 * ranks - 1 - rank
    enough = max(2 * ranks - 1, count)  # the shape is that of so many; those that are not there are left out
    actions: list[Action] = []
    done: dict[tuple[int, Kind], int] = {}

    def take(stage: int, *kinds: Kind) -> None:
        for kind in kinds:
            i = done.get((stage, kind), 0)
            done[stage, kind] = i + 1
            if i < count:
                actions.append(Action(stage, kind, i))

    for _ in range(2 * (ranks - rank) - 1):
        take(there, F)
    for _ in range(rank):
        take(back, F)
        take(there, F)
    for _ in range(ranks - rank):
        take(back, F, I, W)
    while done[back, F] < done[there, F] or done[there, F] < enough:
        if done[there, F] < enough:
            take(there, F)
        take(there, I, W)
        take(back, F, I, W)
    for _ in range(rank):
        take(there, I)
        take(back, I)
    for _ in range(ranks - rank):
        take(there, I, W)
    for stage in (back, there):
        while done.get((stage, W), 0) < done[stage, I]:
            take(stage, W)
    return actions


def dual_pipe_v(rank: int, ranks: int, count: int) -> list[Action]:
    """Two stages a rank, there and back (DeepSeek-AI, arXiv 2412.19437, with one copy of the parameters): in the main part a forward pass of one
    stage and the backward pass of the other follow each other. At both ends parameters' gradients come later than the inputs'.
    """
    there, back = rank, 2 * ranks - 1 - rank
    after = ranks - 1 - rank
    actions: list[Action] = []
    done: dict[tuple[int, Kind], int] = {}
    waiting: list[Action] = []  # parameters' gradients that are to be made

    def take(stage: int, kind: Kind) -> None:
        counted = F if kind is F else B  # a backward pass is the next one, whole or in parts
        i = done.get((stage, counted), 0)
        done[stage, counted] = i + 1
        actions.append(Action(stage, kind, i))
        if kind is I:
            waiting.append(Action(stage, W, i))

    def weights() -> None:
        if waiting:
            actions.append(waiting.pop(0))

    for _ in range(2 * after):
        take(there, F)
    for _ in range(rank + 1):
        take(there, F)
        take(back, F)
    for _ in range(after):
        take(back, I)
        weights()
        take(back, F)
    for _ in range(count - 2 * ranks + rank + 1):
        take(there, F)
        take(back, B)
        take(back, F)
        take(there, B)
    for _ in range(after):
        take(back, B)
        take(back, F)
        take(there, B)
    half = (rank + 1) // 2
    for i in range(rank + 1):
        # From the middle on in parts; of an even rank the middle one's first pass is still whole.
        take(back, I if i > half or (i == half and rank % 2) else B)
        take(there, I if i >= half else B)
    for _ in range(after):
        weights()
        take(there, I)
    for _ in range(rank + 1):
        weights()
    return actions
