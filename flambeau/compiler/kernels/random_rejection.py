"""PyTorch's CPU random numbers whose count depends on values: gamma, Poisson and binomial (by rejection), and rrelu's slopes.

Fills as in random.py (same words, same state), one element after another, for distributions whose parameters are tensors: the words after `draw` are the
addresses of dense parameters. How many numbers an element draws depends on what was drawn, so the order of draws, the formulas
and the precision of each step are ATen's (Distributions.h, Distributions.cpp), and results agree but for an ulp of log and its like.
Parameters for which ATen would draw for ever (an infinite rate, a count of NaN) give NaN, or the rate.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from flambeau.compiler.emit import convert
from flambeau.compiler.emit import math as m
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.random import Stream
from flambeau.dtypes import BY_NAME, dtype

_DOUBLE, _INTEGER = BY_NAME["float64"], BY_NAME["int64"]
# log k! - (Stirling's formula) for k = 0 ... 9; from 10 on the series below (Hoermann 1993, "The generation of binomial random
# variates").
_TAILS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip
_LEAST = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-1022}  # normal numbers


def _single(value: float) -> float:
    """A constant that ATen writes as a float, as a double."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def _parameter(s: Stream, name: str, d: dtype, i: Lanes) -> Lanes:
    """Element i of a parameter, as a register value."""
    at = s.c.array(name, "i8").after_bytes(i * d.itemsize).pointer
    return convert.lanes(s.c.b, d, convert.load(s.c.b, d, at, 1), 1)


def _double(value: Lanes) -> Lanes:
    return value.to("double", "fpext")


def emit_rrelu(key: str, d: dtype, source: dtype) -> str:
    """Words: input (address, of `source`), low, high (doubles). The slopes of rrelu: an element of [low, high) where the input is at most 0,
    else 1, for which nothing is drawn. Not fused, as ATen computes it in a file without such instructions."""
    s = Stream(["input", "low", "high"])
    c = s.c
    low, high = s.double("low"), s.double("high")
    if d is not _DOUBLE:
        low, high = (x.to("float", "fptrunc").to("double", "fpext") for x in (low, high))
    scale = high - low
    slope = c.cell("double")
    with c.for_(0, s.count) as i:
        slope.set(1.0)
        with c.if_(s.cast(source, _DOUBLE, _parameter(s, "input", source, i)).le(0.0)):
            slope.set(s.single() * scale + low)
        s.store(d, i, s.cast(_DOUBLE, d, slope.get()))
    return s.finish(key)


def emit_gamma(key: str, d: dtype) -> str:
    """Words: alpha (address). Gamma(alpha, 1) by Marsaglia and Tsang 2000; at least the smallest normal number of `d`,
    and that where the shape is negative or NaN."""
    s = Stream(["alpha"])
    c = s.c
    normal = s.normals()
    scale, sample = c.cell("double"), c.cell("double")
    shape = c.cell(convert.register_element(d))
    third = _single(1 / 3)
    with c.for_(0, s.count) as i:
        alpha = _parameter(s, "alpha", d, i)
        shape.set(alpha)
        scale.set(1.0)
        sample.set(0.0)
        with c.if_(alpha.lt(1.0) & alpha.ne(0.0)):
            # Gamma(a) is Gamma(a + 1) times u^(1/a).
            scale.set(m.pow(1.0 - s.single(), _double(1.0 / alpha)))
            shape.set(convert.narrow(d, alpha + 1.0))
        with c.if_(alpha.eq(0.0) ^ 1):
            offset = _double(shape.get() - third)
            spread = 1.0 / (offset * 9.0).sqrt()  # NaN of what is negative or NaN: the first quick try ends it

            def attempt() -> Lanes:
                x = c.cell("double")

                def again() -> Lanes:
                    x.set(normal())
                    return (spread * x.get() + 1.0).le(0.0)

                c.repeat_while(again)
                root = spread * x.get() + 1.0
                v = root * root * root
                u = 1.0 - s.single()
                square = x.get() * x.get()
                sample.set(scale.get() * offset * v)
                quick = u.lt(1.0 - square * _single(0.0331) * square)
                exact = m.log(u).lt(square * 0.5 + offset * (1.0 - v + m.log(v)))
                return (quick | exact) ^ 1

            c.repeat_while(attempt)
        rounded = s.cast(_DOUBLE, d, sample.get())
        least = _LEAST[d.name]
        s.store(d, i, rounded.ge(least).select(rounded, rounded.like(least)))
    return s.finish(key)


