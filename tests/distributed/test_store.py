"""Stores: each kind does what PyTorch's does, value for value and error for error; several processes and threads see the same."""

from __future__ import annotations

import multiprocessing
import time
from datetime import timedelta
from typing import Any

import pytest

from flambeau import distributed as dist
from flambeau.distributed import DistNetworkError, DistStoreError, FileStore, HashStore, PrefixStore, QueueEmptyError, TCPStore
from tests.threads import Thread, join

SHORT = timedelta(milliseconds=150)


def kinds(namespace: Any, folder: Any) -> dict[str, Any]:
    """A store of each kind of a namespace (ours or PyTorch's)."""
    return {
        "tcp": namespace.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=2)),
        "hash": namespace.HashStore(),
        "file": namespace.FileStore(str(folder / f"{namespace.__name__}-store"), 2),
        "prefix": namespace.PrefixStore("a", namespace.PrefixStore("b", namespace.HashStore())),
    }


SCRIPT = [
    ("set", "a", "b"), ("get", "a"), ("set", "z", b"\x00\xff"), ("get", "z"), ("check", ["a"]), ("check", ["a", "q"]), ("check", []),
    ("add", "n", 2), ("add", "n", -5), ("get", "n"), ("compare_set", "c", "x", "y"), ("check", ["c"]), ("compare_set", "c", "", "y"),
    ("compare_set", "c", "x", "z"), ("compare_set", "c", "y", "z"), ("get", "c"), ("append", "e", "1"), ("append", "e", "2"), ("get", "e"),
    ("multi_set", ["m", "k"], ["1", "2"]), ("multi_get", ["k", "m"]), ("num_keys",), ("delete_key", "c"), ("check", ["c"]), ("num_keys",),
    ("wait", ["a"], SHORT), ("get", "missing"), ("wait", ["missing", "a"], SHORT), ("set", "a", 3), ("set", 3, "a"),
]  # fmt: skip


def outcome(store: Any, call: tuple[Any, ...]) -> Any:
    """The answer of a call, or the built-in exception type that it raises."""
    try:
        return getattr(store, call[0])(*call[1:])
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


@pytest.mark.parametrize("kind", ["tcp", "hash", "file", "prefix"])
def test_as_pytorch(kind, tmp_path):
    torch = pytest.importorskip("torch")
    import flambeau.distributed as ours

    mine, theirs = kinds(ours, tmp_path)[kind], kinds(torch.distributed, tmp_path)[kind]
    for store in (mine, theirs):
        store.set_timeout(SHORT)
    for call in SCRIPT:
        assert outcome(mine, call) == outcome(theirs, call), call


@pytest.mark.parametrize("kind", ["tcp", "hash", "file", "prefix"])
def test_queues_and_errors(kind, tmp_path):
    import flambeau.distributed as ours

    store = kinds(ours, tmp_path)[kind]
    store.set_timeout(SHORT)
    store.queue_push("q", "1")
    store.queue_push("q", "2")
    assert (store.queue_len("q"), store.queue_pop("q"), store.queue_pop("q", False)) == (2, b"1", b"2")
    with pytest.raises(QueueEmptyError):
        store.queue_pop("q", False)
    with pytest.raises(DistStoreError, match=r"wait timeout after 150ms, keys: .*q"):
        store.queue_pop("q")
    store.set("text", "abc")
    with pytest.raises(DistStoreError, match=r"text.*no number"):
        store.add("text", 1)
    with pytest.raises(DistStoreError, match="2 keys and 1 values"):
        store.multi_set(["x", "y"], ["1"])
    assert store.timeout == SHORT


@pytest.mark.parametrize("kind", ["tcp", "hash", "file"])
def test_waits_for_another_thread(kind, tmp_path):
    import flambeau.distributed as ours

    store = kinds(ours, tmp_path)[kind]

    def later() -> None:
        time.sleep(0.1)
        store.set("late", "1")

    thread = Thread(target=later)
    thread.start()
    assert store.get("late") == b"1"
    join(thread)


def count(kind: str, where: Any, times: int) -> None:
    store = TCPStore("127.0.0.1", where, None, False, timedelta(seconds=20)) if kind == "tcp" else FileStore(where)
    for _ in range(times):
        store.add("sum", 1)


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_processes_count_together(kind, tmp_path):
    server = TCPStore("127.0.0.1", 0, None, True) if kind == "tcp" else FileStore(str(tmp_path / "shared"))
    where = server.port if kind == "tcp" else server.path
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=count, args=(kind, where, 200)) for _ in range(2)]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()
    assert server.add("sum", 0) == 400


def test_clients_and_network_errors():
    server = TCPStore("127.0.0.1", 0, 1, True)
    client = TCPStore("127.0.0.1", server.port, 1, False)
    client.set("x", b"1" * 3_000_000)
    assert server.get("x") == client.get("x") == b"1" * 3_000_000
    assert PrefixStore("p", client).num_keys() == server.num_keys()
    with pytest.raises(DistNetworkError, match=f"port: {server.port}"):
        TCPStore("127.0.0.1", server.port, 1, True)
    with pytest.raises(DistStoreError, match="1/2 clients joined"):
        TCPStore("127.0.0.1", 0, 2, True, timedelta(milliseconds=200))
    port = server.port
    server.close()
    with pytest.raises(DistNetworkError, match="has gone"):
        client.get("x")
    with pytest.raises(DistNetworkError, match=f"127.0.0.1, {port}"):
        TCPStore("127.0.0.1", port, 1, False, timedelta(milliseconds=200))
    assert isinstance(HashStore().clone(), HashStore)


