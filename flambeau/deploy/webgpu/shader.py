"""One compute shader: its text in WGSL, the numbers that it is given, and how many workgroups it wants.

All shaders of a plan see the same four bindings: `w`, the numbers of this kernel; `weights`, the program's tensors as they lie in the file of weights; `arena`,
a word of 32 bits for each element of everything else; `errors`, the first thing that went wrong. So one bind group serves all of them, and a kernel may have
as many operands as it likes (browsers promise eight storage buffers).

A number that is the same at all sizes stands in the text. One that follows from dynamic sizes is read from `w`, and so is where a value begins in the arena.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from flambeau.compiler.graph import Graph
from flambeau.deploy.errors import BuildError
from flambeau.deploy.webgpu import functions
from flambeau.dtypes import dtype
from flambeau.symbols import Sym

LANES: Final = 64  # threads of a workgroup whose threads work side by side
# The type of an element in a shader, by the dtype's name. Sums that the compiler widens are 32 bits, too: there are no others.
TYPES: Final = {"float32": "f32", "float64": "f32", "int64": "i32", "int32": "i32", "int16": "i32", "int8": "i32", "uint8": "i32", "bool": "bool"}
_STORED: Final = frozenset(("float32", "int64", "int32", "int16", "int8", "uint8", "bool"))  # what may lie in memory


@dataclass(frozen=True)
class Place:
    """Where a root begins in the arena, in words: known when the sizes are."""

    root: int


@dataclass
class Memory:
    """Where the values of a graph lie. `weights`: by root, the byte at which a tensor begins in the file of weights."""

    graph: Graph
    weights: dict[int, int]


@dataclass(frozen=True)
class Kernel:
    """A finished shader. `words`: numbers, numbers over symbols and `Place`s, in the order of `w`; `groups`: how many workgroups; `reads`, `writes`: roots."""

    name: str
    text: str
    words: tuple[Any, ...]
    groups: Any
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass
class Shader:
    """Writes one kernel. `lanes`: the threads of a workgroup."""

    name: str
    memory: Memory
    lanes: int = LANES
    words: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    shared: dict[str, str] = field(default_factory=dict)  # declarations outside of the function, by their names
    reads: dict[int, None] = field(default_factory=dict)
    writes: dict[int, None] = field(default_factory=dict)
    _indent: int = 1
    _names: int = 0
    _known: dict[Any, str] = field(default_factory=dict)

    # -- text -----------------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append("  " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """`head { ... }`."""
        self.line(f"{head} {{")
        self._indent += 1
        yield
        self._indent -= 1
        self.line("}")

    def fresh(self, prefix: str = "t") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def let(self, value: str, prefix: str = "t") -> str:
        """A name for a value."""
        if value.replace("_", "").isalnum():
            return value
        name = self.fresh(prefix)
        self.line(f"let {name} = {value};")
        return name

    def need(self, *names: str) -> None:
        """Declare functions of `functions.py`, with what they call."""
        for name in names:
            if name not in self.shared:
                text, below = functions.HELPERS[name]
                self.need(*below)
                self.shared[name] = text

    # -- numbers --------------------------------------------------------------------------------------------------
    def number(self, x: Any) -> str:
        """An i32 that is known before the kernel runs."""
        if not isinstance(x, Sym | Place):
            return str(int(x))
        key = ("place", x.root) if isinstance(x, Place) else ("size", id(x.expr))
        if key not in self._known:
            at = len(self.words)
            self.words.append(x)
            self._known[key] = f"w[{at // 4}].{'xyzw'[at % 4]}"
        return self._known[key]

    def sum(self, terms: Sequence[tuple[str, Any]], start: str = "0") -> str:
        """`start` and each index times its stride."""
        parts = [] if start == "0" else [start]
        for index, stride in terms:
            if isinstance(stride, Sym) or stride not in (0, 1):
                parts.append(f"{index} * {self.number(stride)}")
            elif stride == 1:
                parts.append(index)
        return " + ".join(parts) or "0"

    def split(self, linear: str, sizes: Sequence[Any]) -> list[str]:
        """The indices, outermost first, of a row-major number: names. The first one has no end."""
        names: list[str] = []
        rest = linear
        for size in reversed(sizes[1:]):
            if not isinstance(size, Sym) and size == 1:
                names.append("0")
                continue
            n = self.number(size)
            rest = self.let(rest, "q")
            names.append(self.let(f"{rest} % {n}", "i"))
            rest = f"{rest} / {n}"
        if sizes:
            names.append(self.let(rest, "i"))
        return names[::-1]

    # -- memory ---------------------------------------------------------------------------------------------------
    def load(self, root: int, d: dtype, index: str) -> str:
        """The element of a dtype at an index (from the root's first one) as an expression."""
        held = self.memory.graph.values[root].dtype
        self._check(root, d)
        kind = TYPES[d.name]
        at = self.memory.weights.get(root)
        if at is None:
            self.reads[root] = None
            return _read(kind, f"arena[{self.number(Place(root))} + {index}]")
        size = held.itemsize
        if size >= 4:
            return _read(kind, f"weights[{at // 4} + ({index}){' * 2' if size == 8 else ''}]")
        self.need(f"byte_{size}")
        word = f"byte_{size}({at // size} + {index})"
        return f"({word} != 0)" if kind == "bool" else word if held.name in ("bool", "uint8") else f"signed_{size}({word})"

    def store(self, root: int, d: dtype, index: str, value: str) -> None:
        """Write an element."""
        self._check(root, d)
        self.writes[root] = None
        kind = TYPES[d.name]
        word = f"bitcast<u32>({value})" if kind != "bool" else f"select(0u, 1u, {value})"
        self.line(f"arena[{self.number(Place(root))} + {index}] = {word};")

    def _check(self, root: int, d: dtype) -> None:
        held = self.memory.graph.values[root].dtype
        if held.name not in _STORED or d.name not in _STORED:
            raise BuildError(f"a value of {held if held.name not in _STORED else d} in {self.name}: shaders have float32, integers to 32 bits and bool; "
                             "convert it in the model")  # fmt: skip
        if held is not d and not (held.itemsize == d.itemsize == 4):
            raise BuildError(f"{self.name} reads {held} as the bits of {d}, which shaders do with dtypes of 32 bits only")

    # -- the whole ------------------------------------------------------------------------------------------------
    def finish(self, groups: Any) -> Kernel:
        """The kernel; `groups`: how many workgroups, which the text finds as `group`."""
        # More workgroups than one row of the grid may have stand in several rows.
        text = [
            f"// {self.name}",
            "@group(0) @binding(0) var<uniform> w: array<vec4<i32>, WORDS>;",
            "@group(0) @binding(1) var<storage, read> weights: array<u32>;",
            "@group(0) @binding(2) var<storage, read_write> arena: array<u32>;",
            "@group(0) @binding(3) var<storage, read_write> errors: array<atomic<i32>>;",
            *self.shared.values(),
            f"@compute @workgroup_size({self.lanes})",
            "fn main(@builtin(workgroup_id) place: vec3<u32>, @builtin(num_workgroups) grid: vec3<u32>, @builtin(local_invocation_index) me: u32) {",
            "  let group = i32(place.y * grid.x + place.x);",
            "  let lane = i32(me);",
            *self.lines,
            "}",
        ]
        return Kernel(self.name, "\n".join(text) + "\n", tuple(self.words), groups, tuple(self.reads), tuple(self.writes))


def _read(kind: str, word: str) -> str:
    return f"({word} != 0u)" if kind == "bool" else f"bitcast<{kind}>({word})"
