"""The buffer pool: alignment, reuse, limits, foreign memory, threads, running out of memory."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest

from flambeau.runtime import buffers, resources
from flambeau.statistics import counters
from tests import processes
from tests.threads import Thread, join

SIZES = [0, 1, 63, 64, 65, 1000, 4096, 1 << 20, (1 << 20) + 1, 3_000_000, 5 << 20, (64 << 20) + 12]


@pytest.mark.parametrize("nbytes", SIZES)
def test_buffers_are_aligned_writable_and_their_own(nbytes: int) -> None:
    held = [buffers.allocate(nbytes) for _ in range(3)]
    for number, b in enumerate(held):
        assert b.nbytes == nbytes and b.address % 64 == 0 and b.owner is None
        ctypes.memset(b.address, number, nbytes)
    for number, b in enumerate(held):
        if nbytes:
            view = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(b.address))
            assert (view == number).all()
    assert buffers.size_class(nbytes) >= nbytes


def test_classes_waste_little() -> None:
    rng = np.random.default_rng(0)
    for nbytes in [int(2**e) for e in rng.uniform(7, 38, 2000)]:
        size = buffers.size_class(nbytes)
        assert nbytes <= size <= (2 * nbytes if nbytes <= 1 << 20 else nbytes * 9 / 8 + 1)
        assert size % 64 == 0 and buffers.size_class(size) == size


@pytest.mark.parametrize("nbytes", SIZES)
def test_a_freed_block_is_used_again(nbytes: int) -> None:
    b = buffers.allocate(nbytes)
    address = b.address
    del b
    before = counters.bytes_from_pool, counters.bytes_from_system
    again = buffers.allocate(nbytes)
    assert again.address == address
    assert (counters.bytes_from_pool, counters.bytes_from_system) == (before[0] + nbytes, before[1])


def test_the_pool_can_be_emptied() -> None:
    del [buffers.allocate(n) for n in SIZES][:]
    kept = buffers.statistics()["kept_bytes"]
    assert kept >= sum(SIZES)
    assert buffers.empty_pool() == kept
    assert buffers.statistics()["kept_bytes"] == 0
    before = counters.bytes_from_system
    b = buffers.allocate(5000)
    assert counters.bytes_from_system == before + buffers.size_class(b.nbytes)


def test_kept_memory_stays_below_the_limit_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers.empty_pool()
    monkeypatch.setattr(buffers, "_KEEP_LIMIT", 64 << 20)
    for megabytes in range(2, 40):
        del [buffers.allocate(megabytes << 20) for _ in range(2)][:]
        assert buffers.statistics()["kept_bytes"] <= 64 << 20
    before = counters.bytes_from_system
    buffers.allocate(39 << 20)  # the newest is still there
    assert counters.bytes_from_system == before
    buffers.allocate(2 << 20)  # the oldest is not
    assert counters.bytes_from_system == before + (2 << 20)
    buffers.empty_pool()
    small = [buffers.allocate(1 << 20) for _ in range(100)]
    del small
    assert buffers.statistics()["kept_bytes"] <= 64 << 20


def test_arenas_of_different_sizes_share_one_block() -> None:
    """A process has one arena for each run at the same time: plans of growing and of falling sizes do not add up."""
    buffers.empty_pool()
    most = 0
    for megabytes in (3, 9, 30, 14, 2, 28, 31, 5):
        held = buffers.arena(megabytes << 20)
        assert held.nbytes == megabytes << 20 and held.address % 64 == 0
        ctypes.memset(held.address, 1, held.nbytes)
        most = max(most, buffers.size_class(megabytes << 20))
        del held
        assert buffers.statistics()["arena_bytes"] == most
    both = buffers.arena(20 << 20), buffers.arena(20 << 20)
    assert abs(both[0].address - both[1].address) >= 20 << 20
    del both
    assert buffers.statistics()["arena_bytes"] == most + (20 << 20)
    first = buffers.arena(1 << 20)  # small ones come from the classes of small blocks
    del first
    assert buffers.statistics()["arena_bytes"] == most + (20 << 20)
    kept = buffers.statistics()["kept_bytes"]
    assert buffers.empty_pool() == kept and buffers.statistics()["kept_bytes"] == buffers.statistics()["arena_bytes"] == 0


def test_arenas_count_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers.empty_pool()
    monkeypatch.setattr(buffers, "_KEEP_LIMIT", 64 << 20)
    del [buffers.arena(40 << 20)][:]
    del [buffers.allocate(20 << 20)][:]
    assert buffers.statistics()["kept_bytes"] == 60 << 20
    del [buffers.allocate(10 << 20)][:]
    assert buffers.statistics()["arena_bytes"] == 0 and buffers.statistics()["kept_bytes"] == 30 << 20
    del [buffers.arena(100 << 20)][:]
    assert buffers.statistics()["kept_bytes"] == 0


def test_no_more_is_kept_than_was_lately_in_use_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that meets tensors of many sizes, one after the other, does not end with a third of the memory in its pool."""
    buffers.empty_pool()
    monkeypatch.setattr(buffers, "_use", buffers._Use())
    monkeypatch.setattr(buffers, "_KEPT_ALWAYS", 16 << 20)
    for megabytes in range(2, 60):
        del [buffers.allocate(megabytes << 20)][:]
        assert buffers.statistics()["kept_bytes"] <= max(16, megabytes + 4) << 20
    step = [buffers.allocate(10 << 20) for _ in range(20)]  # a training step
    assert len(step) == 20
    del step
    before = counters.bytes_from_system
    step = [buffers.allocate(10 << 20) for _ in range(20)]
    assert counters.bytes_from_system == before, "the next one takes the same blocks"
    del step
    monkeypatch.setattr(buffers, "_WINDOW", 50)
    for _ in range(120):  # then it does smaller things
        del [buffers.allocate(3 << 20)][:]
    assert buffers.statistics()["kept_bytes"] <= 16 << 20
    buffers.empty_pool()


