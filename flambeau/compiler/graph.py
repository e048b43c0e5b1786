"""The graph: what the recorder hands to the compiler, and what every pass maps to a new graph.

A graph is a list of nodes in execution order over numbered values. Every node applies one *primitive*; the groups below
list them all. The compiler knows nothing of Tensor: shapes, strides and dtypes are all here.

Layout. A value is either *materialised* (dense in a buffer of its own, with `strides`, a permutation of contiguous
strides, offset 0) or a *view*: an alias of `base` with absolute `strides` and `offset`, in elements (of the view's own
dtype, which `bitcast` and `real_view` change) of the base's buffer; `base` is never itself a view. A dynamic offset adds
`parameter * multiplier` for each pair in `dynamic`.
External inputs are flat storages (one dimension); a `view` node gives them their tensor's layout.

Run-time scalars ("parameters") are 0-d values of dtype int64, float64 or bool (Python numbers), read from the plan's
parameter words when it runs. Nothing is compiled again when they change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from flambeau.devices import CPU, Device
from flambeau.dtypes import bfloat16, dtype, float16, float32, int8, int32
from flambeau.runtime.target import Target
from flambeau.runtime.untracked import record

Shape = tuple[int, ...]

# -- The primitives -----------------------------------------------------------------------------------------------
# Pointwise: all inputs broadcast together (NumPy's rule) and have one dtype; the output has it too, unless said.
UNARY: Final = frozenset(
    "neg abs sgn floor ceil trunc round sqrt rsqrt reciprocal exp exp_weight exp2 expm1 log log2 log10 log1p sin cos tan asin acos "
    "atan sinh cosh tanh asinh acosh atanh erf erf_plus_one erfc erfinv lgamma digamma sigmoid bitwise_not conj_physical".split()
)  # bitwise_not of bool is logical not; round is half-to-even; abs of complex gives the real dtype
#    exp_weight is exp to a place, faster: for weights that are summed; erf_plus_one is exact to a place of 1
UNARY_TO_BOOL: Final = frozenset(("isnan",))
UNARY_COMPLEX_TO_REAL: Final = frozenset(("real_part", "imag_part"))
BINARY: Final = frozenset(
    "add sub mul div div_floor div_trunc remainder fmod pow atan2 maximum minimum fmax fmin hypot copysign nextafter "
    "bitwise_and bitwise_or bitwise_xor shift_left shift_right".split()
)  # div is true division of floats (and complex); div_floor/remainder follow Python's sign, div_trunc/fmod C's
COMPARE: Final = frozenset("eq ne lt le gt ge".split())  # output: bool
SPECIAL_POINTWISE: Final = frozenset(
    (
        "where",  # (condition: bool, x, y) -> x's dtype
        "cast",  # attr dtype; C conversion rules, to bool is `!= 0`, complex -> real drops the imaginary part
        "make_complex",  # (real, imaginary) -> complex
        "constant",  # no inputs; attr value (number), shape (): a static scalar
        "iota",  # no inputs; attrs shape, dim: int64, the index along `dim`
        "random_uniform",  # (seed: int64 0-d, offset: int64 0-d); attr shape: float32 in [0, 1), 24 bits,
        #                    Philox4x32-10 keyed by seed, counter = offset + row-major element index
        "take",  # (flat 1-d x, index int64) -> x[index]; negative wraps; out of range stops the plan with IndexError
        "searchsorted",  # (sorted (..., n), values); attr right: int64; leading dims of sorted equal or absent
    )
)
POINTWISE: Final = UNARY | UNARY_TO_BOOL | UNARY_COMPLEX_TO_REAL | BINARY | COMPARE | SPECIAL_POINTWISE
# Views: no kernel. inputs (x, *offset parameters); attrs describe the step, the Value has the absolute layout.
VIEWS: Final = frozenset("view reshape permute expand slice select diagonal unfold as_strided alias bitcast real_view".split())
# Reductions: attr dims (sorted, non-negative); the output's shape is the input's without those dims.
REDUCE: Final = frozenset("sum prod amax amin argmax argmin".split())
#   sum/prod keep the dtype (the recorder casts first); amax/amin propagate NaN; arg* give int64, first index wins,
#   over one dim only; amax/amin of bool are any/all. `var_mean`: two outputs (M2 / max(0, n - correction), mean), attr correction.
REDUCE_PAIR: Final = frozenset(("var_mean",))
# Scans along attr dim; same shape. cummax/cummin give (values, indices).
SCAN: Final = frozenset("cumsum cumprod cummax cummin logcumsumexp".split())
# The dtype in which products are accumulated and a result can be had, instead of their own.
WIDER: Final = {int8: int32, float16: float32, bfloat16: float32}
# Dense algebra.
CONTRACT: Final = frozenset(
    (
        "matmul",  # (a (..., M, K), b (..., K, N)) -> (..., M, N); equal leading dims (stride 0 where expanded);
        #           with attr wide, in the dtype that WIDER has
        "convolution",  # (x (N, C, H, W), w (O, C/groups, KH, KW)); attrs stride, padding, dilation (pairs), groups
        "convolution_input_gradient",  # (g (N, O, OH, OW), w) -> x's shape (attr shape); other attrs the same
        "convolution_weight_gradient",  # (g, x) -> w's shape (attr shape); other attrs the same
    )
)
# Attention: weights = softmax(scale q k^T, masked); attrs scale, causal (query i attends keys up to i), masked, dropout (the
# probability with which weights become 0; the others are divided by 1 - dropout). Equal leading dims. mask, if `masked`: (..., L, S),
# bool (false: may not attend) or added, of lse's dtype. kept, if dropout > 0: (..., L, S), bool (false: the weight becomes 0).
# lse, delta: float64 for float64, else float32.
ATTENTION: Final = frozenset(
    (
        "attention",  # (q (..., L, E), k (..., S, E), v (..., S, V), [mask], [kept]) -> (weights v (..., L, V),
        #               lse (..., L)): the log of the sum of exponentials; +inf where nothing may be attended
        "attention_gradient",  # (g (..., L, V), q, k, v, lse, delta (..., L), [mask], [kept]) -> gradients of q, k, v;
        #                        delta: sum over V of g * output, less the gradient of lse
    )
)
# Recurrent layers: all steps of one direction over rows that are packed step after step, `sizes[t]` (int64, falling) of step t, or
# with `packed` off batch rows each. gates (rows, G H): what the input adds to the gates, in PyTorch's order of modes; h, c (batch, H);
# w (G H, H); bias (G H): of a GRU, added to its product with w. attrs mode, reverse (the last step first), packed; dense operands.
GATES: Final = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}  # by mode
RECURRENT: Final = frozenset(
    (
        "recurrent",  # (gates, h, [c], w, [bias], [sizes]) -> y (rows, H): h after each row's step, final h, [final c], and with attr
        #               keep [c of all rows], [the gates' values (rows, 4 H): of a GRU r, z, n and what r multiplies]
        "recurrent_gradient",  # (g (rows, H), g_h, [g_c], y, h, [c, c of all rows], [saved], w, [sizes]) -> gradients of gates, [of the
        #                        product with w], h before each row's step (rows, H), gradients of h, [c]
    )
)
# Products with coded weights. codes (N, K code_bits / 8), uint8; scales, zeros (N, K / group), float32: a weight is (code - zero) * scale. Codes of 4 bits lie
# in blocks of CODED_BLOCK of K (or of a group, where that is less): byte j of a block has element j in its low half, and that half a block on in its high half.
CODED_BLOCK: Final = 128
TWO_OF_FOUR_BLOCK: Final = 16
CODED: Final = frozenset(
    (
        "two_of_four_matmul",  # (x (M, K) float32, values (N, K / 2), places (N, K / 8) uint8) -> (M, N): two of four neighbours of a row are there,
        #                        bit k % 8 of byte k / 8 of places says whether k is; K is a multiple of TWO_OF_FOUR_BLOCK
        "coded_matmul",  # (x (M, K) float32, codes, scales, zeros) -> x times the weights' transpose (M, N); attrs code_bits (4 or 8), group
    )
)
# Windows over the last two dims of (N, C, H, W); attrs kernel, stride, padding, dilation (pairs), shape.
POOL: Final = frozenset(
    (
        "max_pool",  # x -> (values, int64 flat index into H*W); NaN wins; padding never does
        "max_pool_gradient",  # (g, indices) -> x's shape
        "average_pool",  # x; attrs count_include_pad, divisor (0: none) too
        "average_pool_gradient",  # (g,) -> x's shape
    )
)
# Discrete Fourier transforms along attr dim: sum over j of x_j exp(-2 pi i j k / size), of `inverse` with a plus; times attr scale (a float).
FOURIER: Final = frozenset(
    (
        "fourier",  # x; attrs dim, kind, size, inverse, scale. kind "complex": x (real or complex) -> complex of the same shape; "real": real x
        #             -> its points 0 ... size // 2; "hermitian": these points -> `size` real numbers (inverse)
    )
)
# Primitives whose second input is an index: int64 in graphs (who records casts other integers).
INDEXED: Final = frozenset("take take_rows put_rows put gather scatter max_pool_gradient".split())
# Data movement by index: indices int64, negative wraps, out of range stops the plan with IndexError.
MOVE: Final = frozenset(
    (
        "copy",  # x -> the same values, materialised with the output Value's strides
        "concatenate",  # (*xs); attr dim
        "scatter_view",  # (base, source, *offset parameters); attrs shape, strides, offset, multipliers: base with
        #                  the view's elements replaced by source (same shape and dtype)
        "take_rows",  # (x, index); attr dim: x.shape[:dim] + index.shape + x.shape[dim+1:]
        "put_rows",  # (x, index, source); attrs dim, mode: source has take_rows's shape
        "gather",  # (x, index); attr dim: out[i][j] = x[index[i][j]][j] for dim 0
        "scatter",  # (x, index, source); attrs dim, mode
        "put",  # (flat 1-d x, index, source); attr mode. mode: "set" (last wins) "add" "prod" "amax" "amin"
        "sort",  # x; attrs dim, descending: (values, int64 indices), stable, NaN is the largest
        "topk",  # x; attrs dim, k, largest: (values, int64 indices), sorted, NaN is the largest
    )
)
HOST: Final = frozenset(("host_call",))  # attr function (name in compiler/kernels/host.py), attrs kwargs: linalg
PRIMITIVES: Final = POINTWISE | VIEWS | REDUCE | REDUCE_PAIR | SCAN | CONTRACT | ATTENTION | RECURRENT | CODED | POOL | FOURIER | MOVE | HOST
COMMUTATIVE: Final = frozenset("add mul maximum minimum fmax fmin hypot bitwise_and bitwise_or bitwise_xor eq ne".split())


def recurrent_operands(op: str, attrs: Mapping[str, Any], rows: int, batch: int, hidden: int) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The inputs (but for sizes, which come last) and the results of a node of RECURRENT in order: their names and shapes."""
    mode = attrs["mode"]
    lstm, gru, gated, width = mode == "lstm", mode == "gru", GATES[mode] > 1, GATES[mode] * hidden
    shapes: tuple[Shape, ...] = (rows, hidden), (batch, hidden), (rows, width), (rows, 4 * hidden), (width, hidden)
    row, state, gates, saved, w = shapes
    c, kept = {"c": state} if lstm else {}, ({"all_c": row} if lstm else {}) | ({"saved": saved} if gated else {})
    if op == "recurrent_gradient":
        given = {"g": row, "g_h": state} | ({"g_c": state} if lstm else {}) | {"y": row, "h": state} | c | kept | {"w": w}
        to_hidden, to_c = {"to_hidden": gates} if gru else {}, {"to_c": state} if lstm else {}
        return given, {"to_gates": gates} | to_hidden | {"before": row, "to_h": state} | to_c
    last = {"last_h": state} | ({"last_c": state} if lstm else {})
    return {"gates": gates, "h": state} | c | {"w": w} | ({"bias": (width,)} if gru else {}), {"y": row} | last | (kept if attrs["keep"] else {})


