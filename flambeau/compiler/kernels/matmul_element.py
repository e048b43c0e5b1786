"""Matrix products: what one element is in memory and in the accumulators, and the machine's tile sizes.

| memory                | accumulated in | multiply-add                 | on the way out              |
|-----------------------|----------------|------------------------------|-----------------------------|
| float32, float64      | the same       | one fused multiply-add       | as it is                    |
| float16, bfloat16     | float32        | one fused multiply-add       | rounded once, to nearest even |
| int64                 | int64          | mul, add (modulo 2^64)       | as it is                    |
| int8, int16, int32, uint8 | int32      | mul, add (modulo 2^32)       | truncated: exact modulo 2^bits |
| bool                  | int32          | mul, add                     | `!= 0`: any(a and b)        |
| int8, into int32      | int32          | mul, add (modulo 2^32)       | as it is                    |
| float16, bfloat16, into float32 | float32 | one fused multiply-add  | as it is                    |
| complex64, complex128 | two parts, float32 or float64 | four fused multiply-adds | interleaved     |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.dtypes import dtype
from flambeau.symbols import Sym, roughly_over


@dataclass(frozen=True, slots=True)
class Element:
    """`memory`: LLVM type of one part in memory; `compute`: LLVM type of an accumulator lane; `parts`: 2 for
    complex."""

    name: str
    memory: str
    compute: str
    memory_bytes: int  # of one part
    compute_bytes: int  # of one part
    parts: int = 1
    rounds_by: str = ""  # an instruction that rounds 16 lanes of accumulators to memory
    wide: bool = False  # results are stored as they are accumulated

    @property
    def is_float(self) -> bool:
        return self.compute in ("float", "double")

    @property
    def itemsize(self) -> int:
        return self.memory_bytes * self.parts

    @property
    def converts(self) -> bool:
        """True where memory and accumulators differ: such products take the whole K in one block, and round once."""
        return self.memory != self.compute

    @property
    def result(self) -> Element:
        """The element of the results."""
        if not self.wide:
            return self
        return replace(self, memory=self.compute, memory_bytes=self.compute_bytes, rounds_by="", wide=False)

    @property
    def key(self) -> str:
        """Names it where results matter, too."""
        return self.name + "-wide" * self.wide

    def widen(self, b: Builder, width: int, value: str) -> str:
        """`width` lanes of the memory type as lanes of the compute type."""
        source, target = vector(self.memory, width), vector(self.compute, width)
        if self.name == "bfloat16":  # a float32 without its low 16 bits
            wide = b.op(f"zext {source} {value} to {vector('i32', width)}")
            shifted = b.op(f"shl {vector('i32', width)} {wide}, {_constant('i32', width, 16)}")
            return b.op(f"bitcast {vector('i32', width)} {shifted} to {target}")
        if self.memory == self.compute:
            return value
        if self.memory == "half":
            return b.op(f"fpext {source} {value} to {target}")
        unsigned = self.name in ("bool", "uint8")
        return b.op(f"{'zext' if unsigned else 'sext'} {source} {value} to {target}")

    def narrow(self, b: Builder, width: int, value: str) -> str:
        """`width` accumulator lanes as lanes of the memory type."""
        source, target = vector(self.compute, width), vector(self.memory, width)
        if self.memory == self.compute:
            return value
        if self.rounds_by and width == 16:
            half = b.call("<16 x bfloat>", self.rounds_by, [(source, value)])
            return b.op(f"bitcast <16 x bfloat> {half} to {target}")
        if self.name == "bfloat16":
            # Round to nearest even on the bits; a NaN keeps its sign and becomes quiet (the carry could reach
            # infinity).
            ints = vector("i32", width)
            bits = b.op(f"bitcast {source} {value} to {ints}")
            high = b.op(f"lshr {ints} {bits}, {_constant('i32', width, 16)}")
            odd = b.op(f"and {ints} {high}, {_constant('i32', width, 1)}")
            bias = b.op(f"add {ints} {odd}, {_constant('i32', width, 0x7FFF)}")
            sum_ = b.op(f"add {ints} {bits}, {bias}")
            rounded = b.op(f"lshr {ints} {sum_}, {_constant('i32', width, 16)}")
            quiet = b.op(f"or {ints} {high}, {_constant('i32', width, 64)}")
            is_nan = b.op(f"fcmp uno {source} {value}, zeroinitializer" if width > 1 else f"fcmp uno float {value}, 0.0")
            chosen = b.op(f"select {vector('i1', width)} {is_nan}, {ints} {quiet}, {ints} {rounded}")
            return b.op(f"trunc {ints} {chosen} to {target}")
        if self.memory == "half":
            return b.op(f"fptrunc {source} {value} to {target}")
        if self.name == "bool":
            set_ = b.op(f"icmp ne {source} {value}, {'zeroinitializer' if width > 1 else '0'}")
            return b.op(f"zext {vector('i1', width)} {set_} to {target}")
        return b.op(f"trunc {source} {value} to {target}")

    def zero(self, width: int) -> str:
        if width > 1:
            return "zeroinitializer"
        return "0.0" if self.is_float else "0"

    def add(self, b: Builder, width: int, x: str, y: str) -> str:
        return b.op(f"{'fadd' if self.is_float else 'add'} {vector(self.compute, width)} {x}, {y}")

    def multiply_add(self, b: Builder, width: int, x: str, y: str, accumulator: str) -> str:
        """x * y + accumulator, rounded once if floating and the machine can in one instruction."""
        type_ = vector(self.compute, width)
        if self.is_float:
            return b.multiply_add(self.compute, width, x, y, accumulator)
        return b.op(f"add {type_} {b.op(f'mul {type_} {x}, {y}')}, {accumulator}")

    def multiply_add_parts(self, b: Builder, width: int, x: tuple[str, ...], y: tuple[str, ...], accumulator: tuple[str, ...]) -> tuple[str, ...]:
        """The same of all parts of an element: of complex ones the real and the imaginary part."""
        real = self.multiply_add(b, width, x[0], y[0], accumulator[0])
        if self.parts == 1:
            return (real,)
        real = self.multiply_add(b, width, self.negate(b, width, x[1]), y[1], real)
        imaginary = self.multiply_add(b, width, x[0], y[1], accumulator[1])
        return real, self.multiply_add(b, width, x[1], y[0], imaginary)

    def negate(self, b: Builder, width: int, x: str) -> str:
        return b.op(f"fneg {vector(self.compute, width)} {x}")


def _constant(element: str, width: int, value: int) -> str:
    if width == 1:
        return str(value)
    return "<" + ", ".join(f"{element} {value}" for _ in range(width)) + ">"


_ELEMENTS = {
    "bool": Element("bool", "i8", "i32", 1, 4),
    "uint8": Element("uint8", "i8", "i32", 1, 4),
    "int8": Element("int8", "i8", "i32", 1, 4),
    "int16": Element("int16", "i16", "i32", 2, 4),
    "int32": Element("int32", "i32", "i32", 4, 4),
    "int64": Element("int64", "i64", "i64", 8, 8),
    "float16": Element("float16", "half", "float", 2, 4),
    "bfloat16": Element("bfloat16", "i16", "float", 2, 4),
    "float32": Element("float32", "float", "float", 4, 4),
    "float64": Element("float64", "double", "double", 8, 8),
    "complex64": Element("complex64", "float", "float", 4, 4, parts=2),
    "complex128": Element("complex128", "double", "double", 8, 8, parts=2),
}


def element_of(d: dtype) -> Element:
    """The element of a matrix product of this dtype."""
    return _ELEMENTS[d.name]


@dataclass(frozen=True, slots=True)
class Tile:
    """The register tile: `rows` x (`vectors` of `width` lanes) accumulators; the sizes of the vector unit."""

    rows: int
    vectors: int
    width: int

    @property
    def columns(self) -> int:
        return self.vectors * self.width

    @property
    def key(self) -> str:
        """Names it in the keys of kernels."""
        return f"{self.rows}x{self.vectors}x{self.width}"

    @property
    def heights(self) -> tuple[int, ...]:
        """Heights of the micro-kernels that finish the last rows, tallest first. Eight accumulators are the least that
        hide a latency of 4 cycles at two multiply-adds a cycle."""
        half, quarter = (self.rows + 2) // 2, (self.rows + 2) // 4
        return tuple(sorted({self.rows, half, quarter}, reverse=True))

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths, in vectors, of the micro-kernels that finish the last columns, widest first."""
        halves, left = [self.vectors], self.vectors
        while left > 1:
            left = (left + 1) // 2
            halves.append(left)
        return tuple(halves)


