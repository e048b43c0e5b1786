"""Meeting by a store: what every process gives, to all; and a barrier, which says who is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from flambeau.distributed.errors import DistStoreError

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]

_COUNT, _LAST, _TRACE, _GATE, _IGNORED = "/num_members", "/last_member", "/TRACE", "/TRACING_GATE", "<val_ignored>"


@contextmanager
def store_timeout(store: Any, timeout: float) -> Iterator[None]:
    """A block in which the store waits so many seconds."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    yield
    store.set_timeout(before)


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """What all ranks have set under `prefix` and their number. Rank 0 waits until all have read it: it may be the store's server."""
    found: list[bytes] = store.multi_get([f"{prefix}{i}" for i in range(world_size)])
    last = _barrier_nonblocking(store, world_size, f"{prefix}/finished")
    if rank == 0:
        store.wait([last])
    return found


def synchronize(store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300) -> list[bytes]:
    """What every rank gives, by rank."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def _barrier_nonblocking(store: Any, world_size: int, key_prefix: str) -> str:
    """Say that this process is here; the key that is set once all are."""
    if store.add(key_prefix + _COUNT, 1) == world_size:
        store.set(key_prefix + _LAST, _IGNORED)
    return key_prefix + _LAST


def _missing(store: Any, world_size: int, key_prefix: str, rank: int, name: Callable[[int], str], patience: float) -> Iterable[str]:
    """By rank 0: who has not said within `patience` seconds that it waits, too; the others wait until that is known."""
    store.set(f"{key_prefix}{rank}{_TRACE}", _IGNORED)
    gate = key_prefix + _GATE
    if rank:
        try:
            store.wait([gate], timedelta(seconds=world_size * patience))
        except DistStoreError:
            return [f"<missing rank info: rank 0 ({name(0)}) may be missing>"]
        return [f"[<check rank 0 ({name(0)}) for missing rank info>]"]
    missing = []
    for other in range(1, world_size):
        try:
            store.wait([f"{key_prefix}{other}{_TRACE}"], timedelta(seconds=patience))
        except DistStoreError:
            missing.append(name(other))
    store.set(gate, _IGNORED)
    return missing


def barrier(
    store: Any, world_size: int, key_prefix: str, barrier_timeout: float = 300, rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None, trace_timeout: float = 10,
) -> None:  # fmt: skip
    """Wait until all processes have come. DistStoreError when the time is over; with a rank, it says who has not come."""
    if rank is None and rank_tracing_decoder is not None:
        raise ValueError("barrier: rank_tracing_decoder needs the rank")
    with store_timeout(store, barrier_timeout):
        last = _barrier_nonblocking(store, world_size, key_prefix)
        try:
            store.wait([last])
        except DistStoreError as error:
            if rank is None:
                raise
            missing = _missing(store, world_size, key_prefix, rank, rank_tracing_decoder or str, trace_timeout)
            raise DistStoreError(
                f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} (world_size={world_size}, missing_ranks="
                f"{missing[0] if rank else '[' + ', '.join(missing) + ']'}, timeout={barrier_timeout})"  # type: ignore[index]
            ) from error
