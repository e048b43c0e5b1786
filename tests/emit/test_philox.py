"""The counter-based stream: the published known answers, and a pure function of (seed, offset + index)."""

from __future__ import annotations

import numpy as np

from flambeau import dtypes
from flambeau.compiler.emit import philox, scalar
from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.lanes import Lanes
from tests.emit.native import WIDTHS, address, launch, pointwise

MASK = 0xFFFFFFFF


def reference(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    """Philox4x32-10 of the paper, in Python integers."""
    c, k = list(counter), list(key)
    for round_ in range(10):
        if round_:
            k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
        first, second = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(second >> 32) ^ c[1] ^ k[0], second & MASK, (first >> 32) ^ c[3] ^ k[1], first & MASK]
    return c


def test_reference_gives_the_published_answers() -> None:
    """kat_vectors of the authors' Random123 library."""
    assert reference((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert reference((MASK,) * 4, (MASK,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_block_words() -> None:
    seed, counters = 0x299F31D0A4093822, np.arange(2**32 - 8, 2**32 + 8, dtype=np.int64)
    out = np.zeros((4, 16), np.int64)

    def write(b: Builder) -> None:
        counter = Lanes(b, "i64", 16, b.load("<16 x i64>", address(b, 0), 8))
        for i, word in enumerate(philox.block(counter.like(seed), counter)):
            b.store("<16 x i64>", word.name, b.gep("i64", address(b, 1), 16 * i), 8)

    launch(write, [counters, out], 1)
    for lane, n in enumerate(counters.tolist()):
        wanted = reference((n & MASK, n >> 32, 0, 0), (seed & MASK, seed >> 32))
        assert [int(w) & MASK for w in out[:, lane]] == wanted


def test_uniform_is_a_function_of_seed_and_position() -> None:
    index = np.arange(1000, dtype=np.int64)

    def draw(seed: int, offset: int, index: np.ndarray, width: int) -> np.ndarray:
        return pointwise(
            lambda b, v, w: scalar.random_uniform(b, str(seed), str(offset), str(v[0]), w),
            [dtypes.int64], dtypes.float32, width, [index],
        )  # fmt: skip

    seed, offset = (1 << 40) + 7, (1 << 33) - 500
    first = draw(seed, offset, index, 16)
    wanted = [(reference(((offset + i) & MASK, (offset + i) >> 32, 0, 0), (seed & MASK, seed >> 32))[0] >> 8) * 2.0**-24 for i in range(1000)]
    assert first.tolist() == wanted
    for width in WIDTHS:
        assert (draw(seed, offset, index, width) == first).all()
    assert (draw(seed, offset + 100, index[:900], 16) == first[100:]).all()
    assert (first >= 0).all() and (first < 1).all() and abs(first.mean() - 0.5) < 0.05
