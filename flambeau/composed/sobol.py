"""Sobol sequences: direction numbers, points by Gray code, scrambling (the functions under torch.quasirandom, by PyTorch's inner names)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import flambeau as torch

BITS = 30
DIMENSIONS = 21201
_ODD = 2**18  # how many odd numbers may be polynomials: those of degree 18 at most


@cache
def _table() -> tuple[bytes, list[int]]:
    """(the bits of all direction numbers, least significant first in each byte; the polynomials); data/sobol.md describes the file."""
    data = (Path(__file__).parents[1] / "data" / "sobol.bin").read_bytes()
    chosen = data[: _ODD // 8]
    polynomials = [2 * i + 1 for i in range(_ODD) if chosen[i >> 3] >> (i & 7) & 1]
    return data[_ODD // 8 :], polynomials


def _rows(dimension: int) -> list[list[int]]:
    """The direction numbers of each dim, as whole numbers of BITS bits."""
    bits, polynomials = _table()
    rows, at = [[1] * BITS], 0
    for polynomial in polynomials[1:dimension]:
        degree = polynomial.bit_length() - 1
        row: list[int] = []
        for i in range(degree):
            word = int.from_bytes(bits[at >> 3 : (at >> 3) + 4], "little") >> (at & 7)
            row.append((word & ((1 << i) - 1)) << 1 | 1)
            at += i
        taken = [k for k in range(1, degree + 1) if polynomial >> (degree - k) & 1]
        for j in range(degree, BITS):
            new = row[j - degree]
            for k in taken:
                new ^= row[j - k] << k
            row.append(new)
        rows.append(row)
    return [[m << (BITS - 1 - j) for j, m in enumerate(row)] for row in rows]


def _sobol_engine_initialize_state_(self: Any, dimension: int) -> Any:
    """Write the direction numbers of `dimension` dims into an int64 tensor (dimension, 30)."""
    return self.copy_(torch.tensor(_rows(dimension), dtype=torch.int64))


def _gray(number: Any) -> Any:
    return number ^ (number >> 1)


def _steps(sobolstate: Any, begun: int, count: int) -> Any:
    """What the points `begun + 1` to `begun + count` differ in from point `begun`: (count, dimension)."""
    flips = _gray(torch.arange(begun + 1, begun + count + 1)) ^ _gray(begun)
    found = torch.zeros(count, sobolstate.shape[0], dtype=torch.int64)
    for bit in range((begun + count).bit_length()):
        found = found ^ (((flips >> bit) & 1).unsqueeze(1) * sobolstate[:, bit])
    return found


def _sobol_engine_draw(quasi: Any, n: int, sobolstate: Any, dimension: int, num_generated: int, dtype: Any) -> tuple[Any, Any]:
    """((n, dimension) points in [0, 1), the state after them) of the sequence from `num_generated` on, whose state is `quasi`."""
    if n == 0:
        return torch.empty(0, dimension, dtype=dtype or torch.get_default_dtype()), quasi.clone()
    whole = quasi ^ _steps(sobolstate, num_generated, n)
    return whole.to(dtype or torch.get_default_dtype()) * 2.0**-BITS, whole[-1].clone()


def _sobol_engine_ff_(self: Any, n: int, sobolstate: Any, dimension: int, num_generated: int) -> Any:
    """Move the state `self` by n points, in place."""
    flips = _gray(num_generated + n) ^ _gray(num_generated)
    for bit in range(flips.bit_length()):
        if flips >> bit & 1:
            self ^= sobolstate[:, bit]
    return self


def _sobol_engine_scramble_(self: Any, ltm: Any, dimension: int) -> Any:
    """Multiply the direction numbers, as vectors of bits, by lower triangular matrices of bits (dimension, 30, 30); their diagonals count as 1."""
    places = torch.arange(BITS - 1, -1, -1)
    vectors = (self.unsqueeze(-1) >> places) & 1  # (dimension, numbers, bits), most significant first
    matrices = ltm.tril(-1) + torch.eye(BITS, dtype=ltm.dtype)
    product = torch.bmm(vectors.float(), matrices.float().transpose(1, 2)).to(torch.int64) & 1
    return self.copy_((product << places).sum(-1))