def emit_poisson(key: str, d: dtype) -> str:
    """Words: rate (address). From a rate of 10 on by transformed rejection (PTRS of Hoermann 1993, "The transformed rejection method
    for generating Poisson random variables"), below by multiplying uniforms. Returns 1 where a rate is negative or NaN."""
    s = Stream(["rate"])
    c = s.c
    count, product = c.cell("double"), c.cell("double")

    def large(rate: Lanes) -> None:
        root, logarithm = rate.sqrt(), m.log(rate)
        b = root * 2.53 + 0.931
        a = b * 0.02483 - 0.059
        inverse = 1.1328 / (b - 3.4) + 1.1239
        bound = 0.9277 - 3.6224 / (b - 2.0)

        def attempt() -> Lanes:
            u, v = s.single() - 0.5, s.single()
            side = 0.5 - abs(u)
            k = ((a * 2.0 / side + b) * u + rate + 0.43).floor()
            count.set(k)
            box = side.ge(0.07) & v.le(bound)
            hopeless = k.lt(0.0) | (side.lt(0.013) & v.gt(side))
            level = m.log(v) + m.log(inverse) - m.log(a / (side * side) + b)
            under = level.le(k * logarithm - rate - m.lgamma(k + 1.0))
            return (box | ((hopeless ^ 1) & under)) ^ 1

        c.repeat_while(attempt)

    with c.for_(0, s.count) as i:
        rate = s.cast(d, _DOUBLE, _parameter(s, "rate", d, i))
        c.return_if(rate.ge(0.0) ^ 1, 1)
        count.set(rate)
        drawn = rate.gt(0.0) & rate.lt(float("inf"))
        with c.if_(drawn & rate.ge(10.0)):
            large(rate)
        with c.if_(drawn & rate.lt(10.0)):
            limit = m.exp(-rate)
            count.set(-1.0)
            product.set(1.0)

            def attempt() -> Lanes:
                product.set(product.get() * s.single())
                count.add(1.0)
                return product.get().gt(limit)

            c.repeat_while(attempt)
        s.store(d, i, s.cast(_DOUBLE, d, count.get()))
    return s.finish(key)


def _stirling_tail(s: Stream, k: Lanes) -> Lanes:
    """log k! minus Stirling's formula for it, for whole k >= 0."""
    square = (k + 1.0) * (k + 1.0)
    value = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1.0)
    for small, tail in enumerate(_TAILS):
        value = k.eq(float(small)).select(tail, value)
    return value


def emit_binomial(key: str, d: dtype) -> str:
    """Words: trials, chance (addresses). Fewer than 10 expected successes: waiting times, which are geometric (Devroye 1986, p. 525);
    more: BTRS of Hoermann 1993, with the logarithm that TensorFlow's version adds. Chances above 1/2 count the failures."""
    s = Stream(["trials", "chance"])
    c = s.c
    found, waited = c.cell("double"), c.cell("double")

    def waiting(n: Lanes, p: Lanes) -> None:
        logarithm = _double(m.log1p(_double(-p)).to(p.element, "fptrunc"))
        found.set(-1.0)
        waited.set(0.0)

        def attempt() -> Lanes:
            waited.add((m.log(s.single()) / logarithm).call("ceil"))
            found.add(1.0)
            return waited.get().gt(_double(n)) ^ 1

        c.repeat_while(attempt)

    def transformed(n: Lanes, p: Lanes) -> None:
        # Steps in the type of the parameters are ATen's: its count and probability are not widened first.
        deviation = _double((n * p * (1.0 - p)).sqrt())
        b = deviation * 2.53 + 1.15
        a = b * 0.0248 - 0.0873 + _double(p) * 0.01
        centre = _double(n * p) + 0.5
        bound = 0.92 - 4.2 / b
        odds = _double(p / (1.0 - p))
        alpha = (5.1 / b + 2.83) * deviation
        mode = _double(((n + 1.0) * p).floor())
        wide, more = _double(n), _double(n + 1.0)

        def attempt() -> Lanes:
            u, v = s.single() - 0.5, s.single()
            side = 0.5 - abs(u)
            k = ((a * 2.0 / side + b) * u + centre).floor()
            found.set(k)
            inside = (k.lt(0.0) | k.gt(wide)) ^ 1
            box = side.ge(0.07) & v.le(bound)
            level = m.log(v * alpha / (a / (side * side) + b))
            left, far = wide - k, wide - mode
            upper = (mode + 0.5) * m.log((mode + 1.0) / (odds * (far + 1.0))) + more * m.log((far + 1.0) / (left + 1.0))
            upper = upper + (k + 0.5) * m.log(odds * (left + 1.0) / (k + 1.0))
            upper = upper + _stirling_tail(s, mode) + _stirling_tail(s, far) - _stirling_tail(s, k) - _stirling_tail(s, left)
            return (inside & (box | level.le(upper))) ^ 1

        c.repeat_while(attempt)

    with c.for_(0, s.count) as i:
        n, p = _parameter(s, "trials", d, i), _parameter(s, "chance", d, i)
        found.set(float("nan"))
        seldom = p.le(0.5)
        rarer = seldom.select(p, 1.0 - p)
        drawn = n.gt(0.0) & p.gt(0.0) & p.lt(1.0) & n.lt(float("inf"))
        often = (n * rarer).ge(10.0)

        def choose(condition: Lanes, draw: Callable[[Lanes, Lanes], None]) -> None:
            with c.if_(drawn & condition):
                draw(n, rarer)

        choose(often, transformed)
        choose(often ^ 1, waiting)
        value = found.get()
        value = seldom.select(value, _double(n) - value)
        value = (n.gt(0.0) & p.ge(1.0)).select(_double(n), value)
        value = (n.le(0.0) | p.le(0.0)).select(0.0, value)
        s.store(d, i, s.cast(_DOUBLE, d, value))
    return s.finish(key)
