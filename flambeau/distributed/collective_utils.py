"""torch.distributed.collective_utils: values of functions for all ranks, with the failure of one told to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flambeau.distributed.group import ProcessGroup, get_world_size
from flambeau.distributed.objects import all_gather_object, broadcast_object_list


@dataclass
class SyncPayload:
    """What a rank has made: a value, or the exception of a failure."""

    stage_name: str | None
    success: bool
    payload: Any
    exception: Exception | None = None


def _made(data_or_fn: Any, stage_name: str | None, success: bool = True) -> SyncPayload:
    if not callable(data_or_fn):
        return SyncPayload(stage_name, success, data_or_fn)
    try:
        return SyncPayload(stage_name, success, data_or_fn())
    except Exception as error:
        return SyncPayload(stage_name, False, None, error)


def broadcast(
    data_or_fn: Any | Callable[[], Any], *, success: bool = True, stage_name: str | None = None, rank: int = 0, pg: ProcessGroup | None = None
) -> Any:  # fmt: skip
    """The value of one rank, or of the function that only this rank calls, on all. RuntimeError on all where it fails, or where `success` is False there.

    Without `pg` there is this process alone.
    """
    if not success and data_or_fn is not None:
        raise AssertionError("Data or Function is expected to be None if not successful")
    own = rank == 0 if pg is None else pg.rank() == rank
    found = _made(data_or_fn, stage_name, success) if own else SyncPayload(stage_name, success, None)
    if pg is not None:
        handed: list[Any] = [found]
        broadcast_object_list(handed, group=pg, group_src=rank)
        found = handed[0]
    if not found.success:
        stage = "" if stage_name is None else f": stage {found.stage_name}"
        what = "" if found.exception is None else f": exception {found.exception}"
        raise RuntimeError(f"Rank {rank} failed{stage}{what}") from found.exception
    return found.payload


def all_gather(data_or_fn: Any | Callable[[], Any], stage_name: str | None = None, pg: ProcessGroup | None = None) -> list[Any]:
    """The values of all ranks, or of the function that each calls. RuntimeError on all where one fails. Without `pg` there is this process alone."""
    own = _made(data_or_fn, stage_name)
    if pg is None:
        if not own.success:
            raise RuntimeError(f"all_gather failed with exception {own.exception}") from own.exception
        return [own.payload]
    each: list[Any] = [None] * get_world_size(pg)
    all_gather_object_enforce_type(pg, each, own)
    apart = [f"Unexpected stage name received from rank {r}: {p.stage_name} " for r, p in enumerate(each) if p.stage_name != each[0].stage_name]
    failures = [(r, p.exception) for r, p in enumerate(each) if p.stage_name == each[0].stage_name and p.exception is not None]
    if failures:
        raise RuntimeError("".join(apart), failures) from failures[0][1]
    return [p.payload for p in each if p.stage_name == each[0].stage_name]


def _same_type(x: Any, y: Any) -> bool:
    return type(x) is type(y)


def all_gather_object_enforce_type(pg: ProcessGroup, object_list: list[Any], obj: Any, type_checker: Callable[[Any, Any], bool] = _same_type) -> None:
    """all_gather_object, and TypeError where neighbours in the list are not of one type."""
    all_gather_object(object_list, obj, group=pg)
    for i in range(1, len(object_list)):
        if not type_checker(object_list[i - 1], object_list[i]):
            raise TypeError(
                f"Object type at index {i} is {type(object_list[i])}, while object type at index {i - 1} is {type(object_list[i - 1])}: all ranks must give one"
            )


__all__ = ["SyncPayload", "all_gather", "all_gather_object_enforce_type", "broadcast"]
