"""Random numbers: the native functions that fill memory by a distribution, from the stage of words of random.py: ATen's, in its order of words."""

from __future__ import annotations

import math

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.kernels.random import LOW53, STAGE, Stream, library
from flambeau.dtypes import BY_NAME, dtype


def emit_uniform(key: str, d: dtype) -> str:
    """Words: low, high (doubles). u (high - low) + low, fused; what rounds up to `high` becomes `low`."""
    s = Stream(["low", "high"])
    wide = d.itemsize == 8
    low, high = s.double("low"), s.double("high")
    if not wide:
        low, high = low.to("float", "fptrunc"), high.to("float", "fptrunc")
    scale = high - low
    edge, restart = convert.narrow(d, high), convert.narrow(d, low)

    def make(i: Lanes, at: Lanes, width: int) -> Lanes:
        value = s.uniform(wide, i, width).fma(s.spread(scale, width), s.spread(low, width))
        value = convert.narrow(d, value)
        return value.ge(s.spread(edge, width)).select(s.spread(restart, width), value)

    s.elements(d, wide, s.bits // (64 if wide else 32), make)
    return s.finish(key)


def emit_transformed(key: str, d: dtype, kind: str) -> str:
    """Words: a, b (doubles). Distributions that transform a double uniform u:
    "exponential" (a: rate): -log1p(-u) / a; "geometric" (a: p): ceil(log u / log1p(-p)); "cauchy" (a: median, b:
    sigma): a + b tan(pi (u - 1/2)); "bernoulli" (a: p): u < p."""
    s = Stream(["a", "b"])
    c = s.c
    a, b = s.double("a"), s.double("b")
    double, boolean = BY_NAME["float64"], BY_NAME["bool"]
    if kind == "exponential":
        scale = c.value("double", -1.0) / a
    elif kind == "geometric":
        scale = library("log1p", -a)

    elif kind == "bernoulli":  # k 2^-53 < a where k < ceil(2^53 a), for an integer k
        limit = (a * 2.0**53).call("ceil").to("i64", "fptosi")

    def make(i: Lanes, at: Lanes, width: int) -> Lanes:
        if kind == "bernoulli":
            return s.cast(boolean, d, (s.word64(i, width) & LOW53).lt(s.spread(limit, width)))
        u = s.uniform(True, i, width)
        if kind == "exponential":
            value = s.spread(scale, width) * library("log1p", -u)
        elif kind == "geometric":
            value = (library("log", u) / s.spread(scale, width)).call("ceil")
        else:
            value = s.spread(b, width).fma(library("tan", (u - 0.5) * math.pi), s.spread(a, width))
        return s.cast(double, d, value)

    s.elements(d, True, s.bits // 64, make)
    return s.finish(key)


def emit_bernoulli_each(key: str, d: dtype, probability: dtype) -> str:
    """Words: p (address of as many probabilities as elements). u < p, in float, or in double where p is."""
    s = Stream(["p"])
    wide = probability.name == "float64"
    boolean, real = BY_NAME["bool"], BY_NAME["float64" if wide else "float32"]
    p = s.c.array("p", "i8")

    def make(i: Lanes, at: Lanes, width: int) -> Lanes:
        # Scalar where the tail would read past the end of p.
        source = p.after_bytes(at * probability.itemsize).pointer
        limit = convert.lanes(s.c.b, probability, convert.load(s.c.b, probability, source, width), width)
        return s.cast(boolean, d, s.uniform(wide, i, width).lt(s.cast(probability, real, limit)))

    s.elements(d, wide, 1, make)
    return s.finish(key)


def emit_integers(key: str, d: dtype, wide: bool) -> str:
    """Words: range, base. (draw % range) + base of 32-bit or 64-bit draws; a range of 0 means 2^64, without a base."""
    s = Stream(["range", "base"])
    c = s.c
    base, range_ = c.word("base"), c.word("range")
    integer = BY_NAME["int64"]

    def make64(i: Lanes, at: Lanes, width: int) -> Lanes:
        draw = s.word64(i, width)
        everything = range_.eq(0)
        kept = c.modulo(draw, everything.select(1, range_)) + base
        return s.cast(integer, d, everything.select(draw, kept))

    def make32(i: Lanes, at: Lanes, width: int) -> Lanes:
        # The quotient of two 32-bit integers, rounded to double, truncates exactly; x86 has no vector integer division.
        draw = s.word32(i, width).to("i64", "zext")
        divisor = s.spread(range_, width)
        quotient = (draw.to("double", "sitofp") / divisor.to("double", "sitofp")).to("i64", "fptosi")
        return s.cast(integer, d, draw - quotient * divisor + s.spread(base, width))

    if wide:
        s.elements(d, True, 1, make64)
    else:
        s.elements(d, False, s.bits // 64, make32)
    return s.finish(key)


def emit_permutation(key: str, wide: bool) -> str:
    """A permutation of 0 ... count - 1 as i64: Fisher and Yates, element i exchanged with i + draw % (count - i)."""
    s = Stream([])
    c = s.c
    to = s.to.at(0, "i64")
    width = s.bits // 64
    count = s.count
    targets = c.local_array("i64", STAGE + width)
    steps = c.iota("i64", width)
    c.blocks(0, count, width, lambda i, lanes, mask: to.store(i, c.splat(i, lanes) + steps, mask))

    def chunk(first: Lanes, size: Lanes) -> None:
        with c.for_(0, size, 1 if wide else width) as i:
            if wide:
                place = first + i
                targets.store(i, place + c.modulo(s.word64(i, 1), count - place))
            else:
                draw = s.word32(i, width).to("i64", "zext")
                place = c.splat(first + i, width) + steps
                left = c.splat(count, width) - place
                left = left.call("smax", 1)
                quotient = (draw.to("double", "sitofp") / left.to("double", "sitofp")).to("i64", "fptosi")
                targets.store(i, place + (draw - quotient * left))
        with c.for_(0, size) as i:
            c.prefetch(to.address(targets[c.min(i + 16, size - 1)]), write=True)
            there = targets[i]
            mine, other = to[first + i], to[there]
            to.store(there, mine)
            to.store(first + i, other)

    s.chunks(c.max(count - 1, 0), 2 if wide else 1, chunk)
    return s.finish(key)


def emit_multinomial(key: str, d: dtype) -> str:
    """Words: p (address), categories, samples, sums (address of `categories` floats or doubles). Units are rows: draws
    with replacement from each row of p, as i64, by bisection of the running sums (float, or double where p is).

    Returns 1 if a probability is negative, infinite or NaN, 2 if a row's sum is not positive."""
    s = Stream(["p", "categories", "samples", "sums"])
    c = s.c
    wide = d.name == "float64"
    real = BY_NAME["float64" if wide else "float32"]
    element = "double" if wide else "float"
    p, sums, to = c.array("p", "i8"), c.array("sums", element), s.to.at(0, "i64")
    categories, samples = c.word("categories"), c.word("samples")
    total = c.cell(element)
    low, high = c.cell("i64"), c.cell("i64")
    with c.for_(0, s.count) as r:
        total.set(0.0)
        with c.for_(0, categories) as j:
            at = p.after_bytes((r * categories + j) * d.itemsize).pointer
            loaded = Lanes(c.b, convert.register_element(d), 1, str(convert.load(c.b, d, at, 1)))
            value = s.cast(d, real, loaded)
            c.return_if((value.ge(0.0) & value.lt(float("inf"))) ^ 1, 1)
            total.add(value)
            sums.store(j, total.get())
        whole = total.get()
        c.return_if(whole.gt(0.0) ^ 1, 2)
        with c.for_(0, categories) as j:
            sums.store(j, sums[j] / whole)
        with c.for_(0, samples) as i:
            u = s.single()
            low.set(0)
            high.set(categories)
            with c.while_(lambda: high.get().gt(low.get())):
                middle = low.get() + c.divide(high.get() - low.get(), 2)
                below = sums[middle].to("double", "fpext").lt(u)
                high.set(below.select(high.get(), middle))
                low.set(below.select(middle + 1, low.get()))
            to.store(r * samples + i, c.min(low.get(), categories - 1))
    return s.finish(key)
