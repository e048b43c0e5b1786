"""Groups by ranks and a tag: which of several groups of the same ranks is meant. What functional collectives of PyTorch ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from flambeau.distributed.group import ProcessGroup, _groups, default_group, get_process_group_ranks, new_group

_tags: WeakKeyDictionary[ProcessGroup, str] = WeakKeyDictionary()  # of groups that were made with one


def _full(tag: str) -> str:
    return tag if not tag or tag.startswith(("ptd:", "user:")) else f"user:{tag}"


def _get_group_tag(pg: ProcessGroup) -> str:
    """The tag of a group; one that was made without has one of its own."""
    return _tags.get(pg, f"ptd:{pg.group_name}")


def _find_pg_by_ranks_and_tag(tag: str, ranks: Sequence[int]) -> ProcessGroup | None:
    """The first group of these ranks, in any order, with this tag; without one ("") the first that was made without a tag. None if there is none."""
    for found in _groups:
        if sorted(found.ranks) == sorted(ranks) and (_full(_get_group_tag(found)) == _full(tag) if tag else found not in _tags):
            return found
    return None


def _new_group_with_tag(
    ranks: Sequence[int] | None = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None, pg_tag: str | None = None,
    device_id: Any = None, group_desc: str | None = None,
) -> Any:  # fmt: skip
    """new_group; but one of these ranks with this tag that is there already is returned."""
    wanted = list(default_group().ranks if ranks is None else ranks)
    if pg_tag and (found := _find_pg_by_ranks_and_tag(pg_tag, wanted)) is not None:
        return found
    made = new_group(wanted, timeout, backend, pg_options, group_desc=group_desc, _name=f"{pg_tag}:{sorted(wanted)}" if pg_tag else None)
    if pg_tag and isinstance(made, ProcessGroup):
        _tags[made] = _full(pg_tag).removeprefix("user:")
    return made


def _find_or_create_pg_by_ranks_and_tag(tag: str, ranks: Sequence[int], stride: int) -> ProcessGroup:
    """The group of this tag that has this process, of `stride` neighbours in a list of ranks; ValueError where it is not there and there is no tag."""
    if len(ranks) % stride:
        raise ValueError(f"Ranks length ({len(ranks)}) must be divisible by stride ({stride})")
    rank = default_group().rank()
    own = next((sorted(ranks[i : i + stride]) for i in range(0, len(ranks), stride) if rank in ranks[i : i + stride]), None)
    if own is None:
        raise AssertionError(f"rankset doesn't include the current node: rank {rank}, ranks {list(ranks)}")
    if (found := _find_pg_by_ranks_and_tag(tag, own)) is not None:
        return found
    if not tag:
        raise ValueError("Cannot automatically create PG with empty tag")
    return _new_group_with_tag(own, pg_tag=tag)  # type: ignore[no-any-return]


def _expand_group(group: Any, tag: str = "") -> tuple[str, list[int], int]:
    """(tag, ranks, ranks of one group) of what functional collectives take: ranks, lists of ranks, a group, a mesh of one dim, (mesh, dim)."""
    if isinstance(group, (list, tuple)) and group and isinstance(group[0], (list, tuple)):
        sizes = {len(row) for row in group}
        if len(sizes) > 1:
            raise ValueError(f"group sizes must be identical found {sorted(sizes)}")
        return tag, [rank for row in group for rank in row], sizes.pop()
    if isinstance(group, tuple) and len(group) == 2 and hasattr(group[0], "get_group"):
        group = group[0].get_group(group[1])
    elif hasattr(group, "get_group"):
        if group.ndim != 1:
            raise AssertionError("Only 1D mesh is supported, pass in (DeviceMesh, int) together if mesh > 1D")
        group = group.get_group(0)
    if isinstance(group, ProcessGroup):
        ranks = get_process_group_ranks(group)
        return tag or _get_group_tag(group), ranks, len(ranks)
    if isinstance(group, (list, tuple)) and all(isinstance(rank, int) for rank in group):
        return tag, list(group), len(group)
    raise ValueError(f"Invalid type for group, must be one of List, Processgroup, DeviceMesh or (DeviceMesh, int); got {group!r}")