def may_repeat(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether several elements may be one place of memory (as PyTorch sees it: by the strides in their order)."""
    reach = 0
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
        if stride <= reach:
            return 0 not in shape
        reach += (size - 1) * stride
    return False


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; as PyTorch, a size of 0 or 1 counts as 1."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@record
@dataclass(slots=True)
class Value:
    """Metadata of one value. `base` is None for a materialised value (or an external storage), else the value aliased."""

    shape: tuple[int, ...]
    dtype: dtype
    strides: tuple[int, ...]  # elements of the base's buffer
    offset: int = 0  # elements
    base: int | None = None
    dynamic: tuple[tuple[int, int], ...] = ()  # (parameter's value id, multiplier in elements)
    device: Device = CPU

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, without what may lie between them."""
        return self.numel * self.dtype.itemsize

    def mapped(self, number: Callable[[Any], Any]) -> Value:
        """The same with its numbers (or tuples of them) as `number` gives them."""
        return Value(number(self.shape), self.dtype, number(self.strides), number(self.offset), self.base, number(self.dynamic), self.device)

    @property
    def is_contiguous(self) -> bool:
        return self.strides == contiguous_strides(self.shape) or self.numel == 0


@record
@dataclass(slots=True, frozen=True)
class Node:
    """One primitive applied: `outputs` = op(`inputs`) under the static `attrs`, a sorted tuple of (name, value)."""

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: tuple[tuple[str, Any], ...] = ()

    def mapped(self, number: Callable[[Any], Any]) -> Node:
        """The same with the numbers of its attributes as `number` gives them."""
        return Node(self.op, self.inputs, self.outputs, number(self.attrs))

    def attr(self, name: str) -> Any:
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(f"{self.op} has no attribute {name!r}; it has {[key for key, _ in self.attrs]}")


@record
@dataclass(slots=True)
class Graph:
    """Nodes in execution order over `values`.

    `inputs`: value ids of external storages, in the order of the buffers given at run time.
    `parameters`: value ids of run-time scalars, in the order of the numbers given at run time.
    `outputs`: value ids (never views) that must stand in a buffer of their own after the run, dense in their strides.
    `updates`: (position in `inputs`, value id): that external storage must hold this value (same numel and dtype,
    materialised flat or of any dense shape) after the run, at the same address. `late` is for `fuse` alone: a pass that
    changes `nodes` drops it. `target`: the machine that it is compiled for; `compile_graph` sets it.
    """

    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    updates: list[tuple[int, int]] = field(default_factory=list)
    late: frozenset[int] = frozenset()  # indices of nodes that compute a value again (recompute.py)
    target: Target = field(default_factory=Target.host)

    def add_value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def root(self, value_id: int) -> int:
        """The materialised value that `value_id` aliases (itself, if it is no view)."""
        base = self.values[value_id].base
        return value_id if base is None else base

    def __str__(self) -> str:
        """The graph as text, one node a line; `parse(str(g))` is not promised, equality of text is identity of graphs."""
        lines = [f"inputs {[f'%{i}' for i in self.inputs]} parameters {[f'%{i}' for i in self.parameters]}"]
        for node in self.nodes:
            outs = ", ".join(f"%{o}:{self.values[o].dtype.name}{list(self.values[o].shape)}" for o in node.outputs)
            attrs = "".join(f" {k}={v!r}" for k, v in node.attrs)
            lines.append(f"{outs} = {node.op}({', '.join(f'%{i}' for i in node.inputs)}){attrs}")
        lines.append(f"outputs {[f'%{i}' for i in self.outputs]} updates {self.updates}")
        return "\n".join(lines)
