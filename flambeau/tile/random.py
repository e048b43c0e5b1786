"""Random numbers of the tile language: Philox4x32, with the numbers that Triton's functions give.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from typing import Any

from flambeau.compiler.emit.philox import INCREMENTS, MULTIPLIERS
from flambeau.compiler.tile.ir import Value
from flambeau.dtypes import float32, int32, int64, uint32, uint64
from flambeau.tile.operations import binary, broadcast_pair, cast, number, to_tensor
from flambeau.tile.values import build, tensor, unwrap


def _words(seed: Any, offset: Any) -> tuple[Value, Value, Value]:
    """(the counter's first word, the key's words), as uint32 blocks of one shape."""
    s, c = broadcast_pair(cast(number(unwrap(seed)), uint64), number(unwrap(offset)))
    b = build()
    low = b.pointwise("bitwise_and", s, b.constant(0xFFFFFFFF, uint64, s.shape))
    high = b.pointwise("shift_right", s, b.constant(32, uint64, s.shape))
    return cast(c, uint32), cast(low, uint32), cast(high, uint32)


def philox(seed: Any, c0: Any, c1: Any, c2: Any, c3: Any, n_rounds: Any = 10) -> tuple[tensor, tensor, tensor, tensor]:
    """The four words of a block, of the counter (c0, c1, c2, c3) under the seed."""
    first, k0, k1 = _words(seed, c0)
    rest = [broadcast_pair(first, cast(number(unwrap(c)), uint32))[1] for c in (c1, c2, c3)]
    return _rounds([first, *rest], k0, k1, unwrap(n_rounds))


def _rounds(c: list[Value], k0: Value, k1: Value, rounds: int) -> tuple[tensor, tensor, tensor, tensor]:
    b, shape = build(), c[0].shape

    def xor(*values: Value) -> Value:
        result = values[0]
        for v in values[1:]:
            result = b.pointwise("bitwise_xor", result, v)
        return result

    def product(v: Value, multiplier: int) -> tuple[Value, Value]:
        wide = b.pointwise("mul", cast(v, uint64), b.constant(multiplier, uint64, shape))
        return cast(b.pointwise("shift_right", wide, b.constant(32, uint64, shape)), uint32), cast(wide, uint32)

    for _ in range(rounds):
        high0, low0 = product(c[0], MULTIPLIERS[0])
        high1, low1 = product(c[2], MULTIPLIERS[1])
        c = [xor(high1, c[1], k0), low1, xor(high0, c[3], k1), low0]
        k0 = b.pointwise("add", k0, b.constant(INCREMENTS[0], uint32, shape))
        k1 = b.pointwise("add", k1, b.constant(INCREMENTS[1], uint32, shape))
    w, x, y, z = map(tensor, c)
    return w, x, y, z


def randint4x(seed: Any, offset: Any, n_rounds: Any = 10) -> tuple[tensor, tensor, tensor, tensor]:
    """Four blocks of random words. Offsets of 64 bits fill two words of the counter."""
    o = number(unwrap(offset))
    b = build()
    high = b.constant(0, uint32, o.shape)
    if o.type.dtype in (int64, uint64):
        wide = cast(o, uint64)
        high = cast(b.pointwise("shift_right", wide, b.constant(32, uint64, o.shape)), uint32)
    return philox(seed, tensor(o), tensor(high), 0, 0, n_rounds)


def randint(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """A block of random words."""
    return randint4x(seed, offset, n_rounds)[0]


def uint_to_uniform_float(x: Any) -> tensor:
    """Random words as float32 in [0, 1)."""
    b, v = build(), cast(number(x), int32)
    negative = b.pointwise("lt", v, b.constant(0, int32, v.shape))
    positive = b.pointwise("where", negative, b.pointwise("bitwise_not", v), v)
    return tensor(b.pointwise("mul", cast(positive, float32), b.constant(4.6566127342e-10, float32, v.shape)))


def rand(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """float32 in [0, 1)."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


def rand4x(seed: Any, offsets: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Four blocks of float32 in [0, 1)."""
    return tuple(map(uint_to_uniform_float, randint4x(seed, offsets, n_rounds)))


def pair_uniform_to_normal(u1: Any, u2: Any) -> tuple[tensor, tensor]:
    """Two normal numbers of two uniform ones (Box and Muller)."""
    from flambeau.tile import language as tl

    first = tl.maximum(1.0e-7, u1)
    angle = binary("mul", 6.283185307179586, to_tensor(u2))
    radius = tl.sqrt(binary("mul", -2.0, tl.log(first)))
    return binary("mul", radius, tl.cos(angle)), binary("mul", radius, tl.sin(angle))


def randn(seed: Any, offset: Any, n_rounds: Any = 10) -> tensor:
    """Normal float32."""
    a, b, _, _ = randint4x(seed, offset, n_rounds)
    return pair_uniform_to_normal(uint_to_uniform_float(a), uint_to_uniform_float(b))[0]


def randn4x(seed: Any, offset: Any, n_rounds: Any = 10) -> tuple[tensor, ...]:
    """Four blocks of normal float32."""
    u = rand4x(seed, offset, n_rounds)
    return (*pair_uniform_to_normal(u[0], u[1]), *pair_uniform_to_normal(u[2], u[3]))
