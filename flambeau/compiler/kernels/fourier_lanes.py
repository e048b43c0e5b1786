"""Fourier transforms: the kernel that transforms a block of signals, one in each lane of a vector.

A unit loads its signals into the thread's scratch, has the stages done (fourier_stages.py), and stores the results. What the two sides look like in
memory is a `Side`: along a signal, numbers are `step` apart; the lanes lie

* "rows": each signal runs along memory: squares of vectors are transposed in registers;
* "pairs" and "planes": the signals of a block are neighbours: vectors of complex numbers, or of real parts alone;
* "any": neither: element by element.

Real transforms of an even length are complex ones of half of it, with a pass over the scratch before or after. The inverse transform is the transform
with real and imaginary parts exchanged on both sides. Every lane computes alone, so results do not depend on the other signals of a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.complex import add, sub
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernels.fourier_stages import ELEMENT, ITEMSIZE, Point, lanes_of, times
from flambeau.compiler.kernels.move_layout import Group
from flambeau.runtime.untracked import record


@record
@dataclass(frozen=True, slots=True)
class Facts:
    """What the code depends on. `before`, `after`: what is done between memory and the stages: "", "tangle", "untangle", "untangle_all", "mirror"."""

    real: str  # dtype of the parts
    inverse: bool
    outer: Group
    lane: Group  # the signals of a block are neighbours in it
    layouts: tuple[str, str]
    complex: tuple[bool, bool]
    before: str = ""
    after: str = ""
    stepped: bool = False  # results are multiplied by a table, see fourier_tables.steps
    convolved: bool = False  # the stages are those of a convolution, see `_Block.convolve`
    bits: int = 512

    @property
    def key(self) -> str:
        kinds = ":".join(f"{layout}{'c' if z else 'r'}" for layout, z in zip(self.layouts, self.complex, strict=True))
        flags = f"{'i' if self.inverse else 'f'}{'t' if self.stepped else ''}{'b' if self.convolved else ''}"
        return f"fourier:{self.real}:{flags}:{kinds}:{self.before}:{self.after}:{self.outer.fact}:{self.lane.fact}:{self.bits}"


def scratch_points(n: int, lanes: int) -> int:
    """Points of one of the two buffers: whole squares of columns are written."""
    return n + lanes + 1


def transform(facts: Facts, c: Code) -> None:
    """The body. Words: `x`, `to` (addresses), `stages` (function), `table`, `scratch`, `odd` (number of stages, modulo 2), `points` (of a buffer),
    `n` (of the stages), `blocks` (of a point of `outer`), `read`, `write` (points of each side), `step0`, `other0`, `step1`, `other1` (from point to
    point, from the real to the imaginary part, in parts), `scale` (a double's bits), `halves` and `steps` (tables); of a
    convolution `length`, `chirp` and `spectrum`."""
    block = _Block(c, facts, lanes_of(facts.real, c.b.target))
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as i:
        block.unit(i)


class _Block:
    """The code of a unit: `lanes` signals (the last block of a group has fewer)."""

    def __init__(self, c: Code, facts: Facts, lanes: int) -> None:
        self.c = c
        self.facts = facts
        self.lanes = lanes
        self.element = ELEMENT[facts.real]
        points = c.word("points") * (2 * lanes)
        area = c.array("scratch", self.element).at(c.named("i64", "%worker") * (points * 2))
        self.first, self.second = area, area.at(points)
        self.memory = c.array("x", self.element), c.array("to", self.element)
        self.addresses = c.local_array("i64", lanes)
        self.exchanged = int(facts.inverse)  # in the scratch
        self.n = c.word("n")

    # -- a unit -----------------------------------------------------------------------------------------------------
    def unit(self, u: Lanes) -> None:
        c, facts = self.c, self.facts
        o = c.divide(u, c.word("blocks"))
        self.low = (u - o * c.word("blocks")) * self.lanes
        self.count = c.min(c.word("count") - self.low, self.lanes)
        x, to = (side.at(offset) for side, offset in zip(self.memory, facts.outer.offsets(c, o), strict=True))
        self.load(x, self.second if facts.before else self.first)
        if facts.before:
            {"tangle": self.tangle, "mirror": self.mirror}[facts.before](self.second, self.first)
        if facts.convolved:
            result, free = self.convolve()
        else:
            result, free = self.stages(self.first, self.second)
        if facts.after:
            self.untangle(result, free)
            result, free = free, result
        self.store(result, free, to)

    def stages(self, source: Array, other: Array) -> tuple[Array, Array]:
        """The transform of a buffer: where it is, and the other one."""
        c = self.c
        c.b.call_address(c.array("stages", "i8").pointer, [("ptr", a.pointer) for a in (source, other, c.array("table", "i8"))])
        odd = c.word("odd").ne(0).name
        first, second = (Array(c, c.b.op(f"select i1 {odd}, ptr {a.pointer}, ptr {b.pointer}"), self.element) for a, b in ((other, source), (source, other)))
        return first, second

    def convolve(self) -> tuple[Array, Array]:
        """The transform of n points in `first` as a convolution of `length` points (Bluestein 1970): times the chirp, transformed, times the transform of
        the conjugate chirp, transformed back (with real and imaginary parts exchanged), times the chirp."""
        c, lanes = self.c, self.lanes
        size = 2 * lanes
        width = c.word("length")

        def multiply(array: Array, table: str, high: Lanes, exchange: bool, before: bool = False) -> None:
            numbers = c.array(table, self.element)
            with c.for_(0, high) as k:
                at = array.at(k * size)
                value = at.load(0, lanes), at.load(lanes, lanes)
                if before:
                    value = value[1], value[0]
                made = times(value, (c.splat(numbers[k * 2], lanes), c.splat(numbers[k * 2 + 1], lanes)))
                at.store(lanes if exchange else 0, made[0])
                at.store(0 if exchange else lanes, made[1])

        multiply(self.first, "chirp", self.n, False)
        c.clear_bytes(self.first.at(self.n * size), (width - self.n) * (size * ITEMSIZE[self.facts.real]))
        result, free = self.stages(self.first, self.second)
        multiply(result, "spectrum", width, True)
        result, free = self.stages(result, free)
        multiply(result, "chirp", self.n, False, before=True)
        return result, free

    def get(self, array: Array, point: Lanes | int) -> Point:
        """A point of a buffer."""
        at = array.at(point * (2 * self.lanes))
        return at.load(self.exchanged * self.lanes, self.lanes), at.load((1 - self.exchanged) * self.lanes, self.lanes)

    def put(self, array: Array, point: Lanes | int, value: Point) -> None:
        at = array.at(point * (2 * self.lanes))
        at.store(self.exchanged * self.lanes, value[0])
        at.store((1 - self.exchanged) * self.lanes, value[1])

    # -- between memory and the scratch -----------------------------------------------------------------------------
    def find(self, side: int, start: Array, spare: Array | None = None) -> None:
        """The addresses of the block's signals; past the last one that of the last, or `spare` memory."""
        c = self.c
        with c.for_(0, self.lanes) as i:
            offset = self.facts.lane.offsets(c, self.low + c.min(i, self.count - 1))[side]
            address = c.named("i64", c.b.op(f"ptrtoint ptr {start.address(offset)} to i64"))
            if spare is not None:
                other = c.named("i64", c.b.op(f"ptrtoint ptr {spare.pointer} to i64"))
                address = i.lt(self.count).select(address, other)
            self.addresses.store(i, address)

    def signal(self, i: Lanes | int) -> Array:
        """The memory of the block's signal i."""
        return Array(self.c, self.c.b.op(f"inttoptr i64 {self.addresses[i].name} to ptr"), self.element)

    def load(self, start: Array, to: Array) -> None:
        c, is_complex, lanes = self.c, self.facts.complex[0], self.lanes
        layout, points = self.facts.layouts[0], c.word("read")
        nothing = c.value(self.element, 0.0, lanes)
        if layout == "rows":
            self.find(0, start)

            def square(low: Lanes, width: int, mask: str | None) -> None:
                rows = [self.signal(i).load(low, lanes, mask).name for i in range(lanes)]
                for i, name in enumerate(transpose_vectors(c.b, self.element, rows)):
                    column = c.named(self.element, name, lanes)
                    if is_complex:
                        to.at((low + (i ^ self.exchanged)) * lanes).store(0, column)
                    else:
                        self.put(to, low + i, (column, nothing))

            c.blocks(0, points * 2 if is_complex else points, lanes, square)
            return
        step, other = c.word("step0"), c.word("other0")
        if layout == "any":
            self.find(0, start)
            with c.for_(0, lanes) as i:
                source = self.signal(i)
                with c.for_(0, points) as p:
                    at = to.at(p * (2 * lanes) + i)
                    at.store(self.exchanged * lanes, source[p * step])
                    at.store((1 - self.exchanged) * lanes, source[p * step + other] if is_complex else 0.0)
            return
        near = start.at(self.low * (2 if layout == "pairs" else 1))

        def neighbours(masks: list[str | None], p: Lanes) -> None:
            at = near.at(p * step)
            if layout == "pairs":
                value = self._apart(at, masks)
            else:
                value = at.load(0, lanes, masks[2]), at.load(other, lanes, masks[2]) if is_complex else nothing
            self.put(to, p, value)

        self.whole_or_part(lambda masks: self.each_point(points, partial(neighbours, masks)))

    def each_point(self, points: Lanes, body: Callable[[Lanes], None]) -> None:
        with self.c.for_(0, points) as p:
            body(p)

    def whole_or_part(self, body: Callable[[list[str | None]], None]) -> None:
        """`body` without masks where all lanes are used, else with those of the first and the second half of pairs, and that of the lanes."""
        c, lanes = self.c, self.lanes
        with c.if_(self.count.eq(lanes)):
            body([None] * 3)
        with c.else_():
            twice = self.count * 2
            body([c.tail_mask(twice, lanes), c.tail_mask(twice - lanes, lanes), c.tail_mask(self.count, lanes)])

    def _apart(self, at: Array, masks: list[str | None]) -> Point:
        """The real and imaginary parts of neighbouring complex numbers."""
        lanes = self.lanes
        a, b = at.load(0, lanes, masks[0]), at.load(lanes, lanes, masks[1])
        return self.c.shuffle(a, b, range(0, 2 * lanes, 2)), self.c.shuffle(a, b, range(1, 2 * lanes, 2))

    def store(self, source: Array, spare: Array, start: Array) -> None:
        c, facts, is_complex, lanes = self.c, self.facts, self.facts.complex[1], self.lanes
        layout, points = facts.layouts[1], c.word("write")
        number = Lanes(c.b, "double", 1, c.b.op(f"bitcast i64 {c.word('scale').name} to double"))
        scale = number.to(self.element, "fptrunc")
        all_scale = c.splat(scale, lanes)
        if layout == "rows":
            self.find(1, start, spare)

            def square(low: Lanes, width: int, mask: str | None) -> None:
                if is_complex:
                    columns = [source.at((low + (i ^ self.exchanged)) * lanes).load(0, lanes) for i in range(lanes)]
                else:
                    columns = [self.get(source, low + i)[0] for i in range(lanes)]
                rows = transpose_vectors(c.b, self.element, [(x * all_scale).name for x in columns])
                for i, name in enumerate(rows):
                    self.signal(i).store(low, c.named(self.element, name, lanes), mask)

            c.blocks(0, points * 2 if is_complex else points, lanes, square)
            return
        step, other = c.word("step1"), c.word("other1")
        if layout == "any":
            self.find(1, start)
            with c.for_(0, self.count) as i:
                target = self.signal(i)
                with c.for_(0, points) as p:
                    at = source.at(p * (2 * lanes) + i)
                    target.store(p * step, at[self.exchanged * lanes] * scale)
                    if is_complex:
                        target.store(p * step + other, at[(1 - self.exchanged) * lanes] * scale)
            return
        near = start.at(self.low * (2 if layout == "pairs" else 1))

        def neighbours(masks: list[str | None], p: Lanes) -> None:
            at = near.at(p * step)
            value = self.get(source, p)
            if facts.stepped:
                w = self._apart(c.array("steps", self.element).at((p * c.word("count") + self.low) * 2), masks)
                value = times(value, (w[0], -w[1]) if facts.inverse else w)
            x, y = value[0] * all_scale, value[1] * all_scale
            if layout == "pairs":
                half = lanes // 2
                for part, mask in enumerate(masks[:2]):
                    order = [lane for i in range(part * half, (part + 1) * half) for lane in (i, lanes + i)]
                    at.store(part * lanes, c.shuffle(x, y, order), mask)
                return
            at.store(0, x, masks[2])
            if is_complex:
                at.store(other, y, masks[2])

        self.whole_or_part(lambda masks: self.each_point(points, partial(neighbours, masks)))

    # -- real transforms --------------------------------------------------------------------------------------------
    def root(self, k: Lanes) -> Point:
        """exp(-2 pi i k / (2 n)), in every lane."""
        table = self.c.array("halves", self.element).at(k * 2)
        return self.c.splat(table[0], self.lanes), self.c.splat(table[1], self.lanes)

    def untangle(self, source: Array, to: Array) -> None:
        """From the transform of n pairs of real numbers to the first n + 1 points of the transform of all 2 n, or to all of them."""
        whole = self.facts.after == "untangle_all"
        c, n = self.c, self.n
        x = self.get(source, 0)
        nothing = x[0].like(0.0)
        self.put(to, 0, (x[0] + x[1], nothing))
        self.put(to, n, (x[0] - x[1], nothing))
        with c.for_(1, self.half() + 1) as k:
            x, (y0, y1) = self.get(source, k), self.get(source, n - k)
            even, odd = add(x, (y0, -y1)), sub(x, (y0, -y1))
            even = even[0] * 0.5, even[1] * 0.5
            odd = times((odd[1] * 0.5, odd[0] * -0.5), self.root(k))
            self.put(to, k, add(even, odd))
            first, last = add(even, odd), sub(even, odd)
            self.put(to, n - k, (last[0], -last[1]))
            if whole:
                self.put(to, n + k, last)
                self.put(to, n * 2 - k, (first[0], -first[1]))

    def tangle(self, source: Array, to: Array) -> None:
        """The reverse: pairs of real numbers will come out. The imaginary parts of the first and the last point do not count."""
        c, n = self.c, self.n
        first, last = self.get(source, 0)[0], self.get(source, n)[0]
        self.put(to, 0, (first + last, first - last))
        with c.for_(1, self.half() + 1) as k:
            x, (y0, y1) = self.get(source, k), self.get(source, n - k)
            even, odd = add(x, (y0, -y1)), sub(x, (y0, -y1))
            w = self.root(k)
            odd = times(odd, (w[0], -w[1]))
            self.put(to, k, (even[0] - odd[1], even[1] + odd[0]))
            self.put(to, n - k, (even[0] + odd[1], odd[0] - even[1]))

    def mirror(self, source: Array, to: Array) -> None:
        """All n points of the transform of real numbers from its first n // 2 + 1; what is its own mirror image is real."""
        c, n = self.c, self.n
        first = self.get(source, 0)[0]
        self.put(to, 0, (first, first.like(0.0)))
        with c.for_(1, self.half() + 1) as k:
            x = self.get(source, k)
            self.put(to, k, x)
            self.put(to, n - k, (x[0], -x[1]))
        if self.facts.convolved:  # only then is n even
            with c.if_((n & 1).eq(0)):
                self.put(to, self.half(), (self.get(source, self.half())[0], first.like(0.0)))

    def half(self) -> Lanes:
        return self.n.logical_right(1)
