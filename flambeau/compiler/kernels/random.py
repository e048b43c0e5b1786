"""PyTorch's CPU random numbers: the native functions that fill memory from a Mersenne Twister (mt19937).

Every fill has a kernel's signature (`begin` is 0, `end` the number of elements) and is called by runtime/random.py; its
first words are the state, the target and the address of `draw`.
The state is (offsets in bytes): 0 u32 words[624]; 2496 i32 left; 2500 i32 next; 2504 double, the cached normal; 2512
i64, whether there is one. `left` and `next` mean what ATen's mt19937 means by them: `left` - 1 words can be drawn
before the next twist. A `left` of 0 is a generator that was seeded and not drawn from: the first word is there alone, and starts the others.

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
from flambeau.compiler.emit.lanes import Lanes
from flambeau.dtypes import dtype
from flambeau.runtime.target import Target

WORDS = 624  # Matsumoto and Nishimura 1998, "Mersenne Twister", table II: n, m and the masks of MT19937
SHIFT = 397
LEFT, NEXT, CACHED, HAS_CACHED, STATE_BYTES = 2496, 2500, 2504, 2512, 2520
STAGE = 4 * WORDS  # words on the stage: 10 KB
LOW53 = (1 << 53) - 1


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


def _start(c: Code, words: Array) -> None:
    """All words from the first (Knuth, TAOCP volume 2, third edition, p. 106)."""
    with c.for_(1, WORDS) as j:
        before = words[j - 1]
        words.store(j, (before ^ before.logical_right(30)) * 1812433253 + j.to("i32", "trunc"))


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
    with c.if_(left[0].le(0)):
        _start(c, words)
        left.store(0, 1)
    with c.while_(lambda: done.get().lt(count)):
        with c.if_(left[0].le(1)):
            _twist(c, words, width)
            left.store(0, WORDS + 1)
            position.store(0, 0)
        start = done.get()
        first = position[0].to("i64", "zext")
        take = c.min(count - start, left[0].to("i64", "zext") - 1)
        c.blocks(0, take, width, lambda i, lanes, mask: to.store(
            start + i, _temper(words.load(first + i, lanes, mask)), mask))  # fmt: skip
        taken = take.to("i32", "trunc")
        left.store(0, left[0] - taken)
        position.store(0, position[0] + taken)
        done.set(start + take)
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
        with c.for_(0, count, capacity) as first:
            size = c.min(count - first, capacity)
            self.draw(size * words)
            body(first, size)

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
            return (self.word64(i, width) & LOW53).to("double", "sitofp") * 2.0**-53
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
        with c.if_(left[0].gt(count)):
            self.stage.store(0, _temper(self.state.load(position[0].to("i64", "zext"), count)))
            left.store(0, left[0] - count)
            position.store(0, position[0] + count)
        with c.else_():
            self.draw(count)

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
            with c.if_(has_cached[0].ne(0)):
                use()
            with c.else_():
                make()
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
