"""Matrix products by dot instructions of vectors (AVX512-BF16's `vdpbf16ps`, AVX512-VNNI's `vpdpbusd`): 32 bits of k at once.

One instruction adds to 16 sums of 32 bits the products of a group of neighbours of k, two of bfloat16 or four of int8: a's group in
every lane, one group of b in each. Panels, loops and waiting sums are those of the matrix unit (matmul_tiles.py), whose tiles hold the same
groups; only the micro-kernel is another. It takes `HEIGHT` rows of a at a time:

    for each HEIGHT rows of the panel of a
        HEIGHT x 2 vectors of sums in registers
        for each step (64 bytes of k): 16 groups, each 2 vectors of b and HEIGHT broadcasts of a

bfloat16: each product is exact, each addition is rounded to nearest even; denormal operands and sums count as zero (AMD64 Architecture
Programmer's Manual, volume 4, VDPBF16PS). The order of additions into an element depends on K only.

int8: `vpdpbusd` multiplies unsigned by signed bytes. So a's are shifted, a + 128 (the highest bit is turned round) while they are packed, and sums start at
-128 times the sum of b's column: exact modulo 2^32. The columns' sums are taken of the packed panels, by the same instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernels.description import Writer
from flambeau.compiler.kernels.matmul_blocking import Blocking
from flambeau.compiler.kernels.matmul_driver import Driver, Way
from flambeau.compiler.kernels.matmul_micro import store_part
from flambeau.compiler.kernels.matmul_tile_pack import HIGH_BITS, LANES, STEP_BYTES
from flambeau.compiler.kernels.matmul_tiles import TileDriver, of_unit, shared_tiles, tile_block
from flambeau.compiler.tile.contract import Operands, contract

if TYPE_CHECKING:
    from flambeau.compiler.kernels.matmul_element import Element, Facts
    from flambeau.runtime.target import Target

HEIGHT: Final = 8  # rows at once: 16 vectors of sums hide the latency of 6 cycles, and the panel's 32 rows are four times as many
STEPS: Final = 16  # steps between two visits of a column panel, about: sums are loaded and stored as seldom
_GROUPS: Final = 16  # of a step
_VECTOR: Final = 64  # bytes
_COLUMN_SUMS: Final = Parameters("steps panels* width sums*")


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction sums + a . b: its name, and the types of its vectors of sums and of operands."""

    name: str
    sums: str
    operand: str
    shifted: bool = False  # a must be unsigned

    @property
    def parameters(self) -> Parameters:
        """Of the micro-kernels."""
        return Parameters(f"steps a* b* sums* add:i1 tall{' start*' * self.shifted}")

    def add(self, b: Builder, left: str, right: str, sums: str) -> str:
        """`left` and `right` are <16 x i32>."""
        cast = [b.op(f"bitcast <16 x i32> {value} to {self.operand}") for value in (left, right)]
        return b.call(self.sums, self.name, [(self.sums, sums), *[(self.operand, value) for value in cast]])


DOTS: Final = {
    "bfloat16": Dot("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>"),
    "int8": Dot("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<64 x i8>", shifted=True),
}


def dots_block(element: Element, blocking: Blocking) -> Blocking:
    """The blocks of the matrix unit's loops, with room for the columns' sums."""
    if not DOTS[element.name].shifted:
        return blocking
    return replace(blocking, scratch_bytes=blocking.scratch_bytes + 4 * blocking.b_columns)


class DotDriver(TileDriver):
    """The loops around the micro-kernel. It calls `pack_a`, `pack_b`, `dots_1`, `dots_2`, `column_sums` and `store_part`."""

    part_steps = STEPS

    def __init__(self, b: Builder, facts: Facts, w: dict[str, str], has_epilogue: bool) -> None:
        super().__init__(b, facts, w, has_epilogue)
        self.dot = DOTS[facts.element.name]

    def write(self) -> None:
        Driver.write(self)

    def end(self) -> None:
        """Nothing is to be released."""

    def column_sums(self) -> str:
        """Address of -128 times the sums of the columns: the end of the worker's scratch."""
        return self.b.gep("i8", self.scratch, self.b.sub(self.w["scratch_bytes"], self.b.mul(self.w["b_columns"], 4)))

    def take_columns(self, block: str, column: str, width: str) -> None:
        super().take_columns(block, column, width)
        if self.dot.shifted:
            self.b.invoke("column_sums", _COLUMN_SUMS, self.steps, self.panels_b, width, self.column_sums())

    def multiply_tiles(self, steps: str, left: str, right: str, buffer: str, add: str, tall: str, wide: str) -> None:
        b = self.b
        values = [steps, left, right, buffer, add, tall]
        if self.dot.shifted:
            first = b.op(f"icmp eq i64 {self.part}, 0")
            at = b.gep("i32", self.column_sums(), self.panel)
            values.append(b.op(f"select i1 {first}, ptr {at}, ptr @no_column_sums"))
        broad = b.op(f"icmp sgt i64 {wide}, 16")
        with b.if_(broad):
            b.invoke("dots_2", self.dot.parameters, *values)
        with b.if_(b.op(f"xor i1 {broad}, true")):
            b.invoke("dots_1", self.dot.parameters, *values)


