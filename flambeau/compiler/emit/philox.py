"""Counter-based random numbers: Philox4x32-10, one block of four words for each element.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

The block of element n is keyed by the seed (key word 0 = its low 32 bits, word 1 = its high 32) and counts n = offset +
index (counter word 0 = the low 32 bits of n, word 1 = the high 32, words 2 and 3 zero). The element is word 0 of the
output: a pure function of (seed, n), whatever the vector width or the number of threads.
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.lanes import Lanes

# Multipliers and Weyl increments of the paper's table 2.
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
INCREMENTS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


_WORD = 0xFFFFFFFF


def block(seed: Lanes, counter: Lanes) -> tuple[Lanes, Lanes, Lanes, Lanes]:
    """The four output words of i64 lanes `counter` under the i64 lanes `seed`.

    A word is the low half of an i64 lane and its high half is rubbish: a multiplication masks it away, for nothing on
    x86 (vpmuludq), and no lane ever changes its width.
    """
    k0, k1 = seed, seed.logical_right(32)
    c0, c1 = counter, counter.logical_right(32)
    c2 = c3 = c0.like(0)
    for round_ in range(ROUNDS):
        if round_:
            k0, k1 = k0 + INCREMENTS[0], k1 + INCREMENTS[1]
        p0, p1 = (c0 & _WORD) * MULTIPLIERS[0], (c2 & _WORD) * MULTIPLIERS[1]
        c0, c1, c2, c3 = p1.logical_right(32) ^ c1 ^ k0, p1, p0.logical_right(32) ^ c3 ^ k1, p0
    return c0, c1, c2, c3


def random_uniform(b: Builder, seed: str, offset: str, index: str, width: int) -> str:
    """float lanes in [0, 1), multiples of 2^-24. `seed`, `offset`: scalar i64; `index`: i64 lanes."""
    counter = Lanes(b, "i64", width, b.splat("i64", width, offset)) + Lanes(b, "i64", width, index)
    word = block(Lanes(b, "i64", width, b.splat("i64", width, seed)), counter)[0]
    return (word.to("i32", "trunc").logical_right(8).to("float", "sitofp") * 2.0**-24).name
