"""Fourier transforms: how a length is cut into stages, and the numbers that stages read: roots of unity, exact before they are rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

LARGEST_RADIX: Final = 97  # the greatest prime factor of a length that stages do themselves; others go by a convolution (Bluestein)
RECORD: Final = 6  # words of a stage: radix, points per group, groups, offset of its roots, offset of its butterfly's numbers (bytes), 0
_SPECIAL: Final = (3, 5, 7)


@lru_cache(1024)
def radices(n: int) -> tuple[int, ...] | None:
    """The radices of the stages of a transform of n points: eights and fours, then odd primes; None if a prime is too great."""
    found: list[int] = []
    twos = (n & -n).bit_length() - 1
    n >>= twos
    while twos >= 5 or twos == 3:
        found.append(8)
        twos -= 3
    while twos >= 2:
        found.append(4)
        twos -= 2
    found += [2] * twos
    p = 3
    while n > 1:
        if (p * p > n and n > LARGEST_RADIX) or p > LARGEST_RADIX:
            return None
        while n % p == 0:
            found.append(p)
            n //= p
        p += 2
    return tuple(found)


@lru_cache(1024)
def convolution_length(n: int) -> int:
    """The least length of 2^a 3^b 5^c that a cyclic convolution for n points can have."""
    least = 2 * n - 1
    best = 1 << (least - 1).bit_length()
    five = 1
    while five < best:
        three = five
        while three < best:
            twos = max(0, (-(-least // three) - 1).bit_length())
            best = min(best, three << twos)
            three *= 3
        five *= 5
    return best


def split(n: int) -> tuple[int, int] | None:
    """(a, b) with a b = n that are nearest to each other, a <= b; None for a prime."""
    for a in range(math.isqrt(n), 1, -1):
        if n % a == 0:
            return a, n // a
    return None


def roots(k: Array, n: int, real: str) -> Array:
    """exp(-2 pi i k / n) for whole numbers k, as pairs (real, imaginary) of the dtype `real`.

    The angle is taken to the first octant in whole numbers, and its sine and cosine in a wider type, so each is rounded once.
    """
    wide: Any = np.float64 if real == "float32" else np.longdouble
    octant, rest = np.divmod(8 * (k % n), n)
    odd = octant % 2 == 1
    angle = np.where(odd, n - rest, rest).astype(wide) * (wide("0.78539816339744830961566084581987572105") / wide(n))
    c, s = np.cos(angle), np.sin(angle)
    quarter = (octant + 1) // 2 % 4  # angle from this many right angles, forwards or backwards
    s = np.where(odd, -s, s)
    cosine = np.choose(quarter, [c, -s, -c, s])
    sine = np.choose(quarter, [s, c, -s, -c])
    return np.stack([cosine, -sine], -1).astype(real)


def stages(n: int, real: str) -> Array:
    """The stages of a transform of n points, as bytes: their number, their records, and their numbers.

    Stage by stage (Stockham's order, decimation in frequency): of `m` groups with stride `s`, group p multiplies result j of its butterfly
    by exp(-2 pi i p j / (radix m)).
    """
    plan = radices(n)
    assert plan is not None
    head = np.zeros(1 + RECORD * len(plan), np.int64)
    head[0] = len(plan)
    parts: list[Array] = []
    at = head.nbytes
    left, s = n, 1
    for i, radix in enumerate(plan):
        m = left // radix
        p, j = np.arange(m), np.arange(1, radix)
        twiddles = roots(np.multiply.outer(p, j), left, real)
        parts.append(twiddles.view(np.uint8).reshape(-1))
        own = at
        at += parts[-1].nbytes
        if radix not in (2, 4, 8, *_SPECIAL):
            half = np.arange(1, radix // 2 + 1)
            parts.append(roots(np.multiply.outer(half, half), radix, real).view(np.uint8).reshape(-1))
        head[1 + RECORD * i : 1 + RECORD * (i + 1)] = radix, m, s, own, at, 0
        at += parts[-1].nbytes if radix not in (2, 4, 8, *_SPECIAL) else 0
        left, s = m, s * radix
    return np.concatenate([head.view(np.uint8), *parts])


def steps(a: int, b: int, real: str) -> Array:
    """exp(-2 pi i j k / (a b)) of all j < a and k < b: what lies between the two passes of a long transform."""
    return roots(np.multiply.outer(np.arange(a), np.arange(b)), a * b, real)


def halves(n: int, real: str) -> Array:
    """exp(-2 pi i k / n) for k = 0 ... n / 2: what makes a real transform of n points from a complex one of n / 2."""
    return roots(np.arange(n // 2 + 1), n, real)


def chirp(n: int, real: str) -> Array:
    """exp(-pi i k^2 / n) for k < n (Bluestein 1970)."""
    k = np.arange(n)
    return roots(k * k % (2 * n), 2 * n, real)


def chirp_spectrum(n: int, length: int, real: str) -> Array:
    """The transform of the conjugate chirp that is convolved with, wrapped to `length` points."""
    pairs = roots(np.arange(n) * np.arange(n) % (2 * n), 2 * n, "longdouble" if real == "float64" else "float64")
    b = np.zeros(length, np.result_type(pairs.dtype, np.complex64))
    b.real[:n], b.imag[:n] = pairs[:, 0], -pairs[:, 1]
    b[length - n + 1 :] = b[1:n][::-1]
    made = np.fft.fft(b)  # before version 2, NumPy has no transform in long double
    return np.stack([made.real, made.imag], -1).astype(real)


TABLES: Final[dict[str, Callable[..., Array]]] = {
    "stages": stages, "steps": steps, "halves": halves, "chirp": chirp, "chirp_spectrum": chirp_spectrum,
}  # fmt: skip