def dots(b: Builder, element: Element, vectors: int) -> str:
    """Text of `dots_V(steps, a, b, sums, add, tall)`: `tall` rows times `vectors` vectors of columns, over `steps` of two panels.

    int8 has a last parameter, `start`: 32 numbers to add to the sums of each column.
    """
    dot = DOTS[element.name]
    with b.for_(0, "%tall", HEIGHT) as row:
        sums = b.gep("i8", "%sums", b.mul(row, 4 * LANES))
        # A row's 64 bytes of a step lie together; the panel's upper 16 rows behind the lower ones.
        left = b.gep("i8", "%a", b.mul(row, _VECTOR))
        places = [b.gep("i8", sums, 4 * LANES * i + _VECTOR * v) for i in range(HEIGHT) for v in range(vectors)]
        before, adding, starting = b.block, b.new_label("add"), b.new_label("start")
        b.emit(f"br i1 %add, label %{adding}, label %{starting}")
        b.label(adding)
        old = [b.load(dot.sums, at, _VECTOR) for at in places]
        b.branch(starting)
        b.label(starting)
        first = [b.op(f"phi {dot.sums} [{value}, %{adding}], [zeroinitializer, %{before}]") for value in old]
        if dot.shifted:
            more = [b.load(dot.sums, b.gep("i8", "%start", _VECTOR * v), _VECTOR) for v in range(vectors)]
            first = [b.op(f"add {dot.sums} {value}, {more[i % vectors]}") for i, value in enumerate(first)]

        def step(s: str) -> Iterator[Operands[str, str]]:
            at = b.mul(s, STEP_BYTES)
            a_at, b_at = b.gep("i8", left, at), b.gep("i8", "%b", at)
            for g in range(_GROUPS):
                right = [b.load("<16 x i32>", b.gep("i8", b_at, 1024 * v + _VECTOR * g), _VECTOR) for v in range(vectors)]
                yield (b.splat("i32", 16, b.load("i32", b.gep("i8", a_at, _VECTOR * i + 4 * g), 4)) for i in range(HEIGHT)), right

        results = contract(b, "%steps", [(dot.sums, value) for value in first], add=partial(dot.add, b), read=step)
        for value, at in zip(results, places, strict=True):
            b.store(dot.sums, value, at, _VECTOR)
    return b.define(f"dots_{vectors}", dot.parameters)


def column_sums(b: Builder, element: Element) -> str:
    """Text of `column_sums(steps, panels, width, sums)`: -128 times the sum of each column over the packed steps."""
    dot = DOTS[element.name]
    with b.for_(0, "%width", LANES) as j:
        number = b.op(f"udiv i64 {j}, {LANES}")
        source = b.gep("i8", "%panels", b.mul(number, b.mul("%steps", STEP_BYTES)))
        with b.fold(0, "%steps", 1, [(dot.sums, "zeroinitializer")] * 2) as (s, sums):
            at = b.gep("i8", source, b.mul(s, STEP_BYTES))
            following = list(sums)
            for g in range(_GROUPS):
                for v in range(2):
                    right = b.load("<16 x i32>", b.gep("i8", at, 1024 * v + _VECTOR * g), _VECTOR)
                    following[v] = dot.add(b, HIGH_BITS, right, following[v])
            sums[:] = following
        for v, value in enumerate(sums):
            b.store(dot.sums, b.op(f"sub {dot.sums} zeroinitializer, {value}"), b.gep("i32", "%sums", b.add(j, 16 * v)), _VECTOR)
    return b.define("column_sums", _COLUMN_SUMS)


def dots_way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """A product of elements that dot instructions take."""
    facts = of_unit(facts)
    element = facts.element
    dot = DOTS[element.name]
    constants = ["@no_column_sums = internal constant [32 x i32] zeroinitializer, align 64"] * dot.shifted
    helpers: list[Writer] = [partial(dots, element=element, vectors=vectors) for vectors in (1, 2)]
    if dot.shifted:
        helpers.append(partial(column_sums, element=element))
    helpers.append(partial(store_part, element=element, tile=facts.tile, c_unit=facts.c_unit))
    left, functions = shared_tiles(facts, flips=dot.shifted)
    return Way("dots", DotDriver, left, dots_block(element, tile_block(element, m, n, k, batches, host)), functions, helpers, constants)
