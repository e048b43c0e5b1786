"""torch.distributed.checkpoint._dedup_save_plans: what several processes have is written by one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flambeau.distributed.checkpoint.metadata import MetadataIndex
from flambeau.distributed.checkpoint.planner import SavePlan, WriteItem


def _once(all_plans: list[SavePlan], choose: Callable[[WriteItem, list[int]], int]) -> list[SavePlan]:
    """The plans, each item in that one of those which have it that is chosen."""
    holders: dict[MetadataIndex, list[int]] = {}
    items = {}
    for place, plan in enumerate(all_plans):
        for item in plan.items:
            holders.setdefault(item.index, []).append(place)
            items[item.index] = item
    owners = {index: choose(items[index], places) for index, places in holders.items()}
    return [replace(plan, items=[item for item in plan.items if owners[item.index] == place]) for place, plan in enumerate(all_plans)]


def dedup_save_plans(all_plans: list[SavePlan], save_to_lowest_rank: bool = False) -> list[SavePlan]:
    """Each item in the plan, of those which have it, that writes least so far (or in the first)."""
    load = [0] * len(all_plans)

    def choose(item: WriteItem, places: list[int]) -> int:
        place = places[0] if save_to_lowest_rank else min(places, key=lambda p: load[p])
        load[place] += item.tensor_storage_size() or 1
        return place

    return _once(all_plans, choose)


def dedup_tensors(all_plans: list[SavePlan]) -> list[SavePlan]:
    """Each item in the first plan that has it."""
    return _once(all_plans, lambda item, places: places[0])
