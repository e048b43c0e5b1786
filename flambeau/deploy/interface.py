"""What callers of a library see: its name, dynamic sizes, inputs and results, with their types in C and elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from flambeau.deploy.errors import BuildError
from flambeau.deploy.variants import Symbol
from flambeau.dtypes import dtype
from flambeau.export.graph_signature import InputKind
from flambeau.export.program import ExportedProgram, ValueRange
from flambeau.export.shapes import layout_of
from flambeau.symbols import Sym, symbols_in
from flambeau.tensor import Tensor

# By the dtype's name: its type in C, in Rust and in NumPy. 16-bit floats are their bits where a language has none.
TYPES: Final = {
    "float32": ("float", "f32", "float32"), "float64": ("double", "f64", "float64"), "int64": ("int64_t", "i64", "int64"),
    "int32": ("int32_t", "i32", "int32"), "int16": ("int16_t", "i16", "int16"), "int8": ("int8_t", "i8", "int8"), "uint8": ("uint8_t", "u8", "uint8"),
    "bool": ("uint8_t", "u8", "bool"), "float16": ("uint16_t", "u16", "float16"), "bfloat16": ("uint16_t", "u16", "uint16"),
}  # fmt: skip
_MOST_BITS: Final = 40  # of the product of all sizes: nothing that follows from them is too large for 64 bits
_KEYWORDS: Final = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register return short signed sizeof static "
    "struct switch typedef union unsigned void volatile while fn let mut pub use mod impl trait type match loop self super crate ref move where as in dyn "
    "def class import from pass lambda global with yield assert del not and or is None True False try except raise".split()
)  # fmt: skip


@dataclass(frozen=True)
class Argument:
    """An input or a result: its shape as numbers and texts ("sizes[0]"), for which of its dims are exactly a dynamic size."""

    name: str
    dtype: dtype
    shape: tuple[int | str, ...]
    sizes: tuple[int | None, ...]  # the number of the dynamic size that a dim is

    @property
    def layout(self) -> str:
        """The shape for people."""
        return f"[{', '.join([str(n) for n in self.shape])}]"


@dataclass(frozen=True)
class Interface:
    """All that a header says."""

    name: str
    target: str
    symbols: tuple[Symbol, ...]
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    weights_bytes: int
    inside: bool


def check_name(name: str) -> str:
    """The name of a library, which its functions begin with. BuildError unless it is an identifier of C, Rust and Python."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in _KEYWORDS:
        raise BuildError(f"a library cannot be called {name!r}: its functions begin with its name, so give one of small letters, digits and _ (--name)")
    return name


def symbols_of(program: ExportedProgram) -> tuple[Symbol, ...]:
    """The dynamic sizes of a program, by number. BuildError where an input does not show one plainly."""
    places: dict[int, tuple[str, int]] = {}
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    given = [n for n, s in zip(placeholders, program.graph_signature.input_specs, strict=True) if s.kind is InputKind.USER_INPUT]
    count = 0
    for node in given:
        value = node.meta.get("val")
        if not isinstance(value, Tensor):
            continue
        for d, n in enumerate(layout_of(value).shape):
            if isinstance(n, Sym):
                count = max(count, 1 + max(symbols_in(n.expr), default=-1))
                if n.expr.op == "size":
                    places.setdefault(n.expr.a, (node.name, d))
    found = []
    most = 1 << min(31, _MOST_BITS // max(count, 1))
    for number in range(count):
        if number not in places:
            raise BuildError(f"the dynamic size s{number} is no dim of an input by itself; give the program an input that has it as a dim")
        name, d = places[number]
        bounds = program.range_constraints.get(f"s{number}", ValueRange(1, None))
        upper = most if bounds.upper is None else min(bounds.upper, most)
        found.append(Symbol(number, f"{name}_dim{d}", f"dim {d} of input {name}", max(bounds.lower, 1), upper))
    return tuple(found)


def argument(name: str, shape: Sequence[Any], d: dtype, symbols: Sequence[Symbol]) -> Argument:
    """The description of a tensor whose shape may be over symbols. BuildError for a dtype that no caller has."""
    if d.name not in TYPES:
        raise BuildError(f"{name} is {d}, which callers in C have no type for; view or convert it inside of the model")
    texts = [re.sub(r"\bs(\d+)\b", r"sizes[\1]", str(n.expr)) if isinstance(n, Sym) else int(n) for n in shape]
    plain = [n.expr.a if isinstance(n, Sym) and n.expr.op == "size" and n.expr.a < len(symbols) else None for n in shape]
    return Argument(name, d, tuple(texts), tuple(plain))
