"""`flambeau calibrate`: what work costs on this machine, measured once and kept, for the compiler's planners (runtime/costs.py).

Everything is measured on one thread, by its own time, but the cost of a further thread. The best of several runs counts: others may use the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter, thread_time
from typing import Any, Final

_FAR: Final = 1 << 28  # bytes that no cache has
_SIZE: Final = 768  # of the products that measure peaks, which stay in the second-level cache
_CHAIN: Final = 64  # additions to one element
_SIDE: Final = 8  # vectors side by side, which hide the time of an addition
_LEAST_SECONDS: Final = 0.02  # that one look at the clock covers


def calibrate(show: bool = False) -> int:
    """Measure and store, or (`show`) print what is stored."""
    from flambeau.runtime import costs, target

    processor = target.fingerprint()
    if not show:
        with _threads(1):
            measured = _alone()
        measured = replace(measured, thread_nanoseconds=_thread_nanoseconds(measured))
        path = costs.store(processor, measured)
        print(f"kept in {path}" if path else "not kept: there is no cache folder")
    _print(costs.calibrated(processor))
    return 0


def _print(found: Any) -> None:
    from flambeau.runtime.costs import DEFAULT

    print("defaults: this machine was never measured" if found == DEFAULT else "measured")
    for level, speed in enumerate(found.cache_bytes_per_nanosecond, 1):
        print(f"{f'bandwidth, level {level}':<22} {speed:8.1f} bytes/ns, one core")
    print(f"{'bandwidth, memory':<22} {found.bytes_per_nanosecond:8.1f} bytes/ns, one core")
    for name, peak in found.peaks:
        print(f"{name:<22} {peak:8.1f} operations/ns, one core")
    print(f"{'pointwise weight':<22} {found.nanoseconds_per_weight:8.4f} ns for an element of a vector of 16")
    print(f"{'call':<22} {found.call_nanoseconds:8.0f} ns")
    print(f"{'further thread':<22} {found.thread_nanoseconds:8.0f} ns of work make it worth its start")
    print(f"{'stream from':<22} {found.stream_bytes >> 10:8d} KiB on")


def _alone() -> Any:
    """What one thread measures."""
    import flambeau as torch
    from flambeau.runtime.costs import DEFAULT
    from flambeau.runtime.target import Target

    host = Target.host()
    with torch.no_grad():
        levels = tuple(_bandwidth(size // 2) for size in host.caches[:2])  # the third is shared: what is ours of it nobody says
        memory = _bandwidth(_FAR)
        peaks = tuple((atom.name, speed) for atom in host.atoms if (speed := _peak(atom.dtype)) > 0)
        call = _call_nanoseconds()
        weight = _weight(host.caches[0] // 4) * host.lanes / 16
    known = dict(peaks)
    return replace(
        DEFAULT, bytes_per_nanosecond=memory, operations_per_nanosecond=known["vector_float32"],
        nanoseconds_per_weight=weight, stream_bytes=max(DEFAULT.stream_bytes, 2 * host.caches[1]), cache_bytes_per_nanosecond=levels, peaks=peaks,
        call_nanoseconds=call,
    )  # fmt: skip


def _seconds(work: Callable[[], Any], rounds: int = 7, clock: Callable[[], float] = thread_time) -> float:
    """The least time of one call: of this thread, which does not count while others have the processor."""
    work()
    start = clock()
    work()
    repeat = max(1, int(_LEAST_SECONDS / max(clock() - start, 1e-7)))
    best = float("inf")
    for _ in range(rounds):
        start = clock()
        for _ in range(repeat):
            work()
        best = min(best, (clock() - start) / repeat)
    return best


def _looked(function: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: function().data_ptr()


def _sweeps(nbytes: int, chain: int, key: str = "calibrate") -> float:
    """Seconds of one sweep over so much memory, by native code: each element is read, has 1 added `chain` times, and is written."""
    import ctypes

    from flambeau.compiler.emit.code import Code
    from flambeau.runtime import buffers, jit
    from flambeau.runtime.target import Target

    lanes = Target.host().lanes

    def emit() -> str:
        c = Code(["x", "count"], Target.host())
        x, count = c.array("x", "float"), c.word("count")

        with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")), c.for_(0, count, _SIDE * lanes) as i:
            values = [x.load(i + lanes * v, lanes) for v in range(_SIDE)]
            for _ in range(chain):
                values = [value + 1.0 for value in values]
            for v, value in enumerate(values):
                x.store(i + lanes * v, value)
        return c.kernel(jit.symbol(key))

    key = f"{key}:{lanes}:{chain}"
    count = max(nbytes // (4 * _SIDE * lanes), 1) * _SIDE * lanes
    memory = buffers.allocate(4 * count)
    ctypes.memset(memory.address, 0, 4 * count)
    words = (ctypes.c_int64 * 2)(memory.address, count)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(jit.function(key, emit))
    sweeps = max(1, (1 << 24) // (4 * count))
    return _seconds(lambda: function(ctypes.addressof(words), 0, sweeps, 0), 5) / sweeps


def _bandwidth(nbytes: int) -> float:
    """Bytes a nanosecond, read and written together."""
    return 2 * nbytes / _sweeps(nbytes, 1) / 1e9


def _peak(name: str) -> float:
    """Operations a nanosecond of products of a dtype; 0 where there are none."""
    import flambeau as torch

    try:
        a = torch.ones(_SIZE, _SIZE, dtype=getattr(torch, name))
        return 2 * _SIZE**3 / _seconds(_looked(lambda: a @ a), 5) / 1e9
    except (RuntimeError, NotImplementedError, TypeError):
        return 0.0


def _call_nanoseconds() -> float:
    import flambeau as torch

    x = torch.ones(8)
    return _seconds(_looked(lambda: x + 1)) * 1e9


def _weight(nbytes: int) -> float:
    """Nanoseconds of one pointwise operation on one element: of a chain of them, which hides reading from the first-level cache."""
    return _sweeps(nbytes, _CHAIN) * 1e9 / (nbytes // 4 * _CHAIN)


def _thread_nanoseconds(alone: Any) -> float:
    """Twice what a parallel phase costs more than its share of the work; the default where others use the machine so that threads
    gain nothing, and within a quarter and eight times it, since such a difference of two times is uncertain."""
    import flambeau as torch
    from flambeau.runtime import threads

    if threads.count() < 2:
        return float(alone.thread_nanoseconds)
    with torch.no_grad():
        x = torch.ones(1 << 18)
        several = _seconds(_looked(lambda: x.exp()), clock=perf_counter)
        count = threads.count()
        with _threads(1):
            one = _seconds(_looked(lambda: x.exp()), clock=perf_counter)
    usual = float(alone.thread_nanoseconds)
    return min(max(2e9 * (several - one / count), usual / 4), 8 * usual) if several < one else usual


@contextmanager
def _threads(count: int) -> Iterator[None]:
    import flambeau as torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
