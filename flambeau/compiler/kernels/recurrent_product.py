"""The product of a recurrent layer's step: states times weights, which lie in panels of columns (see recurrent.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.compiler.graph import Graph, Value, contiguous_strides
from flambeau.compiler.kernel import Kernel, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import ceil_div
from flambeau.compiler.kernels.move_layout import address, reads
from flambeau.symbols import maximum

ROWS = 4  # states of a product: with four vectors of columns 16 sums in registers, two instructions for each number that is read
THREAD_ELEMENTS = 1 << 14  # of the weights: so many a further thread should copy


@dataclass(frozen=True, slots=True)
class Facts:
    """What the code of a kernel depends on."""

    mode: str
    double: bool
    reverse: bool
    packed: bool
    keep: bool
    bits: int
    vectors: int  # of columns in a panel

    @property
    def element(self) -> str:
        return "double" if self.double else "float"

    @property
    def itemsize(self) -> int:
        return 8 if self.double else 4

    @property
    def lanes(self) -> int:
        return self.bits // (8 * self.itemsize)

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.lanes * self.vectors

    @property
    def key(self) -> str:
        flags = "".join([letter for letter, on in zip("rpk", (self.reverse, self.packed, self.keep), strict=True) if on])
        return f"{self.mode}:{self.element}:{flags}:{self.bits}:{self.vectors}"


def copy_to_panels(graph: Graph, node_index: int, w: int, facts: Facts, columns: int, depth: int, turned: bool) -> tuple[Kernel, int]:
    """The kernel that copies w to panels (panel, depth, columns of it), zeros where there are no more columns; and their value."""
    count = ceil_div(columns, facts.panel)
    shape = (count, depth, facts.panel)
    panels = graph.add_value(Value(shape, graph.values[w].dtype, contiguous_strides(shape)))
    words: dict[str, Word] = {"w": address(graph, w), "to": address(graph, panels), "columns": columns, "depth": depth}
    key = f"recurrent_panels:{facts.element}:{facts.panel}:{'t' if turned else 'n'}"
    kernel = describe_code(
        "recurrent_panels", key, partial(_panels, facts.element, facts.panel, turned), words, reads=reads(graph, w), writes=(panels,), units=count,
        bytes=2 * columns * depth * facts.itemsize, nodes=(node_index,),
        min_units_per_thread=maximum(1, THREAD_ELEMENTS // maximum(depth * facts.panel, 1)),
    )  # fmt: skip
    return kernel, panels


def _panels(element: str, panel: int, turned: bool, c: Code) -> None:
    w, to = c.array("w", element), c.array("to", element)
    columns, depth = c.word("columns"), c.word("depth")
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as p:
        first = p * panel
        inside = c.min(columns - first, panel)
        target = to.at(p * depth * panel)
        if turned:
            with c.for_(0, inside) as j:
                source = w.at((first + j) * depth if turned else first + j)
                with c.for_(0, depth) as i:
                    target.store(i * panel + j, source[i if turned else i * columns])
        else:
            with c.for_(0, depth) as k:
                source = w.at(k * columns + first)
                with c.for_(0, inside) as i:
                    target.store(k * panel + i, source[i])
        with c.for_(0, depth) as k, c.for_(inside, panel) as j:
            target.store(k * panel + j, 0.0)


def product(c: Code, f: Facts, sources: list[Array], panels: Array, depth: Lanes, columns: Lanes, pitch: Lanes, to: Array) -> None:
    """to[r] = sources[r] times the weights, by panels; each sum adds its products in order, rounding each once (fma)."""
    with c.for_(0, columns, f.panel) as first:
        panel = panels.at(first * depth)
        sums = [[c.cell(f.element, 0.0, f.lanes) for _ in range(f.vectors)] for _ in sources]
        with c.for_(0, depth) as k:
            weights = [panel.load(k * f.panel + v * f.lanes, f.lanes) for v in range(f.vectors)]
            for source, row in zip(sources, sums, strict=True):
                state = c.splat(source[k], f.lanes)
                for weight, cell in zip(weights, row, strict=True):
                    cell.set(state.fma(weight, cell.get()))
        for r, row in enumerate(sums):
            for v, cell in enumerate(row):
                to.store(pitch * r + first + v * f.lanes, cell.get())