def test_the_last_object_removes_a_file(tmp_path):
    path = tmp_path / "store"
    first, second = dist.FileStore(str(path), 1), dist.FileStore(str(path), 1)
    first.set("a", "1")
    del first
    assert second.get("a") == b"1" and path.exists()
    del second
    assert not path.exists()


def test_rendezvous_says_at_once_what_is_wrong():
    with pytest.raises(RuntimeError, match=r"^No rendezvous handler for invalid"):
        dist.rendezvous("invalid://")
    with pytest.raises(AssertionError, match="has node-specific arguments"):
        dist.rendezvous("file://foo?rank=12&world_size=16", 12, 16)
    with pytest.raises(RuntimeError, match="must be a string"):
        dist.rendezvous(3)


@pytest.mark.parametrize("kind", ["tcp", "hash", "file", "prefix"])
def test_exchanged(kind, tmp_path):
    """Every rank gets what all have given, when all have come; who has not come is named."""
    import flambeau.distributed as ours
    from flambeau.distributed.store import exchanged

    store = kinds(ours, tmp_path)[kind]
    found: dict[int, list[str]] = {}

    def rank(r: int) -> None:
        found[r] = exchanged(store.clone(), "names", r, 5, f"rank {r}")

    threads = [Thread(target=rank, args=(r,)) for r in (3, 1, 4, 2, 0)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert found == {r: [f"rank {r}" for r in range(5)] for r in range(5)}
    store.set_timeout(SHORT)
    store.set("late/2", "here")
    for r in (1, 0):
        with pytest.raises(DistStoreError, match="late/3"):
            exchanged(store, "late", r, 4, "")


def test_who_waits_is_woken_by_the_last_of_his_keys():
    """Several waiters for overlapping keys, some of whom give up; nothing of theirs stays."""
    store = HashStore()
    came: list[str] = []

    def wait(name: str, keys: list[str], limit: float) -> None:
        try:
            store.wait(keys, timedelta(seconds=limit))
            came.append(name)
        except DistStoreError:
            came.append(f"{name} gave up")

    threads = [Thread(target=wait, args=a) for a in (("ab", ["a", "b"], 20), ("b", ["b"], 20), ("bc", ["b", "c"], 0.05), ("a", ["a"], 20))]
    for thread in threads:
        thread.start()
    join(threads[2])
    store.set("a", "1")
    join(threads[3])
    store.set("b", "1")
    join(threads[0])
    join(threads[1])
    assert came[:2] == ["bc gave up", "a"] and sorted(came[2:]) == ["ab", "b"]
    assert not store._table._waiting


class Own(dist.Store):
    """A store of one's own, without what may be left out."""

    def __init__(self):
        super().__init__()
        self.inner = HashStore()

    def set(self, key, value):
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def compare_set(self, key, expected_value, desired_value):
        return self.inner.compare_set(key, expected_value, desired_value)


def test_stores_of_ones_own():
    """Behind a PrefixStore what they leave out is made of what they have."""
    own = Own()
    store = PrefixStore("p", own)
    assert not own.has_extended_api() and not store.has_extended_api() and HashStore().has_extended_api()
    store.append("foo", "po")
    store.append("foo", b"tato")
    store.multi_set(["a", "b"], ["c", b"d"])
    assert store.multi_get(["a", "b", "foo"]) == [b"c", b"d", b"potato"]
    with pytest.raises(RuntimeError, match="Not implemented"):
        own.append("foo", "bar")
    with pytest.raises(ValueError, match="must be a Store"):
        PrefixStore("p", None)
    with pytest.raises(ValueError, match="world size cannot be 0"):
        TCPStore("localhost", 1, 0, False)


def test_collectives_by_a_store():
    """Each rank a thread; who has not come is named."""
    store, found = HashStore(), {}

    def rank_of(rank):
        each = dist._StoreCollectives(store, rank, 3)
        each.barrier("start", timedelta(seconds=20))
        gathered = each.gather_recv("g", str(rank)) if rank == 1 else each.gather_send("g", str(rank))
        handed = each.scatter_send("s", ["a", "b", "c"]) if rank == 0 else each.scatter_recv("s")
        one = each.broadcast_send("b", "x") if rank == 2 else each.broadcast_recv("b")
        found[rank] = (each.all_sum("sum", rank + 1), each.all_gather("all", str(rank)), gathered, handed, one)

    threads = [Thread(target=rank_of, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        join(thread)
    every = [b"0", b"1", b"2"]
    assert found == {0: (6, every, None, b"a", b"x"), 1: (6, every, every, b"b", b"x"), 2: (6, every, None, b"c", None)}
    alone = dist._StoreCollectives(HashStore(), 1, 3)
    for what, call in (("barrier", alone.barrier), ("barrier", alone.all_sum), ("all_gather", alone.all_gather), ("gather", alone.gather_recv)):
        with pytest.raises(DistStoreError, match=f"{what} failed -- missing ranks: 0, 2"):
            call(f"{what}{call}", *([] if call == alone.barrier else [3] if call == alone.all_sum else ["x"]), timedelta(milliseconds=5))
    alone.broadcast_send("once", "x")
    with pytest.raises(RuntimeError, match="Key once has already been used"):
        alone.broadcast_recv("once")
