"""Stores of keys and values by which processes find each other: what all of them do, HashStore (threads of one process), PrefixStore."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flambeau.distributed.errors import DistStoreError, QueueEmptyError

DEFAULT_TIMEOUT = timedelta(seconds=300)


def as_bytes(value: Any, where: str) -> bytes:
    """A value of a store: text as UTF-8, or bytes. TypeError for anything else."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{where}: the value must be a str or bytes, got {type(value).__name__}; convert it first with str()")


def seconds(timeout: Any) -> float:
    """A timeout (timedelta, or a number of seconds) in seconds."""
    return float(timeout.total_seconds()) if isinstance(timeout, timedelta) else float(timeout)


def timed_out(limit: float, keys: Sequence[str]) -> DistStoreError:
    """What a store raises when keys have not come in time."""
    return DistStoreError(f"wait timeout after {round(limit * 1000)}ms, keys: {', '.join('/' + key for key in keys)}")


class Store:
    """What every store does. A value is bytes; `get` and `wait` wait for keys that are not there, at most `timeout`, then raise DistStoreError.

    A subclass says how one request is done (`_do`); requests are tuples of an operation's name, a key and bytes.
    """

    def __init__(self) -> None:
        self._timeout = DEFAULT_TIMEOUT

    def _do(self, operation: str, *fields: bytes) -> list[bytes]:
        raise NotImplementedError(
            f"Not implemented. {type(self).__name__}: a Store of one's own must override set, get, add, wait, check, delete_key and their kin"
        )

    def _key(self, key: str) -> bytes:
        if not isinstance(key, str):
            raise TypeError(f"{type(self).__name__}: a key must be a str, got {type(key).__name__}")
        return key.encode()

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Change how long `get` and `wait` wait."""
        self._timeout = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)

    def set(self, key: str, value: Any) -> None:
        """Give a key its value."""
        self._do("set", self._key(key), as_bytes(value, "set"))

    def get(self, key: str) -> bytes:
        """The value of a key, which is waited for."""
        self.wait([key])
        return self._do("get", self._key(key))[0]

    def add(self, key: str, amount: int) -> int:
        """Add to a number, which is 0 where there is no key; the sum. DistStoreError where the value is no number."""
        return int(self._do("add", self._key(key), str(int(amount)).encode())[0])

    def append(self, key: str, value: Any) -> None:
        """Put bytes behind a key's value."""
        self._do("append", self._key(key), as_bytes(value, "append"))

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        """Give a key the desired value if its value is the expected one (or it is not there and that is empty). The value it has then; of a key that is
        not there the expected one."""
        fields = as_bytes(expected_value, "compare_set"), as_bytes(desired_value, "compare_set")
        return self._do("compare_set", self._key(key), *fields)[0]

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys are there."""
        return self._do("check", *map(self._key, keys))[0] == b"1"

    def delete_key(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return self._do("delete", self._key(key))[0] == b"1"

    def num_keys(self) -> int:
        """How many keys there are."""
        return int(self._do("count")[0])

    def list_keys(self) -> list[str]:
        """The keys."""
        return [key.decode() for key in self._do("list")]

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        """Give several keys their values. DistStoreError where their numbers differ."""
        if len(keys) != len(values):
            raise DistStoreError(f"multiSet keys and values vectors must be of same size, got {len(keys)} keys and {len(values)} values")
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, which are waited for: two requests, however many keys there are."""
        if type(self)._do is Store._do:  # a store of one's own
            return [self.get(key) for key in keys]
        self.wait(keys)
        return self._do("get", *map(self._key, keys))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all of these keys are there. DistStoreError when the time is over."""
        limit = seconds(self._timeout if timeout is None else timeout)
        if self._do("wait", str(limit).encode(), *map(self._key, keys))[0] != b"1":
            raise timed_out(limit, keys)

    def queue_push(self, key: str, value: Any) -> None:
        """Put a value at the end of a queue."""
        self._do("push", self._key(key), as_bytes(value, "queue_push"))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Take the first value of a queue; with `block` wait for one. QueueEmptyError, or DistStoreError when the time is over."""
        limit = seconds(self._timeout) if block else 0.0
        found = self._do("pop", self._key(key), str(limit).encode())
        if not found:
            raise timed_out(limit, [key]) if block else QueueEmptyError("queue is empty")
        return found[0]

    def queue_len(self, key: str) -> int:
        """How many values a queue has."""
        return int(self._do("length", self._key(key))[0])

    def has_extended_api(self) -> bool:
        """Whether `append`, `multi_get` and `multi_set` are there: a store of one's own may leave them out."""
        own = type(self)
        return own._do is not Store._do or (own.append is not Store.append and own.multi_get is not Store.multi_get and own.multi_set is not Store.multi_set)

    def clone(self) -> Store:
        """A store over the same keys that another thread can use beside this one: the same object, which any thread can use."""
        return self


