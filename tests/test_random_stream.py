"""PyTorch's CPU random numbers: the same seed gives the same numbers, call after call, and the same state."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.runtime.random import STATE_BYTES, MersenneState

torch = pytest.importorskip("torch")

SIZES = (0, 1, 5, 15, 16, 17, 31, 100, 1000, 2496, 2497, 100_003)
FLOATS = ("float32", "float64", "float16", "bfloat16")
REAL = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "bool")
Fill = Callable[..., Any]
# name: (ours on (state, address, numel, dtype), PyTorch's on a tensor, dtypes)
CASES: dict[str, tuple[Fill, Fill, tuple[str, ...]]] = {
    "rand": (lambda s, a, n, d: s.uniform(a, n, d), lambda t: t.uniform_(), FLOATS),
    "uniform": (lambda s, a, n, d: s.uniform(a, n, d, -0.7, 1.3), lambda t: t.uniform_(-0.7, 1.3), FLOATS),
    "narrow uniform": (lambda s, a, n, d: s.uniform(a, n, d, 5.0, 5.001), lambda t: t.uniform_(5.0, 5.001), FLOATS),
    "normal": (lambda s, a, n, d: s.normal(a, n, d), lambda t: t.normal_(), FLOATS),
    "normal 0.02": (lambda s, a, n, d: s.normal(a, n, d, 0.25, 0.02), lambda t: t.normal_(0.25, 0.02), FLOATS),
    "log_normal": (lambda s, a, n, d: s.log_normal(a, n, d, 0.5, 0.25), lambda t: t.log_normal_(0.5, 0.25), FLOATS),
    "exponential": (lambda s, a, n, d: s.exponential(a, n, d, 1.7), lambda t: t.exponential_(1.7), FLOATS),
    "cauchy": (lambda s, a, n, d: s.cauchy(a, n, d, 0.0, 2.0), lambda t: t.cauchy_(0.0, 2.0), FLOATS),
    "geometric": (lambda s, a, n, d: s.geometric(a, n, d, 0.2), lambda t: t.geometric_(0.2), REAL[:-1]),
    "bernoulli": (lambda s, a, n, d: s.bernoulli(a, n, d, 0.37), lambda t: t.bernoulli_(0.37), REAL),
    "random": (lambda s, a, n, d: s.random(a, n, d), lambda t: t.random_(), REAL),
    "randint": (lambda s, a, n, d: s.integers(a, n, d, 3, 101), lambda t: t.random_(3, 101), REAL[:-1]),
    **{
        f"randint {high}": (
            lambda s, a, n, d, high=high: s.integers(a, n, d, -7, high), lambda t, high=high: t.random_(-7, high),
            ("int64",),
        )
        for high in ((1 << 28) - 8, (1 << 28) - 7, 1 << 32, 1 << 40, (1 << 63) - 1)
    },
    "full int64": (
        lambda s, a, n, d: s.integers(a, n, d, -(1 << 63), 1 << 63), lambda t: t.random_(-(1 << 63), None), ("int64",)
    ),
    "randperm": (
        lambda s, a, n, d: s.permutation(a, n), lambda t: t.copy_(torch.randperm(t.numel())), ("int64",)
    ),
}  # fmt: skip
RUNS = [(name, kind) for name, case in CASES.items() for kind in case[2]]


def distance(got: Any, want: Any) -> int:
    """Units in the last place between two tensors of a floating dtype; elements that differ, of an integer one."""
    if not got.is_floating_point():
        return int((got != want).sum())
    size = got.element_size()
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    low = -(1 << (8 * size - 1))
    places = [torch.where(x.view(bits) < 0, low - x.view(bits).long(), x.view(bits).long()) for x in (got, want)]
    return int((places[0] - places[1]).abs().max()) if got.numel() else 0


def same_state(state: MersenneState) -> bool:
    return np.array_equal(np.frombuffer(state.get_state(), np.uint8), torch.get_rng_state().numpy())


@pytest.mark.parametrize("numel", SIZES)
def test_every_fill_in_one_stream(numel: int) -> None:
    """All distributions and dtypes after each other, in random order: no call may leave the stream elsewhere."""
    state = MersenneState(1000 + numel)
    torch.manual_seed(1000 + numel)
    for at in np.random.default_rng(numel).permutation(len(RUNS)):
        name, kind = RUNS[at]
        ours, theirs, _ = CASES[name]
        want = torch.empty(numel, dtype=getattr(torch, kind))
        got = torch.empty_like(want)
        theirs(want)
        ours(state, got.data_ptr(), numel, dtypes.BY_NAME[kind])
        assert distance(got, want) == 0, (name, kind)
        assert same_state(state), (name, kind)
        state.set_state(torch.get_rng_state().numpy().tobytes())


@pytest.mark.parametrize("kind", FLOATS)
def test_gaps_draw_one_by_one(kind: str) -> None:
    """A target that is not contiguous takes the serial path of normal_ at any size, and leaves a cached normal."""
    state = MersenneState(3)
    torch.manual_seed(3)
    target = torch.empty(7, 10, dtype=getattr(torch, kind))[:, ::2]
    got = torch.empty(35, dtype=target.dtype)
    for _ in range(3):
        target.normal_(1.0, 3.0)
        state.normal(got.data_ptr(), 35, dtypes.BY_NAME[kind], 1.0, 3.0, contiguous=False)
        assert distance(got, target.flatten()) == 0
        assert same_state(state)


@pytest.mark.parametrize("p_kind", FLOATS)
@pytest.mark.parametrize("kind", ["float32", "bool", "int64", "bfloat16"])
def test_bernoulli_of_each_probability(kind: str, p_kind: str) -> None:
    state = MersenneState(11)
    torch.manual_seed(12)
    p = torch.rand(1003, dtype=torch.float64).to(getattr(torch, p_kind))
    torch.manual_seed(11)
    want = torch.empty(1003, dtype=getattr(torch, kind)).bernoulli_(p)
    got = torch.empty_like(want)
    state.bernoulli_each(got.data_ptr(), 1003, dtypes.BY_NAME[kind], p.data_ptr(), dtypes.BY_NAME[p_kind])
    assert torch.equal(got, want) and same_state(state)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("rows,categories,samples", [(1, 1, 2), (1, 50, 100), (4, 7, 33), (3, 1000, 5)])
def test_multinomial_with_replacement(kind: str, rows: int, categories: int, samples: int) -> None:
    state = MersenneState(21)
    torch.manual_seed(22)
    p = torch.rand(rows, categories).to(getattr(torch, kind))
    torch.manual_seed(21)
    want = torch.multinomial(p, samples, True)
    got = torch.empty_like(want)
    state.multinomial(got.data_ptr(), rows, samples, p.data_ptr(), categories, dtypes.BY_NAME[kind])
    assert torch.equal(got, want) and same_state(state)


@pytest.mark.parametrize("bad,message", [(-1.0, "element < 0"), (np.nan, "nan"), (np.inf, "inf"), (0.0, "sum of prob")])
def test_multinomial_errors(bad: float, message: str) -> None:
    p = np.full(3, bad, np.float32)
    to = np.empty(4, np.int64)
    with pytest.raises(RuntimeError, match=message):
        MersenneState(0).multinomial(to.ctypes.data, 1, 4, p.ctypes.data, 3, dtypes.float32)


def test_state_round_trip_and_clone() -> None:
    state = MersenneState(7)
    numbers = (ctypes.c_float * 5)()
    state.normal(ctypes.addressof(numbers), 5, dtypes.float32)
    saved, other = state.get_state(), state.clone()
    assert len(saved) == STATE_BYTES
    state.normal(ctypes.addressof(numbers), 5, dtypes.float32)
    first = list(numbers)
    other.normal(ctypes.addressof(numbers), 5, dtypes.float32)
    assert list(numbers) == first
    state.set_state(saved)
    state.normal(ctypes.addressof(numbers), 5, dtypes.float32)
    assert list(numbers) == first
    torch.set_rng_state(torch.frombuffer(bytearray(saved), dtype=torch.uint8))
    assert torch.get_rng_state().numpy().tobytes() == saved
    with pytest.raises(RuntimeError, match="wrong size"):
        state.set_state(saved[:-1])
    with pytest.raises(RuntimeError, match="Invalid mt19937 state"):
        state.set_state(saved[:8] + b"\xff" * 8 + saved[16:])


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 + 5, -1, 67280421310721])
def test_seeds(seed: int) -> None:
    torch.manual_seed(seed)
    assert MersenneState(seed).get_state() == torch.get_rng_state().numpy().tobytes()


def test_empty_range() -> None:
    with pytest.raises(RuntimeError, match="random_ expects 'from' to be less than 'to', but got from=3 >= to=3"):
        MersenneState(0).integers(0, 1, dtypes.int64, 3, 3)
