"""Random numbers: normal ones, by Box and Muller, as ATen makes them: by vectors from 16 numbers on, else one by one (random.py)."""

from __future__ import annotations

import math

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.compiler.kernels.random import Stream, library
from flambeau.dtypes import BY_NAME, dtype


def _cephes_log(x: Lanes) -> Lanes:
    """log of float lanes in (0, 1]: the Cephes library's logf (Moshier 1989), in the order of operations, and with the
    fused steps, of PyTorch's vector code, so that normals agree bit for bit."""
    bits = x.bits()
    e = (bits.logical_right(23) - 0x7E).to("float", "sitofp")
    m = ((bits & 0x7FFFFF) | 0x3F000000).as_float()
    small = m.lt(0.707106781186547524)
    e = e - small.select(e.like(1.0), 0.0)
    f = (m - 1.0) + small.select(m, 0.0)
    z = f * f
    coefficients = [
        3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1, -1.2420140846e-1,
        1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2,
    ]  # fmt: skip
    y = (polynomial(f, coefficients) * f).fma(z, e * -2.12194440e-4)
    y = (-z).fma(0.5, y)
    return e.fma(0.693359375, f + y)


def _cephes_sin_cos(x: Lanes) -> tuple[Lanes, Lanes]:
    """(sin, cos) of float lanes in [0, 2 pi]: Cephes's sinf and cosf, as above."""
    octant = (x * (4.0 / math.pi)).to("i32", "fptosi")
    octant = (octant + 1) & -2
    y = octant.to("float", "sitofp")
    for part in (-0.78515625, -2.4187564849853515625e-4, -3.77489497744594108e-8):
        x = y.fma(part, x)
    z = x * x
    c = polynomial(z, [4.166664568298827e-002, -1.388731625493765e-003, 2.443315711809948e-005])
    c = (c * z).fma(z, -(z * 0.5)) + 1.0
    s = polynomial(z, [-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4])
    s = (s * z).fma(x, x)
    swapped = (octant & 2).ne(0)
    sine, cosine = swapped.select(c, s), swapped.select(s, c)
    sine_sign = (octant & 4) << 29
    cosine_sign = (~(octant - 2) & 4) << 29
    return (sine.bits() ^ sine_sign).as_float(), (cosine.bits() ^ cosine_sign).as_float()


def emit_normal(key: str, d: dtype) -> str:
    """Words: mean, std (doubles). At least 16 elements: Box and Muller 1958 on sixteens, u1 from the first eight and u2
    from the last eight; where the count is no multiple of 16, the last sixteen are drawn again."""
    s = Stream(["mean", "std"])
    c = s.c
    wide = d.itemsize == 8
    mean, std = s.double("mean"), s.double("std")
    if not wide:
        mean, std = mean.to("float", "fptrunc"), std.to("float", "fptrunc")
    groups = 2 if d.name == "float32" and s.bits >= 512 else 1
    width = 8 * groups

    def joined(parts: list[Lanes]) -> Lanes:
        return parts[0] if len(parts) == 1 else c.shuffle(parts[0], parts[1], range(16))

    def sixteens(i: Lanes, at: Lanes, count: Lanes | None) -> None:
        """Stage elements i, ... to elements at, ...: `groups` sixteens, of which the second counts if `count` > 16."""
        u1 = 1.0 - joined([s.uniform(wide, i + 16 * g, 8) for g in range(groups)])
        u2 = joined([s.uniform(wide, i + (16 * g + 8), 8) for g in range(groups)])
        if not wide:
            radius = (_cephes_log(u1) * -2.0).sqrt()
            sine, cosine = _cephes_sin_cos(u2 * (2.0 * math.pi))
        else:
            radius = (library("log", u1) * -2.0).sqrt()
            angle = u2 * (2.0 * math.pi)
            sine, cosine = library("sin", angle), library("cos", angle)
        halves = [convert.narrow(d, (radius * part).fma(s.spread(std, width), s.spread(mean, width))) for part in (cosine, sine)]
        for g in range(groups):

            def put(g: int = g) -> None:
                for which, half in enumerate(halves):
                    eight = half if groups == 1 else c.shuffle(half, half, range(8 * g, 8 * g + 8))
                    s.store(d, at + (16 * g + 8 * which), eight)

            if g and count is not None:
                with c.if_(count.gt(16)):
                    put()
            elif not g or count is None:
                put()

    whole = c.divide(s.count, 16) * 16

    def chunk(first: Lanes, size: Lanes) -> None:
        pairs = c.divide(size, 16 * groups) * (16 * groups)
        with c.for_(0, pairs, 16 * groups) as i:
            sixteens(i, first + i, None)
        if groups > 1:
            with c.if_(pairs.lt(size)):
                sixteens(pairs, first + pairs, size - pairs)

    s.chunks(whole, 2 if wide else 1, chunk)
    with c.if_(whole.ne(s.count)):
        if d.itemsize > 2:  # PyTorch fills all elements before it draws the last ones again, unless they are narrow
            s.draw((s.count - whole) * (2 if wide else 1))
        s.draw(32 if wide else 16)
        sixteens(c.i64(0), s.count - 16, c.i64(16))
    return s.finish(key)


def emit_normal_serial(key: str, d: dtype, logarithmic: bool) -> str:
    """Words: mean, std (doubles). One by one, in double; the second of each pair is kept for the next call, whoever
    makes it. `logarithmic`: exp of it."""
    s = Stream(["mean", "std"])
    c = s.c
    draw = s.normals()
    with c.for_(0, s.count) as i:
        value = draw().fma(s.double("std"), s.double("mean"))
        if logarithmic:
            value = library("exp", value)
        s.store(d, i, s.cast(BY_NAME["float64"], d, value))
    return s.finish(key)
