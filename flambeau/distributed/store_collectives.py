"""Collectives of small values by a store alone, for what happens before or beside groups: torch.distributed._StoreCollectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from flambeau.distributed.errors import DistStoreError
from flambeau.distributed.store import Store


class _ControlCollectives(ABC):
    """What such collectives do. A key names one, once."""

    @abstractmethod
    def barrier(self, key: str, timeout: timedelta = ..., blocking: bool = True) -> None:
        """Wait until all ranks are there; with `blocking` False only say that this one is."""

    @abstractmethod
    def all_sum(self, key: str, data: int, timeout: timedelta = ...) -> int:
        """The sum of the ranks' numbers."""


_LIMIT = timedelta(minutes=5)


class _StoreCollectives(_ControlCollectives):
    """Collectives of `world_size` ranks by a store."""

    def __init__(self, store: Store, rank: int, world_size: int) -> None:
        self._store, self._rank, self._size = store, rank, world_size
        self._used: set[str] = set()

    def _once(self, key: str) -> str:
        if key in self._used:
            raise RuntimeError(f"Key {key} has already been used: each collective needs a key of its own")
        self._used.add(key)
        return key

    def _wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        try:
            self._store.wait(keys, timeout)
        except DistStoreError as error:
            raise DistStoreError(f"Wait timeout: {error}") from None

    def _others(self, what: str, key: str, timeout: timedelta) -> list[bytes]:
        """What the ranks have given. DistStoreError with those that have not."""
        keys = [f"{key}/{rank}" for rank in range(self._size)]
        try:
            self._store.wait(keys, timeout)
        except DistStoreError:
            missing = [str(rank) for rank, k in enumerate(keys) if not self._store.check([k])]
            raise DistStoreError(f"{what} failed -- missing ranks: {', '.join(missing)}") from None
        return self._store.multi_get(keys)

    def barrier(self, key: str, timeout: timedelta = _LIMIT, blocking: bool = True) -> None:
        self._store.set(f"{self._once(key)}/{self._rank}", "")
        if blocking:
            self._others("barrier", key, timeout)

    def broadcast_send(self, key: str, data: Any, timeout: timedelta = _LIMIT) -> None:
        """Give the others a value."""
        self._store.set(self._once(key), data)

    def broadcast_recv(self, key: str, timeout: timedelta = _LIMIT) -> bytes:
        """The value that one rank gives."""
        self._wait([self._once(key)], timeout)
        return self._store.get(key)

    def gather_send(self, key: str, data: Any, timeout: timedelta = _LIMIT) -> None:
        """Give a value to the one rank that collects them."""
        self._store.set(f"{self._once(key)}/{self._rank}", data)

    def gather_recv(self, key: str, data: Any, timeout: timedelta = _LIMIT) -> list[bytes]:
        """The values of all ranks."""
        self._store.set(f"{self._once(key)}/{self._rank}", data)
        return self._others("gather", key, timeout)

    def scatter_send(self, key: str, data: Sequence[Any], timeout: timedelta = _LIMIT) -> bytes:
        """Give each rank its value of a list; this rank's."""
        self._once(key)
        if len(data) != self._size:
            raise ValueError(f"scatter_send: {self._size} values are wanted, one for each rank, got {len(data)}")
        for rank, value in enumerate(data):
            self._store.set(f"{key}/{rank}", value)
        return self._store.get(f"{key}/{self._rank}")

    def scatter_recv(self, key: str, timeout: timedelta = _LIMIT) -> bytes:
        """This rank's value of the list that one rank has."""
        own = f"{self._once(key)}/{self._rank}"
        self._wait([own], timeout)
        return self._store.get(own)

    def all_gather(self, key: str, data: Any, timeout: timedelta = _LIMIT) -> list[bytes]:
        """The values of all ranks, on all."""
        self._store.set(f"{self._once(key)}/{self._rank}", data)
        return self._others("all_gather", key, timeout)

    def all_sum(self, key: str, data: int, timeout: timedelta = _LIMIT) -> int:
        self._store.add(f"{self._once(key)}/sum", data)
        self._store.set(f"{key}/{self._rank}", "")
        self._others("barrier", key, timeout)
        return self._store.add(f"{key}/sum", 0)


STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"


def _store_based_barrier(
    rank: int, store: Store, group_name: str, rendezvous_count: int, timeout: timedelta, logging_interval: timedelta = timedelta(seconds=10)
) -> None:
    """Wait until so many processes have come, by a store; DistStoreError after the timeout."""
    key = f"{STORE_BASED_BARRIER_PREFIX}:{group_name}"
    if store.add(key, 1) == rendezvous_count:
        store.set(f"{key}:last_worker", "1")
    try:
        store.wait([f"{key}:last_worker"], timeout)
    except DistStoreError as error:
        raise DistStoreError(
            f"Timed out initializing process group in store based barrier on rank {rank}, for key: {key} (world_size={rendezvous_count}, "
            f"num_workers_joined={store.add(key, 0)}, timeout={timeout} error={error})"
        ) from None