def combined(expected: bytes, desired: bytes, present: bytes | None) -> tuple[bytes, bool]:
    """What compare_set answers, and whether the desired value is set."""
    if present is None:
        return (expected, False) if expected else (desired, True)
    return (desired, True) if present == expected else (present, False)


def added(present: bytes | None, amount: bytes, key: bytes) -> bytes:
    """The sum that `add` sets."""
    try:
        return str(int(present or b"0") + int(amount)).encode()
    except ValueError:
        raise DistStoreError(f"add: the value of key {key.decode()!r} is no number: {present!r}") from None


@dataclass(eq=False)
class _Waiter:
    """Who waits for keys: which have not come, and how to wake him."""

    missing: set[bytes]
    woken: threading.Condition


class Table:
    """Keys and values in this process, for several threads: what a HashStore and the server of TCPStores hold."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}
        self._lock = threading.Lock()
        self._pushed = threading.Condition(self._lock)
        self._waiting: dict[bytes, list[_Waiter]] = {}  # by the keys that have not come; who waits is woken when all of them have

    def do(self, operation: str, *fields: bytes) -> list[bytes]:
        """One request. DistStoreError where it cannot be done."""
        with self._lock:
            return getattr(self, "_" + operation)(*fields)  # type: ignore[no-any-return]

    def _put(self, key: bytes, value: bytes) -> None:
        self.values[key] = value
        for waiter in self._waiting.pop(key, ()):
            waiter.missing.discard(key)
            if not waiter.missing:
                waiter.woken.notify()

    def _set(self, key: bytes, value: bytes) -> list[bytes]:
        self._put(key, value)
        return []

    def _get(self, *keys: bytes) -> list[bytes]:
        for key in keys:
            if key not in self.values:
                raise DistStoreError(f"key {key.decode()!r} was deleted while its value was asked for")
        return [self.values[key] for key in keys]

    def _add(self, key: bytes, amount: bytes) -> list[bytes]:
        self._put(key, added(self.values.get(key), amount, key))
        return [self.values[key]]

    def _append(self, key: bytes, value: bytes) -> list[bytes]:
        self._put(key, self.values.get(key, b"") + value)
        return []

    def _compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        answer, sets = combined(expected, desired, self.values.get(key))
        if sets:
            self._put(key, desired)
        return [answer]

    def _check(self, *keys: bytes) -> list[bytes]:
        return [b"1" if all(key in self.values for key in keys) else b"0"]

    def _delete(self, key: bytes) -> list[bytes]:
        return [b"0" if self.values.pop(key, None) is None else b"1"]

    def _count(self) -> list[bytes]:
        return [str(len(self.values)).encode()]

    def _list(self) -> list[bytes]:
        return list(self.values)

    def _wait(self, limit: bytes, *keys: bytes) -> list[bytes]:
        waiter = _Waiter({key for key in keys if key not in self.values}, threading.Condition(self._lock))
        for key in waiter.missing:
            self._waiting.setdefault(key, []).append(waiter)
        waiter.woken.wait_for(lambda: not waiter.missing, float(limit))
        for key in waiter.missing:  # the time is over
            others = [other for other in self._waiting.pop(key) if other is not waiter]
            if others:
                self._waiting[key] = others
        return [b"0" if waiter.missing else b"1"]

    def _push(self, key: bytes, value: bytes) -> list[bytes]:
        self.queues.setdefault(key, deque()).append(value)
        self._pushed.notify_all()
        return []

    def _pop(self, key: bytes, limit: bytes) -> list[bytes]:
        self._pushed.wait_for(lambda: bool(self.queues.get(key)), float(limit))
        waiting = self.queues.get(key)
        if not waiting:
            return []
        first = waiting.popleft()
        if not waiting:
            del self.queues[key]
        return [first]

    def _length(self, key: bytes) -> list[bytes]:
        return [str(len(self.queues.get(key, ()))).encode()]


class HashStore(Store):
    """A store for threads of one process."""

    def __init__(self) -> None:
        super().__init__()
        self._table = Table()

    def _do(self, operation: str, *fields: bytes) -> list[bytes]:
        return self._table.do(operation, *fields)


class PrefixStore(Store):
    """The keys of another store that begin with `prefix/`, without that."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        if not isinstance(store, Store):
            raise ValueError(f"PrefixStore: the underlying store must be a Store, got {type(store).__name__}")
        self.prefix = prefix
        self.underlying_store = store

    @property
    def _underlying_non_prefix_store(self) -> Store:
        store: Store = self
        while isinstance(store, PrefixStore):
            store = store.underlying_store
        return store

    @property
    def timeout(self) -> timedelta:
        return self.underlying_store.timeout

    def set_timeout(self, timeout: timedelta) -> None:
        self.underlying_store.set_timeout(timeout)

    def _name(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(f"PrefixStore: a key must be a str, got {type(key).__name__}")
        return f"{self.prefix}/{key}"

    def set(self, key: str, value: Any) -> None:
        self.underlying_store.set(self._name(key), value)

    def get(self, key: str) -> bytes:
        return self.underlying_store.get(self._name(key))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return self.underlying_store.multi_get([self._name(key) for key in keys])

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(self._name(key), amount)

    def has_extended_api(self) -> bool:
        return self.underlying_store.has_extended_api()

    def append(self, key: str, value: Any) -> None:
        given, name = as_bytes(value, "append"), self._name(key)
        if self.has_extended_api():
            self.underlying_store.append(name, given)
            return
        before = b""
        while (now := self.underlying_store.compare_set(name, before, before + given)) != before + given:  # another one was faster
            before = now

    def multi_set(self, keys: Sequence[str], values: Sequence[Any]) -> None:
        self.underlying_store.multi_set([self._name(key) for key in keys], values)

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        return self.underlying_store.compare_set(self._name(key), expected_value, desired_value)

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._name(key) for key in keys])

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._name(key))

    def num_keys(self) -> int:
        """How many keys the other store has, those without the prefix among them (as in PyTorch)."""
        return self.underlying_store.num_keys()

    def list_keys(self) -> list[str]:
        start = self.prefix + "/"
        return [key[len(start) :] for key in self.underlying_store.list_keys() if key.startswith(start)]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self.underlying_store.wait([self._name(key) for key in keys], timeout)

    def queue_push(self, key: str, value: Any) -> None:
        self.underlying_store.queue_push(self._name(key), value)

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        return self.underlying_store.queue_pop(self._name(key), block)

    def queue_len(self, key: str) -> int:
        return self.underlying_store.queue_len(self._name(key))

    def clone(self) -> Store:
        return PrefixStore(self.prefix, self.underlying_store.clone())


def exchanged(store: Store, name: str, rank: int, size: int, value: str) -> list[str]:
    """What every rank has given, by rank; none has it before all have come. The first rank collects it and hands it out as one value, so that the store has
    a few requests a rank to answer. DistStoreError when the time is over, with the keys of those that have not come."""
    keys = [f"{name}/{r}" for r in range(size)]
    store.set(keys[rank], value)
    if rank == 0:
        found = [part.decode() for part in store.multi_get(keys)]
        store.set(f"{name}/all", "\0".join(found))
        return found
    try:
        return store.get(f"{name}/all").decode().split("\0")
    except DistStoreError:
        missing = [key for key in keys if not store.check([key])]
        raise timed_out(seconds(store.timeout), missing or [f"{name}/all"]) from None


def wait_for_count(store: Store, key: str, count: int, limit: float) -> int:
    """Wait until the number under a key is at least `count`, at most `limit` seconds; the number."""
    end, pause = time.monotonic() + limit, 0.0005
    while (now := store.add(key, 0)) < count and time.monotonic() < end:
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return now