FEW_ROWS = 31


def few_rows_tile(tile: Tile, m: int, registers: int) -> Tile:
    """The tile for a few rows times a matrix whose rows are contiguous, which is read where it lies: packing an element
    of it would cost as much as 32 to 64 multiply-adds. Wide, to read long pieces; 16 to 24 accumulators."""
    if registers < 32:
        return tile
    if not roughly_over(m, 4):
        return Tile(4, 6, tile.width) if roughly_over(m, 2) else Tile(2, 8, tile.width)
    return Tile(6, 4, tile.width) if m.__class__ is not Sym and -m % 6 < -m % 8 else Tile(8, 3, tile.width)


def register_tile(element: Element, vector_bits: int, registers: int) -> Tile:
    """The tile for a machine with `registers` vector registers of `vector_bits`.

    Rows and columns follow the count of registers: rows x vectors accumulators, `vectors` of b and one broadcast of a
    must fit: 14 x 2 + 3 of 32 (AVX-512), 6 x 2 + 3 of 16 (AVX2), and 8 x 3 + 4 of 32 with 128 bits (NEON); 4 x 2 of WebAssembly, whose
    products stand in registers before they are added.
    """
    width = max(1, vector_bits // (8 * element.compute_bytes))
    if element.parts == 2:  # two accumulators an element: rows x 1 x 2
        return Tile(8 if registers >= 32 else 4, 1, width)
    if registers < 32:
        return Tile(6 if registers >= 16 else 4, 2, width)
    if vector_bits <= 128:
        return Tile(8, 3, width)
    return Tile(14, 2, width)


# -- What all their kernels share: the facts that a text depends on, batch items, the epilogue -----------------------
@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the generated text of a product depends on, besides the epilogue."""

    element: Element
    tile: Tile
    vector_bits: int
    a_unit: str  # which stride is 1: "lane" (rows of a, columns of b), "k" or "none"
    b_unit: str
    c_unit: str  # which stride of c is 1: "column" (columns are next to each other), "row" or "none"
    batch_dims: int
    exchanged: bool  # computed as b.T @ a.T, into c.T
    direct: bool = False  # micro-kernels may read operands where they lie, with run-time strides (a few per cent slower)
    prepacked: bool = False  # b is in panels already (matmul_prepacked.py)

    @property
    def fetches_b(self) -> bool:
        """Whether micro-kernels that read b where it lies fetch its next panel. (Measured, pieces of 192 bytes of rows of
        4 KiB: 10 to 50 % faster; not worth it for longer pieces.)"""
        return self.direct and self.tile.vectors in (3, 4)

    def key(self) -> str:
        return (
            f"{self.element.key}:{self.tile.key}:a={self.a_unit}:b={self.b_unit}"
            f":c={self.c_unit}:batch={self.batch_dims}{':exchanged' * self.exchanged}{':direct' * self.direct}{':prepacked' * self.prepacked}"
        )


def batch_addresses(b: Builder, facts: Facts, w: dict[str, str], batch: str) -> tuple[str, str, str]:
    """Addresses of a, b and c of a batch item (row-major number `batch` over the batch dims)."""
    offsets = {"a": "0", "b": "0", "c": "0"}
    rest = batch
    for d in reversed(range(facts.batch_dims)):
        index = rest
        if d:
            index = b.op(f"urem i64 {rest}, {w[f'size{d}']}")
            rest = b.op(f"udiv i64 {rest}, {w[f'size{d}']}")
        for operand in offsets:
            offsets[operand] = b.add(offsets[operand], b.mul(index, w[f"{operand}_batch{d}"]))
    parts, memory = facts.element.parts, {"c": facts.element.result.memory}
    a, bb, c = (b.gep(memory.get(operand, facts.element.memory), w[operand], b.mul(offset, parts)) for operand, offset in offsets.items())
    return a, bb, c


def k_of_batch(b: Builder, w: dict[str, str], batch: str) -> str:
    """K of a batch item. Where K is cut into parts (see matmul_split.py), they are the innermost batch dim."""
    part = b.op(f"urem i64 {batch}, {w['splits']}")
    return b.min(w["k"], b.sub(w["k_total"], b.mul(part, w["k"])))


def call_epilogue(
    b: Builder, facts: Facts, w: dict[str, str], batch: str, rows: tuple[str, str], columns: tuple[str, str]
) -> None:  # fmt: skip
    """Call the epilogue on a rectangle of c. Its rows (its columns, if the operands are exchanged) may run through
    several batch items that were merged into one dim."""
    merged_range, other, size = (columns, rows, w["n"]) if facts.exchanged else (rows, columns, w["m"])
    per = w["rows_per_batch"]
    merged = b.op(f"udiv i64 {size}, {per}")
    first = b.op(f"udiv i64 {merged_range[0]}, {per}")
    last = b.op(f"udiv i64 {b.sub(merged_range[1], 1)}, {per}")
    with b.for_(first, b.add(last, 1)) as index:
        start = b.mul(index, per)
        low = b.max("0", b.sub(merged_range[0], start))
        high = b.min(per, b.sub(merged_range[1], start))
        values = ["%args", b.add(b.mul(batch, merged), index), low, high, *other]
        b.call("void", "epilogue", list(zip(["ptr", *["i64"] * 5], values, strict=True)), declare=False)
