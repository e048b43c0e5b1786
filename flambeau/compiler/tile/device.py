"""From a tile program to PTX, by LLVM IR: a program of the grid is a block of 128 threads.

Blocks are spread over the threads' registers (spread.py says how), and index arithmetic is computed where it is read, as for a processor. What is read
elsewhere than where it lies goes through shared memory: both operands of a `dot`, and blocks that are broadcast. Every thread computes the scalars, so
loops and conditions are the same for all, and a barrier may stand anywhere.

Numbers of 16 bits are multiplied by the warps' `mma.sync`, others by multiply-adds of the threads. What has no form here (reductions, scans, sorts, atomics,
batches of products) is an error with the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flambeau.compiler.emit import convert
from flambeau.compiler.emit.builder import module
from flambeau.compiler.emit.code import ELEMENT_BYTES, Array, Cell, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.forms import Buffer, Coordinates, Registers, Uniform, dense, element_of, memory_element
from flambeau.compiler.tile.ir import Op, Program, Region, TileError, Type, Value
from flambeau.compiler.tile.lower import Carried, Lowered, Lowering
from flambeau.compiler.tile.segment import Nest
from flambeau.compiler.tile.spread import PAD, ROWS, TILE_K, TILE_M, TILE_N, Layout, Staged, Sums, multiply_ones, multiply_tiles
from flambeau.dtypes import bfloat16, dtype, float16, float32
from flambeau.runtime.target import Target

SHARED_BYTES: Final = 48 << 10  # what every device gives a program without being asked
_FORMS: Final = frozenset(
    ("constant", "iota", "program_id", "num_programs", "pointwise", "bitcast", "offset", "load", "store", "broadcast", "reshape", "permute", "dot", "for",
     "while", "if")
)  # fmt: skip
_MATRIX: Final = (bfloat16, float16)  # what `mma.sync` multiplies here
Held = list[tuple[Value, Registers]]


def lower(program: Program, target: Target, symbol: str) -> Lowered:
    """The kernel of a program that `check` has passed, for a GPU."""
    return Device(program, target).kernel(symbol)


class Device(Lowering):
    """The kernel of a program in the making, for a GPU. Its parameters are the program's, 8 bytes each."""

    def code(self) -> Code:
        c = Code([], self.target)
        self.thread = c.named("i32", c.b.call("i32", "llvm.nvvm.read.ptx.sreg.tid.x", [])).to("i64", "zext")
        return c

    def kernel(self, symbol: str) -> Lowered:
        c, params = self.c, self.program.params
        for i, p in enumerate(params):
            self.forms[id(p)] = self._argument(c.named("i64", f"%p{i}"), p.type)
        self.place = [self._register(f"ctaid.{axis}") for axis in "xyz"]
        self.region(self.program.body)
        if self.used > SHARED_BYTES:
            raise TileError(f"{self.program.name}: needs {self.used} bytes of shared memory, {self.target.name} has {SHARED_BYTES}; make blocks smaller")
        header = f"define ptx_kernel void @{symbol}({', '.join(f'i64 %p{i}' for i in range(len(params)))}) #0"
        memory = f"@shared = internal addrspace(3) global [{self.used} x i8] poison, align 16\n\n" if self.used else ""
        return Lowered(memory + module([c.b.function(header)], c.b.declarations, self.target), self.used, ())

    def _register(self, name: str) -> Lanes:
        return self.c.named("i32", self.c.b.call("i32", f"llvm.nvvm.read.ptx.sreg.{name}", [])).to("i64", "zext")

    def grid_size(self, axis: int) -> Lanes:
        return self._register(f"nctaid.{'xyz'[axis]}")

    def op(self, op: Op) -> None:
        blocks = op.kind == "if" and any(v.shape for v in op.results)
        if op.kind not in _FORMS or blocks:
            raise self._refusal(op, f"{op.kind}{' with blocks as results' * blocks}")
        super().op(op)

    def _refusal(self, op: Op, what: str) -> TileError:
        error = TileError(f"{what} has no form on {self.target.name}")
        error.where = op.where
        return error

    def region(self, region: Region) -> None:
        held = {number: form for number, form in self.forms.items() if isinstance(form, Registers)}
        super().region(region)
        self.forms.update(held)  # what was put into shared memory within is there for this region only

    # -- shared memory ------------------------------------------------------------------------------------------------
    def _shared(self, element: str, count: int) -> Array:
        """New shared memory."""
        at, self.used = self.used, self.used + -(-count * ELEMENT_BYTES[element] // 16) * 16
        pointer = self.c.b.op("addrspacecast ptr addrspace(3) @shared to ptr")
        return Array(self.c, pointer, "i8").at(at, element)

    def buffer(self, t: Type) -> Buffer:
        self.buffers += 1
        return Buffer(self._shared(memory_element(t.element), t.numel), dense(t.shape), self.buffers)

    def _barrier(self) -> None:
        """All threads have come here, and see what each has written before."""
        self.c.b.call("void", "llvm.nvvm.barrier.cta.sync.aligned.all", [("i32", "0")])

    def _spill(self, v: Value, form: Registers) -> None:
        """A block from registers into shared memory, to be read anywhere."""
        place = self.buffer(v.type)
        self._barrier()
        self._each(v.shape, form.layout, [(v, form)], lambda _, at: self.r.write(place, v.type.element, at, self.r.lanes(v, at, 1)))
        self._barrier()
        self.forms[id(v)] = place

    # -- what a thread holds ------------------------------------------------------------------------------------------
    def _each(self, shape: tuple[int, ...], layout: Layout, held: Held, visit: Callable[[int, Coordinates], None]) -> None:
        """`visit` each of a thread's elements; what is held in this layout can be read there."""
        for i, at in enumerate(layout.places(self.c, self.thread, shape)):
            self.r.memos.append({})
            for v, form in held:
                self.r.keep(v, at, Uniform(form.cells[i].get()))
            visit(i, at)
            self.r.memos.pop()

    def _held(self, values: Sequence[Value], layout: Layout | None = None) -> tuple[Held, Layout]:
        """What of the values' leaves is in registers, and the layout that they are read in; what lies in another one, or is read elsewhere, is spilled."""
        direct: dict[int, tuple[Value, Registers]] = {}
        for v in values:
            for leaf, here in self.r.leaves(v):
                form = self.forms.get(id(leaf))
                if isinstance(form, Registers):
                    if here:
                        direct[id(leaf)] = leaf, form
                    else:
                        self._spill(leaf, form)
                        direct.pop(id(leaf), None)
        if layout is None:
            found = [form.layout for _, form in direct.values()]
            layout = next((x for x in found if isinstance(x, Sums)), ROWS)
        for leaf, form in direct.values():
            if form.layout != layout:
                self._spill(leaf, form)
        return [(leaf, form) for leaf, form in direct.values() if form.layout == layout], layout

    def _cells(self, t: Type, count: int) -> list[Cell]:
        return [Cell(self.c, element_of(t.element), 1) for _ in range(count)]

    def _in(self, v: Value, layout: Layout) -> list[Lanes]:
        """A thread's elements of a block, in a layout."""
        held, _ = self._held([v], layout)
        found: list[Lanes] = []
        self._each(v.shape, layout, held, lambda _, at: found.append(self.r.lanes(v, at, 1)))
        return found

    def flush(self) -> None:
        segment, self.pending, self.results = self.pending, None, set()
        if segment is None:
            return
        nest = Nest(self.r, segment, self.target, {})
        if not segment.shape:
            self._scalars(nest, segment)
            return
        ops = {id(op) for op in segment.ops}
        wanted = [v for op in segment.ops for v in op.results if self._outside(v, ops)]
        held, layout = self._held([o for op in segment.ops for o in op.operands if o.shape])
        cells: dict[int, list[Cell]] = {id(v): [] for v in wanted}

        def visit(_: int, at: Coordinates) -> None:
            nest._body(at, 0)
            for v in wanted:
                cell = Cell(self.c, element_of(v.type.element), 1)
                cell.set(self.r.lanes(v, at, 1))
                cells[id(v)].append(cell)

        self._each(segment.shape, layout, held, visit)
        self.forms.update({id(v): Registers(cells[id(v)], layout) for v in wanted})

    # -- products -----------------------------------------------------------------------------------------------------
    def _whole(self, op: Op) -> None:
        if op.kind != "dot" or len(op.results[0].shape) != 2:
            raise self._refusal(op, f"{op.kind} of {op.operands[0].type}")
        self._dot(op)

    def _dot(self, op: Op) -> None:
        a, b, acc = op.operands
        (m, k), n = a.shape, b.shape[1]
        layout = self._layout(op)
        by_warps = a.type.element in _MATRIX and isinstance(layout, Sums) and k % TILE_K == 0
        start = self._in(acc, layout)
        sums = acc.type.dtype
        own = None if by_warps else float32 if sums is float16 else sums
        self._barrier()
        left, right = self._staged(a, False, own), self._staged(b, True, own)
        self._barrier()
        cells = self._cells(op.results[0].type, len(start))
        if by_warps and isinstance(layout, Sums):
            start = multiply_tiles(self.c, layout, self.thread, a.type.element.name, left, right, start, k)
        for cell, value in zip(cells, start, strict=True):
            cell.set(value)
        if not by_warps:
            places = layout.places(self.c, self.thread, (m, n))
            with self.c.for_(0, k) as step:
                for cell, value in zip(cells, multiply_ones(places, left, right, [cell.get() for cell in cells], step), strict=True):
                    cell.set(value)
        self.forms[id(op.results[0])] = Registers(cells, layout)

    def _layout(self, op: Op) -> Layout:
        """Of what an operation gives."""
        shape = op.results[0].shape
        if op.kind == "dot":
            return Sums(*shape) if len(shape) == 2 and shape[0] % TILE_M == 0 and shape[1] % TILE_N == 0 else ROWS
        found = [self._layout(o.op) for o in op.operands if op.kind == "pointwise" and o.op is not None and o.shape == shape]
        return next((x for x in found if isinstance(x, Sums)), ROWS)

    def _staged(self, v: Value, turned: bool, own: dtype | None) -> Staged:
        """An operand in shared memory: as it is in memory, or in the dtype of the sums. `turned`: k is its first dim."""
        while v.op is not None and v.op.kind == "permute" and id(v) not in self.forms:
            v, turned = v.op.operands[0], not turned
        d = v.type.dtype
        rows, k = (v.shape[1], v.shape[0]) if turned else v.shape
        staged = Staged(self._shared(convert.memory_element(d) if own is None else element_of(own), rows * (k + PAD)), k + PAD)
        held, layout = self._held([v])

        def put(_: int, at: Coordinates) -> None:
            x = self.r.lanes(v, at, 1)
            x = convert.to_memory(x, d) if own is None else self.r.apply("cast", d, [x], 1, own)
            row, column = at[::-1] if turned else at
            staged.array.store(row.base * staged.pitch + column.base, x)

        self._each(v.shape, layout, held, put)
        return staged

    # -- loops --------------------------------------------------------------------------------------------------------
    def _carry(self, start: Value, param: Value, given: Value, region: Region) -> Carried:
        if not start.shape or self._steps(param, given, region) is not None:
            return super()._carry(start, param, given, region)
        layout = self._layout(given.op) if given.op is not None else ROWS
        values = self._in(start, layout)
        cells = self._cells(start.type, len(values))
        for cell, value in zip(cells, values, strict=True):
            cell.set(value)
        return Carried(start, param, given, None, held=Registers(cells, layout))

    def _leave(self, carried: Sequence[Carried]) -> None:
        blocks = [(x.held.cells, self._in(x.given, x.held.layout)) for x in carried if x.held is not None and x.given is not x.param]
        super()._leave([x for x in carried if x.held is None])
        for cells, values in blocks:
            for cell, value in zip(cells, values, strict=True):
                cell.set(value)