class _Owner:
    pass


def test_foreign_memory_keeps_its_owner_and_never_enters_the_pool() -> None:
    owner = _Owner()
    alive = weakref.ref(owner)
    raw = (ctypes.c_uint8 * 64)()
    b = buffers.foreign(ctypes.addressof(raw), 64, owner)
    del owner
    gc.collect()
    assert alive() is not None and b.owner is alive()
    handle = weakref.ref(b)
    del b
    gc.collect()
    assert alive() is None and handle() is None
    small = [buffers.allocate(64) for _ in range(1000)]  # what other tests freed meanwhile may be among them, this is not
    assert ctypes.addressof(raw) not in {each.address for each in small}


@pytest.mark.parametrize("nbytes", [4 * 10**12, 1 << 62, 1 << 80])
def test_more_than_the_machine_has_raises_what_pytorch_raises(nbytes: int) -> None:
    text = rf"DefaultCPUAllocator: can't allocate memory: you tried .* {nbytes} bytes" if nbytes < 1 << 63 else f"size calculation overflowed: {nbytes} bytes"
    with pytest.raises(RuntimeError, match=text):
        buffers.allocate(nbytes)
    with pytest.raises(RuntimeError, match=text):
        buffers.check_available(nbytes)


def test_a_refused_mapping_empties_the_pool_and_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    del [buffers.allocate(3 << 20)][:]
    real, calls = buffers._map, []

    def refuse_once(length: int) -> object:
        calls.append(length)
        if len(calls) == 1:
            raise OSError(12, "Cannot allocate memory")
        return real(length)

    monkeypatch.setattr(buffers, "_map", refuse_once)
    buffers.empty_pool()
    assert buffers.allocate(7 << 20).nbytes == 7 << 20 and len(calls) == 2

    def refuse(length: int) -> object:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(buffers, "_map", refuse)
    with pytest.raises(RuntimeError, match="you tried to allocate 9437184 bytes"):
        buffers.allocate(9 << 20)


def test_memory_known_to_the_system_makes_sense() -> None:
    assert 0 < resources.available_memory() <= resources.physical_memory()


def test_several_threads() -> None:
    """No two live buffers ever share bytes."""
    failures: list[str] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        for _ in range(300):
            held = [buffers.allocate(int(n)) for n in rng.choice([8, 100, 5000, 2 << 20], 8)]
            for b in held:
                ctypes.memset(b.address, number, 8)
            for b in held:
                if ctypes.string_at(b.address, 8) != bytes([number]) * 8:
                    failures.append(repr(b))

    group = [Thread(target=work, args=(i,)) for i in range(1, 5)]
    for thread in group:
        thread.start()
    join(*group)
    assert not failures


def test_buffers_that_die_at_exit_are_quiet() -> None:
    code = (
        "import sys\n"
        "from flambeau.runtime.buffers import allocate\n"
        "class Late:\n"
        "    def __del__(self): self.held = allocate(1000), allocate(3 << 20)\n"
        "sys.held = [allocate(100), allocate(4 << 20), Late()]\n"
        "late = Late()\n"
    )
    done = processes.python("-c", code, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_buffers_that_outlive_the_module_go_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the interpreter goes, the module's names become None before the last buffers are freed."""
    block = buffers.allocate(2 << 20)._block
    for name in ("_use", "_clock", "_SMALL", "_large"):
        monkeypatch.setattr(buffers, name, None)
    full = buffers._Class(2 << 20, 0)
    full.full(block)
    assert not full
