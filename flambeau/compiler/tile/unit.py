"""A tile program as a kernel of a plan: a program of its grid is a unit of the kernel, so the grid has one axis, and its parameters are the kernel's words.

What is read and written lies in the plan's memory, and the plan says how many units there are. Such a program has no scratch memory and no assertions.
"""

from __future__ import annotations

from flambeau.compiler.emit.code import Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.tile.build import without_dead
from flambeau.compiler.tile.check import check
from flambeau.compiler.tile.ir import Program, TileError
from flambeau.compiler.tile.lower import Lowered, Lowering
from flambeau.runtime.target import Target


def lower(program: Program, target: Target, symbol: str) -> str:
    """The module's text."""
    check(program)
    without_dead(program)
    return Unit(program, target).kernel(symbol).text


class Unit(Lowering):
    """The kernel of a program in the making, as a kernel of a plan."""

    def code(self) -> Code:
        return Code([f"p{i}" for i in range(len(self.program.params))], self.target)

    def kernel(self, symbol: str) -> Lowered:
        c = self.c
        self._parameters()
        self.scratch = c.array("p0", "i8")  # nothing lies there, see below
        with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as unit:
            self.place = [unit, c.i64(0), c.i64(0)]
            self.region(self.program.body)
        if self.used or self.messages:
            raise TileError(f"{self.program.name}: a kernel of a plan has neither scratch memory ({self.used} bytes) nor assertions ({len(self.messages)})")
        return Lowered(c.kernel(symbol), 0, ())

    def grid_size(self, axis: int) -> Lanes:
        raise TileError(f"{self.program.name}: a kernel of a plan does not know how many units it has")
