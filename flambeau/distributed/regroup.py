"""Groups out of groups: split into several, and shrunk by ranks that are lost, whose others go on without a restart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from flambeau.distributed.group import BackendConfig, ProcessGroup, _begin, _groups, default_group, destroy_process_group, new_group
from flambeau.distributed.store import PrefixStore
from flambeau.trace.once import warn_here

SHRINK_DEFAULT = 0x00
SHRINK_ABORT = 0x01


def _check_split(split_ranks: Any, size: int) -> None:
    seen: dict[int, int] = {}
    for number, part in enumerate(split_ranks):
        if not part:
            raise ValueError("the split group cannot be empty")
        if len(part) > size:
            raise ValueError("the split group's size should be less or equal to the world_size set by init_process_group")
        if len(part) != len(set(part)):
            raise ValueError("the split group cannot have duplicate ranks")
        for rank in part:
            if not 0 <= rank < size:
                raise ValueError(f"split_group: split_ranks are ranks of the parent group, between 0 and {size - 1}; group {number} has {rank}")
            if seen.setdefault(rank, number) != number:
                raise ValueError(f"split_group: a rank can be in one of the groups only; {rank} is in groups {seen[rank]} and {number}")


def _chosen_backend(parent: ProcessGroup, backend: Any) -> str:
    """The parent's backend, or those of its devices that are asked for."""
    if backend is None:
        return str(parent._backend)
    there = BackendConfig(str(parent._backend)).get_device_backend_map()
    for device, wanted in BackendConfig(str(backend)).get_device_backend_map().items():
        if device not in there:
            raise ValueError(f"Requested backend for device '{device}' is not present in the parent process group (parent backends: {there})")
        if there[device] != wanted:
            raise ValueError(
                f"Backend mismatch for device '{device}': parent has '{there[device]}', requested '{wanted}'. Backend names must match exactly when "
                "filtering split_group backends."
            )
    return str(backend)


def split_group(
    parent_pg: ProcessGroup | None = None, split_ranks: list[list[int]] | None = None, timeout: timedelta | None = None, pg_options: Any = None,
    group_desc: str | None = None, backend: Any = None,
) -> ProcessGroup | None:  # fmt: skip
    """The group of `split_ranks` that has this rank, or None. Ranks are those in the parent, whose members all call this, with the same lists."""
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    whole = default_group()
    parent = parent_pg or whole
    if parent not in _groups:
        raise ValueError(f"Group {parent} is not registered")
    if timeout is not None and not isinstance(timeout, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    _check_split(split_ranks, parent.size())
    chosen = _chosen_backend(parent, backend)
    number, parent.splits = parent.splits, parent.splits + 1
    own = next((sorted(part) for part in split_ranks if parent.rank() in part), None)
    if own is None:
        return None
    name = f"{parent.group_name}:split:{number}:{own[0]}"
    desc = group_desc or f"{parent.group_desc}:split:{number}"
    made: ProcessGroup = new_group(
        [parent.ranks[rank] for rank in own], timeout or parent.timeout, chosen, pg_options, group_desc=desc, _name=name
    )  # fmt: skip
    return made


def _excluded(ranks: Any, group: ProcessGroup) -> set[int]:
    if not isinstance(ranks, list):
        raise TypeError(f"ranks_to_exclude must be a list, but got {type(ranks).__name__}. Example: [1, 3, 5] to exclude ranks 1, 3, and 5.")
    if not ranks:
        raise ValueError("ranks_to_exclude cannot be empty. To shrink a group, you must specify at least one rank to exclude. Example: [failed_rank_id]")
    size, found = group.size(), set()
    if size <= 1:
        raise ValueError(f"Cannot shrink a process group with size {size}. Group must have at least 2 ranks to support shrinking.")
    for i, rank in enumerate(ranks):
        if not isinstance(rank, int):
            raise TypeError(f"All elements in ranks_to_exclude must be integers. Element at index {i} is {type(rank).__name__}: {rank}")
        if not 0 <= rank < size:
            raise ValueError(f"Rank {rank} at index {i} is out of bounds for group size {size}. Valid ranks are in range [0, {size - 1}].")
        if rank in found:
            raise ValueError(f"Duplicate rank {rank} found in ranks_to_exclude at index {i}. Each rank can only be excluded once.")
        found.add(rank)
    if len(found) >= size:
        raise ValueError(f"Cannot exclude all {size} ranks from process group. At least one rank must remain. Excluding {len(found)} ranks.")
    if group.rank() in found:
        raise RuntimeError(
            f"Current rank {group.rank()} is in the exclusion list and should not call shrink_group(). Only non-excluded ranks should participate in the "
            "shrinking operation. Excluded ranks should terminate their processes instead."
        )
    return found


def shrink_group(ranks_to_exclude: list[int], group: ProcessGroup | None = None, shrink_flags: int = SHRINK_DEFAULT, pg_options: Any = None) -> ProcessGroup:
    """The group without these of its ranks, which all others call, after a failure, too. The old group is left.

    Where it is the group of all, the new one takes its place, with ranks numbered anew; all other groups are left, as their ranks have other numbers.
    The store by which the ranks had found each other must still be there.
    """
    if shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise ValueError(f"Invalid shrink_flags value: {shrink_flags}. Must be one of: SHRINK_DEFAULT ({SHRINK_DEFAULT}) or SHRINK_ABORT ({SHRINK_ABORT}).")
    whole = default_group()
    found = group or whole
    gone = _excluded(ranks_to_exclude, found)
    backend, timeout, stays = str(found._backend), found.timeout, [r for r in range(found.size()) if r not in gone]
    name = f"{found.group_name}-without-{'-'.join(map(str, sorted(gone)))}"
    if found is not whole:
        found.close()
        _groups.remove(found)
        made: ProcessGroup = new_group([found.ranks[r] for r in stays], timeout, backend, pg_options, group_desc=f"{found.group_name}:shrunk", _name=name)
        return made
    if len(_groups) > 1:
        left = [other.group_name for other in _groups if other is not whole]
        warn_here(f"Shrinking default group will destroy {len(left)} other process groups: {', '.join(left)}, as its ranks get other numbers.")
    rank = stays.index(found.rank())
    destroy_process_group()
    _begin(backend, len(stays), rank, PrefixStore(name, found.store), timeout, name, pg_options, "default:shrunken")
    return default_group()
