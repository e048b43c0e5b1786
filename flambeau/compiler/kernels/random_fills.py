"""Random numbers: the native functions that fill memory by a distribution, from the stage of words of random.py: ATen's, in its order of words."""

from __future__ import annotations

import math

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.lanes import Lanes, polynomial
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


# -- Normal ones, by Box and Muller, as ATen makes them: by vectors from 16 numbers on, else one by one (random.py) --
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
