"""PyTorch's CPU random numbers: the native functions that fill memory from a Mersenne Twister (mt19937).

Every fill has a kernel's signature (`begin` is 0, `end` the number of elements) and is called by runtime/random.py; its
first words are the state, the target and the address of `draw`.
The state is (offsets in bytes): 0 u32 words[624]; 2496 i32 left; 2500 i32 next; 2504 double, the cached normal; 2512
i64, whether there is one. `left` and `next` mean what ATen's mt19937 means by them: `left` - 1 words can be drawn
before the next twist.

A fill goes in two steps, so that both are vector code: `draw` puts tempered words on a stage in the first-level cache,
and the distribution turns the stage into elements. How many words an element takes, and in which order, is ATen's
(DistributionTemplates.h, TransformationHelper.h), checked against PyTorch 2.13.0 in tests/test_random_stream.py:
* a 32-bit draw is one word; a 64-bit draw is two, the high half first;
* uniform floats: the low 24 bits of a word; doubles: the low 53 bits of a 64-bit draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.builder import module
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes, polynomial
from flambeau.dtypes import BY_NAME, dtype
from flambeau.runtime.target import Target

WORDS = 624  # Matsumoto and Nishimura 1998, "Mersenne Twister", table II: n, m and the masks of MT19937
SHIFT = 397
LEFT, NEXT, CACHED, HAS_CACHED, STATE_BYTES = 2496, 2500, 2504, 2512, 2520
STAGE = 4 * WORDS  # words on the stage: 10 KB
_LOW53 = (1 << 53) - 1


# -- The generator
# ------------------------------------------------------------------------------------------------------
def _twist(c: Code, words: Array, width: int) -> None:
    """The next 624 words, in place. A vector never reads what it has written: 227 words lie between."""

    def mixed(now: Lanes, following: Lanes, far: Lanes) -> Lanes:
        y = (now & 0x80000000) | (following & 0x7FFFFFFF)
        odd = -(y & 1) & 0x9908B0DF
        return far ^ y.logical_right(1) ^ odd

    def step(distance: int) -> Callable[[Lanes, int, str | None], None]:
        def body(i: Lanes, lanes: int, mask: str | None) -> None:
            now, following, far = (words.load(i + ahead, lanes, mask) for ahead in (0, 1, distance))
            words.store(i, mixed(now, following, far), mask)

        return body

    c.blocks(0, WORDS - SHIFT, width, step(SHIFT))
    c.blocks(WORDS - SHIFT, WORDS - 1, width, step(SHIFT - WORDS))
    words.store(WORDS - 1, mixed(words[WORDS - 1], words[0], words[SHIFT - 1]))


def _temper(y: Lanes) -> Lanes:
    y = y ^ y.logical_right(11)
    y = y ^ ((y << 7) & 0x9D2C5680)
    y = y ^ ((y << 15) & 0xEFC60000)
    return y ^ y.logical_right(18)


def emit_draw(key: str) -> str:
    """`void (ptr state, ptr to, i64 count)`: the next `count` words. One module for all fills, which call it by
    address."""
    from flambeau.runtime.jit import symbol

    c = Code([], Target.host())
    width = c.b.target.lanes
    words, to = Array(c, "%state", "i32"), Array(c, "%to", "i32")
    left = words.after_bytes(c.i64(LEFT))
    position = words.after_bytes(c.i64(NEXT))
    count = c.named("i64", "%count")
    done = c.cell("i64")

    def some() -> None:
        def refill() -> None:
            _twist(c, words, width)
            left.store(0, WORDS + 1)
            position.store(0, 0)

        c.when(left[0].le(1), refill)
        start = done.get()
        first = position[0].to("i64", "zext")
        take = c.min(count - start, left[0].to("i64", "zext") - 1)
        c.blocks(0, take, width, lambda i, lanes, mask: to.store(
            start + i, _temper(words.load(first + i, lanes, mask)), mask))  # fmt: skip
        taken = take.to("i32", "trunc")
        left.store(0, left[0] - taken)
        position.store(0, position[0] + taken)
        done.set(start + take)

    c.while_(lambda: done.get().lt(count), some)
    header = f"define void @{symbol(key)}(ptr %state, ptr noalias %to, i64 %count) #0"
    return module([c.b.function(header)], c.b.declarations, c.b.target)


class Stream:
    """Code of one fill: `draw` words to a stage, then use them."""

    def __init__(self, names: list[str]) -> None:
        self.c = Code(["state", "to", "draw", *names], Target.host())
        self.bits = self.c.b.target.vector_bits
        self.state = self.c.array("state", "i32")
        self.to = self.c.array("to", "i8")
        self.draw_function = self.c.array("draw", "i8").pointer
        self.count = self.c.named("i64", "%end")
        # One vector more, so that a whole vector can be read at the end.
        self.stage = self.c.local_array("i32", STAGE + 64)

    def double(self, name: str) -> Lanes:
        """An argument word that holds a double."""
        return self.c.word(name).as_float()

    def draw(self, count: Lanes | int) -> None:
        name = self.c.i64(count).name
        arguments = f"ptr {self.state.pointer}, ptr {self.stage.pointer}, i64 {name}"
        self.c.b.emit(f"call void {self.draw_function}({arguments})")

    def chunks(self, count: Lanes, words: int, body: Callable[[Lanes, Lanes], None]) -> None:
        """`body(first element, number of elements)` for stages full of elements of `words` words each."""
        c, capacity = self.c, STAGE // words

        def chunk(first: Lanes) -> None:
            size = c.min(count - first, capacity)
            self.draw(size * words)
            body(first, size)

        c.for_(0, count, chunk, capacity)

    def word32(self, i: Lanes, width: int) -> Lanes:
        """32-bit draws i, i + 1, ... of the stage."""
        return self.stage.load(i, width)

    def word64(self, i: Lanes, width: int) -> Lanes:
        """64-bit draws i, i + 1, ... of the stage: the first word is the high half."""
        pair = self.stage.at(0, "i64").load(i, width)
        return pair.call("fshl", pair, 32)

    def uniform(self, wide: bool, i: Lanes, width: int) -> Lanes:
        """Uniform numbers of [0, 1): 24 bits as float, or 53 bits as double."""
        if wide:
            return (self.word64(i, width) & _LOW53).to("double", "sitofp") * 2.0**-53
        return (self.word32(i, width) & 0xFFFFFF).to("float", "sitofp") * 2.0**-24

    def spread(self, value: Lanes, width: int) -> Lanes:
        return self.c.splat(value, width)

    def store(self, d: dtype, index: Lanes, value: Lanes, mask: str | None = None) -> None:
        """Elements from `index` on of the result; the lanes are a register value of dtype `d`."""
        at = self.to.after_bytes(index * d.itemsize)
        convert.store(self.c.b, d, value.name, at.pointer, value.width, mask)

    def elements(self, d: dtype, wide: bool, width: int, make: Callable[[Lanes, Lanes, int], Lanes]) -> None:
        """Each element from one 32-bit (or, `wide`, 64-bit) draw: `make(stage index, element index, lanes)`, a register
        value of dtype `d`."""

        def chunk(first: Lanes, size: Lanes) -> None:
            self.c.blocks(0, size, width, lambda i, lanes, mask: self.store(
                d, first + i, make(i, first + i, lanes), mask))  # fmt: skip

        self.chunks(self.count, 2 if wide else 1, chunk)

    def cast(self, source: dtype, target: dtype, value: Lanes) -> Lanes:
        name = convert.cast(self.c.b, source, target, value.name, value.width)
        assert isinstance(name, str)
        return Lanes(self.c.b, convert.register_element(target), value.width, name)

    def take(self, count: int) -> None:
        """`draw` of 2 or 4 words, without the call where no twist comes between them."""
        c = self.c
        left, position = self.state.after_bytes(c.i64(LEFT)), self.state.after_bytes(c.i64(NEXT))

        def inline() -> None:
            self.stage.store(0, _temper(self.state.load(position[0].to("i64", "zext"), count)))
            left.store(0, left[0] - count)
            position.store(0, position[0] + count)

        c.when(left[0].gt(count), inline, lambda: self.draw(count))

    def single(self) -> Lanes:
        """The next uniform double of [0, 1)."""
        self.take(2)
        return self.uniform(True, self.c.i64(0), 1)

    def normals(self) -> Callable[[], Lanes]:
        """A function that draws the next normal double: they come in pairs (Box and Muller 1958), and the second of each pair is
        kept in the state for the next call, whoever makes it."""
        c = self.c
        cached = self.state.after_bytes(c.i64(CACHED), "double")
        has_cached = self.state.after_bytes(c.i64(HAS_CACHED), "i64")
        sample = c.cell("double")

        def use() -> None:
            sample.set(cached[0])
            has_cached.store(0, 0)

        def make() -> None:
            self.take(4)
            u1, u2 = self.uniform(True, c.i64(0), 1), self.uniform(True, c.i64(1), 1)
            radius = (library("log1p", -u2) * -2.0).sqrt()
            angle = u1 * (2.0 * math.pi)
            cached.store(0, radius * library("sin", angle))
            has_cached.store(0, 1)
            sample.set(radius * library("cos", angle))

        def draw() -> Lanes:
            c.when(has_cached[0].ne(0), use, make)
            return sample.get()

        return draw

    def finish(self, key: str) -> str:
        from flambeau.runtime.jit import symbol

        return self.c.kernel(symbol(key))


def library(function: str, x: Lanes) -> Lanes:
    """A function of the C library on double lanes, one by one: PyTorch's random doubles are made with it, so that ours are equal bit
    for bit. Our own functions, as exact ones, differ in the last place of 0.4 % of the normals."""
    if x.width == 1:
        return Lanes(x.b, "double", 1, x.b.call("double", function, [("double", x.name)]))
    result = "poison"
    for lane in range(x.width):
        value = x.b.op(f"extractelement {x.type} {x.name}, i32 {lane}")
        value = x.b.call("double", function, [("double", value)])
        result = x.b.op(f"insertelement {x.type} {result}, double {value}, i32 {lane}")
    return Lanes(x.b, "double", x.width, result)


# -- Distributions
# --------------------------------------------------------------------------------------------------------
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
                c.when(count.gt(16), put)
            elif not g or count is None:
                put()

    whole = c.divide(s.count, 16) * 16

    def chunk(first: Lanes, size: Lanes) -> None:
        pairs = c.divide(size, 16 * groups) * (16 * groups)
        c.for_(0, pairs, lambda i: sixteens(i, first + i, None), 16 * groups)
        if groups > 1:
            c.when(pairs.lt(size), lambda: sixteens(pairs, first + pairs, size - pairs))

    s.chunks(whole, 2 if wide else 1, chunk)

    def again() -> None:
        if d.itemsize > 2:  # PyTorch fills all elements before it draws the last ones again, unless they are narrow
            s.draw((s.count - whole) * (2 if wide else 1))
        s.draw(32 if wide else 16)
        sixteens(c.i64(0), s.count - 16, c.i64(16))

    c.when(whole.ne(s.count), again)
    return s.finish(key)


def emit_normal_serial(key: str, d: dtype, logarithmic: bool) -> str:
    """Words: mean, std (doubles). One by one, in double; the second of each pair is kept for the next call, whoever
    makes it. `logarithmic`: exp of it."""
    s = Stream(["mean", "std"])
    c = s.c
    draw = s.normals()

    def one(i: Lanes) -> None:
        value = draw().fma(s.double("std"), s.double("mean"))
        if logarithmic:
            value = library("exp", value)
        s.store(d, i, s.cast(BY_NAME["float64"], d, value))

    c.for_(0, s.count, one)
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
            return s.cast(boolean, d, (s.word64(i, width) & _LOW53).lt(s.spread(limit, width)))
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
        def aim32(i: Lanes) -> None:
            draw = s.word32(i, width).to("i64", "zext")
            place = c.splat(first + i, width) + steps
            left = c.splat(count, width) - place
            left = left.call("smax", 1)
            quotient = (draw.to("double", "sitofp") / left.to("double", "sitofp")).to("i64", "fptosi")
            targets.store(i, place + (draw - quotient * left))

        def aim64(i: Lanes) -> None:
            place = first + i
            targets.store(i, place + c.modulo(s.word64(i, 1), count - place))

        c.for_(0, size, aim64 if wide else aim32, 1 if wide else width)

        def exchange(i: Lanes) -> None:
            c.prefetch(to.address(targets[c.min(i + 16, size - 1)]), write=True)
            there = targets[i]
            mine, other = to[first + i], to[there]
            to.store(there, mine)
            to.store(first + i, other)

        c.for_(0, size, exchange)

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

    def row(r: Lanes) -> None:
        total.set(0.0)

        def accumulate(j: Lanes) -> None:
            at = p.after_bytes((r * categories + j) * d.itemsize).pointer
            loaded = Lanes(c.b, convert.register_element(d), 1, str(convert.load(c.b, d, at, 1)))
            value = s.cast(d, real, loaded)
            c.return_if((value.ge(0.0) & value.lt(float("inf"))) ^ 1, 1)
            total.add(value)
            sums.store(j, total.get())

        c.for_(0, categories, accumulate)
        whole = total.get()
        c.return_if(whole.gt(0.0) ^ 1, 2)
        c.for_(0, categories, lambda j: sums.store(j, sums[j] / whole))

        def sample(i: Lanes) -> None:
            u = s.single()
            low.set(0)
            high.set(categories)

            def halve() -> None:
                middle = low.get() + c.divide(high.get() - low.get(), 2)
                at = sums[middle].to("double", "fpext")
                below = at.lt(u)
                high.set(below.select(high.get(), middle))
                low.set(below.select(middle + 1, low.get()))

            c.while_(lambda: high.get().gt(low.get()), halve)
            to.store(r * samples + i, c.min(low.get(), categories - 1))

        c.for_(0, samples, sample)

    c.for_(0, s.count, row)
    return s.finish(key)
