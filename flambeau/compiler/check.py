"""The executable specification of a legal graph: `infer` gives the shapes and dtypes of a primitive's results, `check` proves
that a whole graph obeys it. Tests (and FLAMBEAU_CHECK=1) run `check` after every pass.

Rules beyond `infer`: every primitive is known and has its attributes; values are defined before use and once (those without
elements need no definition); materialised values are dense; views name a root as base and stay inside its buffer (dynamic
offsets excepted: they are run-time numbers); outputs and updates are materialised.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.dtypes import dtype

Result = list[tuple[tuple[int, ...], dtype]]

_FLOAT_ONLY = g.UNARY - frozenset("neg abs sgn floor ceil trunc round bitwise_not conj_physical".split())
_REAL_FLOAT_ONLY = frozenset("erf erf_plus_one erfc erfinv lgamma digamma isnan atan2 hypot copysign nextafter".split())
_COMPLEX_TOO = frozenset("isnan".split())
_BITS = frozenset("bitwise_and bitwise_or bitwise_xor bitwise_not".split())
_SHIFTS = frozenset("shift_left shift_right".split())
_NO_COMPLEX = frozenset("floor ceil trunc round div_floor div_trunc remainder fmod maximum minimum fmax fmin lt le gt ge".split())
_MODES = frozenset("set add prod amax amin".split())


class GraphError(Exception):
    """A graph breaks the specification: a bug of the pass (or of the recorder) that made it."""


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise GraphError(message)


# -- Pointwise ----------------------------------------------------------------------------------------------------


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """NumPy's broadcasting rule; GraphError if the shapes do not fit."""
    out: list[int] = []
    for axis in range(1, max((len(s) for s in shapes), default=0) + 1):
        sizes = {s[-axis] for s in shapes if axis <= len(s)} - {1}
        _require(len(sizes) <= 1, f"shapes {shapes} do not broadcast")
        out.append(sizes.pop() if sizes else 1)
    return tuple(reversed(out))


def _check_domain(op: str, d: dtype) -> None:
    """Whether the pointwise primitive `op` exists for dtype `d`."""
    if op in _BITS:
        _require(d.category <= 1, f"{op} of {d.name}: must be bool or integer")
    elif op in _SHIFTS:
        _require(d.category == 1, f"{op} of {d.name}: must be integer")
    elif op in _REAL_FLOAT_ONLY:
        _require(d.category == 2 or (op in _COMPLEX_TOO and d.is_complex), f"{op} of {d.name}: must be floating")
    elif op in _FLOAT_ONLY or op == "div":
        _require(d.category >= 2, f"{op} of {d.name}: must be floating or complex")
    elif op in _NO_COMPLEX:
        _require(d.category <= 2, f"{op} of {d.name}: must not be complex")
    elif op in g.UNARY_COMPLEX_TO_REAL or op == "conj_physical":
        _require(d.is_complex, f"{op} of {d.name}: must be complex")
    elif op in ("neg", "sub"):
        _require(d.category >= 1, f"{op} of bool")


def _pointwise(node: Node, xs: list[Value]) -> Result:
    op = node.op
    if op == "constant":
        return [((), node.attr("dtype"))]
    if op == "iota":
        shape, dim = node.attr("shape"), node.attr("dim")
        _require(0 <= dim < len(shape) or (dim == 0 and shape == ()), f"iota: dim {dim} of shape {shape}")
        return [(tuple(shape), dtypes.int64)]
    if op == "random_uniform":
        _require(all(x.dtype is dtypes.int64 and x.shape == () for x in xs), "random_uniform: seed and offset: int64, 0-d")
        return [(tuple(node.attr("shape")), dtypes.float32)]
    if op == "take":
        x, index = xs
        _require(len(x.shape) == 1, "take: 1-d x")
        return [(index.shape, x.dtype)]
    if op == "searchsorted":
        ordered, values = xs
        _require(ordered.dtype is values.dtype and len(ordered.shape) >= 1, "searchsorted: one dtype, sorted not 0-d")
        _require(len(ordered.shape) == 1 or ordered.shape[:-1] == values.shape[:-1], "searchsorted: leading dims differ")
        return [(values.shape, dtypes.int64)]
    shape = broadcast([x.shape for x in xs])
    if op == "where":
        _require(xs[0].dtype is dtypes.bool_, "where: condition must be bool")
        xs = xs[1:]
    d = xs[0].dtype
    _require(all(x.dtype is d for x in xs), f"{op}: inputs of dtypes {[x.dtype.name for x in xs]}, must be one")
    if op == "cast":
        return [(shape, node.attr("dtype"))]
    if op == "make_complex":
        _require(d is d.to_complex().to_real(), f"make_complex of {d.name}")
        return [(shape, d.to_complex())]
    _check_domain(op, d)
    if op in g.COMPARE or op in g.UNARY_TO_BOOL:
        return [(shape, dtypes.bool_)]
    if op in g.UNARY_COMPLEX_TO_REAL or op == "abs":
        return [(shape, d.to_real())]
    return [(shape, d)]


# -- Reductions, scans, dense algebra, windows ----------------------------------------------------------------------


def _reduce(node: Node, xs: list[Value]) -> Result:
    (x,) = xs
    dims = node.attr("dims")
    _require(tuple(sorted(set(dims))) == tuple(dims), f"{node.op}: dims {dims} must be sorted and distinct")
    _require(all(0 <= d < len(x.shape) for d in dims), f"{node.op}: dims {dims} of shape {x.shape}")
    shape = tuple(s for d, s in enumerate(x.shape) if d not in dims)
    if node.op in ("argmax", "argmin"):
        _require(len(dims) == 1, f"{node.op}: over one dim, got {dims}")
        return [(shape, dtypes.int64)]
    if node.op == "var_mean":
        _require(x.dtype.category == 2, "var_mean: floating")
        node.attr("correction")
        return [(shape, x.dtype), (shape, x.dtype)]
    return [(shape, x.dtype)]


def _scan(node: Node, xs: list[Value]) -> Result:
    (x,) = xs
    _require(0 <= node.attr("dim") < len(x.shape), f"{node.op}: dim {node.attr('dim')} of shape {x.shape}")
    first = (x.shape, x.dtype)
    return [first, (x.shape, dtypes.int64)] if node.op in ("cummax", "cummin") else [first]


def _contract(node: Node, xs: list[Value]) -> Result:
    a, b = xs
    _require(a.dtype is b.dtype, f"{node.op}: dtypes {a.dtype.name} and {b.dtype.name}")
    if node.op == "matmul":
        fits = len(a.shape) == len(b.shape) >= 2 and a.shape[:-2] == b.shape[:-2] and a.shape[-1] == b.shape[-2]
        _require(fits, f"matmul: shapes {a.shape} and {b.shape}")
        wide = dict(node.attrs).get("wide", False)
        _require(not wide or a.dtype in g.WIDER, f"matmul: {a.dtype.name} has no wider result")
        return [((*a.shape[:-1], b.shape[-1]), g.WIDER[a.dtype] if wide else a.dtype)]
    stride, padding, dilation, groups = (node.attr(k) for k in ("stride", "padding", "dilation", "groups"))
    if node.op == "convolution":
        x_shape, w_shape = a.shape, b.shape
    elif node.op == "convolution_input_gradient":
        x_shape, w_shape = tuple(node.attr("shape")), b.shape
    else:
        x_shape, w_shape = b.shape, tuple(node.attr("shape"))
    _require(len(x_shape) == len(w_shape) == 4, f"{node.op}: shapes {x_shape} and {w_shape} must be 4-d")
    _require(x_shape[1] == w_shape[1] * groups and w_shape[0] % groups == 0, f"{node.op}: {x_shape}, {w_shape}, {groups}")
    space = tuple((x_shape[2 + i] + 2 * padding[i] - dilation[i] * (w_shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(2))
    out_shape = (x_shape[0], w_shape[0], *space)
    if node.op == "convolution":
        return [(out_shape, a.dtype)]
    _require(a.shape == out_shape, f"{node.op}: gradient {a.shape}, must be {out_shape}")
    return [(x_shape if node.op == "convolution_input_gradient" else w_shape, a.dtype)]


def _attention(node: Node, xs: list[Value]) -> Result:
    gradient = node.op == "attention_gradient"
    masked, drops = bool(node.attr("masked")), node.attr("dropout") > 0.0
    count = (6 if gradient else 3) + masked + drops
    _require(len(xs) == count, f"{node.op}: {len(xs)} inputs, must be {count}")
    node.attr("scale")
    node.attr("causal")
    q, k, v = xs[1:4] if gradient else xs[:3]
    kind = q.dtype
    _require(kind.category == 2 and k.dtype is v.dtype is kind, f"{node.op}: dtypes {q.dtype.name}, {k.dtype.name}, {v.dtype.name}")
    fits = len(q.shape) == len(k.shape) == len(v.shape) >= 2 and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
    fits = fits and q.shape[-1] == k.shape[-1] and k.shape[-2] == v.shape[-2]
    _require(fits, f"{node.op}: shapes {q.shape}, {k.shape} and {v.shape}")
    wide = dtypes.float64 if kind is dtypes.float64 else dtypes.float32
    rows, out = q.shape[:-1], (*q.shape[:-1], v.shape[-1])
    if masked:
        mask = xs[6 if gradient else 3]
        _require(mask.shape == (*rows, k.shape[-2]), f"{node.op}: mask {mask.shape}, must be {(*rows, k.shape[-2])}")
        _require(mask.dtype is dtypes.bool_ or mask.dtype is wide, f"{node.op}: mask of {mask.dtype.name}")
    if drops:
        kept, weights = xs[-1], (*rows, k.shape[-2])
        _require(kept.shape == weights and kept.dtype is dtypes.bool_, f"{node.op}: kept {kept.dtype.name} {kept.shape}, must be bool {weights}")
    if not gradient:
        return [(out, kind), (rows, wide)]
    _require(xs[0].shape == out and xs[0].dtype is kind, f"{node.op}: gradient {xs[0].shape}, must be {out}")
    _require(all(x.shape == rows and x.dtype is wide for x in xs[4:6]), f"{node.op}: lse and delta must be {wide.name} {rows}")
    return [(x.shape, kind) for x in (q, k, v)]


def _recurrent(node: Node, xs: list[Value]) -> Result:
    attrs = {name: node.attr(name) for name in ("mode", "packed", "reverse", *["keep"] * (node.op == "recurrent"))}
    rest = list(xs)
    _require(len(rest) > 2 and len(rest[0].shape) == len(rest[1].shape) == 2, f"{node.op}: rows and states must be 2-d")
    if attrs["packed"]:
        sizes = rest.pop()
        _require(len(sizes.shape) == 1 and sizes.dtype is dtypes.int64, f"{node.op}: sizes {sizes.dtype.name} {sizes.shape}, must be int64 and 1-d")
    kind = rest[0].dtype
    given, results = g.recurrent_operands(node.op, attrs, rest[0].shape[0], *rest[1].shape)
    _require(len(rest) == len(given), f"{node.op}: {len(rest)} inputs without sizes, must be {len(given)}")
    _require(all(x.dtype is kind for x in rest), f"{node.op}: dtypes {[x.dtype.name for x in rest]}")
    for (name, shape), x in zip(given.items(), rest, strict=True):
        _require(x.shape == shape, f"{node.op}: {name} {x.shape}, must be {shape}")
    return [(shape, kind) for shape in results.values()]


def _pool(node: Node, xs: list[Value]) -> Result:
    for name in ("kernel", "stride", "padding", "dilation"):
        _require(len(node.attr(name)) == 2, f"{node.op}: {name} must be a pair")
    shape = tuple(node.attr("shape"))
    _require(len(shape) == 4 == len(xs[0].shape), f"{node.op}: must be 4-d")
    _require(shape[:2] == xs[0].shape[:2], f"{node.op}: batch and channels of {shape} and {xs[0].shape}")
    if node.op == "max_pool":
        return [(shape, xs[0].dtype), (shape, dtypes.int64)]
    if node.op == "max_pool_gradient":
        _require(xs[1].shape == xs[0].shape, "max_pool_gradient: indices like g")
    return [(shape, xs[0].dtype)]


def _two_of_four(xs: list[Value]) -> Result:
    x, values, places = xs
    (m, k), n = x.shape, values.shape[0]
    kinds = (dtypes.float32, dtypes.bfloat16, dtypes.float16)
    _require(x.dtype is dtypes.float32 and values.dtype in kinds and places.dtype is dtypes.uint8, f"two_of_four_matmul: dtypes {[v.dtype.name for v in xs]}")
    shapes = (tuple(values.shape), tuple(places.shape))
    _require(k % g.TWO_OF_FOUR_BLOCK == 0 and shapes == ((n, k // 2), (n, k // 8)), f"two_of_four_matmul: shapes {shapes} for {k}")
    return [((m, n), dtypes.float32)]


def _coded(node: Node, xs: list[Value]) -> Result:
    if node.op == "two_of_four_matmul":
        return _two_of_four(xs)
    x, codes, scales, zeros = xs
    bits, group = node.attr("code_bits"), node.attr("group")
    (m, k), n = x.shape, codes.shape[0]
    _require(x.dtype is scales.dtype is zeros.dtype is dtypes.float32 and codes.dtype is dtypes.uint8, f"{node.op}: dtypes {[v.dtype.name for v in xs]}")
    _require(bits in (4, 8) and (group in (32, 64) or group % g.CODED_BLOCK == 0) and k % group == 0, f"{node.op}: {bits} bits, groups of {group} of {k}")
    shapes = (tuple(codes.shape), tuple(scales.shape), tuple(zeros.shape))
    _require(shapes == ((n, k * bits // 8), (n, k // group), (n, k // group)), f"{node.op}: shapes {shapes} for {k}")
    return [((m, n), dtypes.float32)]


def _fourier(node: Node, xs: list[Value]) -> Result:
    x, dim, kind, size = xs[0], node.attr("dim"), node.attr("kind"), node.attr("size")
    _require(x.dtype.to_real() in (dtypes.float32, dtypes.float64), f"fourier: dtype {x.dtype.name}")
    _require(0 <= dim < len(x.shape), f"fourier: dim {dim} of shape {x.shape}")
    _require(kind in ("complex", "real", "hermitian"), f"fourier: kind {kind!r}")
    points = size // 2 + 1 if kind == "hermitian" else size
    _require(size > 0 and x.shape[dim] == points, f"fourier: {x.shape[dim]} points along {dim}, must be {points}")
    _require(kind == "complex" or (x.dtype.is_complex, node.attr("inverse")) == (kind == "hermitian",) * 2, f"fourier: {kind} of {x.dtype.name}")
    made = size if kind != "real" else size // 2 + 1
    return [((*x.shape[:dim], made, *x.shape[dim + 1 :]), x.dtype.to_real() if kind == "hermitian" else x.dtype.to_complex())]


# -- Movement -----------------------------------------------------------------------------------------------------


def _move(node: Node, xs: list[Value]) -> Result:
    op, x = node.op, xs[0]
    if op == "copy":
        return [(x.shape, x.dtype)]
    if op == "scatter_view":
        source = xs[1]
        shape, strides = tuple(node.attr("shape")), tuple(node.attr("strides"))
        _require(source.shape == shape and source.dtype is x.dtype, f"scatter_view: source {source.shape}, view {shape}")
        _require(len(node.attr("multipliers")) == len(xs) - 2, "scatter_view: a multiplier for each offset parameter")
        _require(len(strides) == len(shape), "scatter_view: a stride for each dim")
        if len(xs) == 2:
            _check_bounds("scatter_view", shape, strides, node.attr("offset"), x.dtype, x)
        return [(x.shape, x.dtype)]
    if op == "put":
        _require(len(x.shape) == 1 and xs[1].shape == xs[2].shape, "put: 1-d x; index and source of one shape")
        _check_source(node, xs)
        return [(x.shape, x.dtype)]
    dim = node.attr("dim")
    _require(0 <= dim < max(len(x.shape), 1), f"{op}: dim {dim} of shape {x.shape}")
    if op == "concatenate":
        for other in xs:
            same = len(other.shape) == len(x.shape) and other.dtype is x.dtype
            same = same and all(a == b for d, (a, b) in enumerate(zip(x.shape, other.shape, strict=True)) if d != dim)
            _require(same, f"concatenate: {x.shape} and {other.shape} along {dim}")
        return [((*x.shape[:dim], sum(o.shape[dim] for o in xs), *x.shape[dim + 1 :]), x.dtype)]
    if op == "sort":
        node.attr("descending")
        return [(x.shape, x.dtype), (x.shape, dtypes.int64)]
    if op == "topk":
        k = node.attr("k")
        node.attr("largest")
        if x.shape == ():
            return [((), x.dtype), ((), dtypes.int64)]
        _require(0 <= k <= x.shape[dim], f"topk: k {k} of {x.shape[dim]}")
        shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
        return [(shape, x.dtype), (shape, dtypes.int64)]
    _check_source(node, xs)
    index = xs[1]
    rows = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    if op == "take_rows":
        return [(rows, x.dtype)]
    if op == "put_rows":
        _require(xs[2].shape == rows, f"put_rows: source {xs[2].shape}, must be {rows}")
        return [(x.shape, x.dtype)]
    _require(len(index.shape) == len(x.shape), f"{op}: index {index.shape} and x {x.shape} must have the same rank")
    inside = all(i <= s for d, (i, s) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim)
    _require(inside, f"{op}: index {index.shape} must not pass x {x.shape} outside dim {dim}")
    if op == "gather":
        return [(index.shape, x.dtype)]
    _require(xs[2].shape == index.shape, f"scatter: source {xs[2].shape} and index {index.shape}")
    return [(x.shape, x.dtype)]


def _check_source(node: Node, xs: list[Value]) -> None:
    if len(xs) == 3:
        _require(xs[2].dtype is xs[0].dtype, f"{node.op}: source of {xs[2].dtype.name} into {xs[0].dtype.name}")
        _require(node.attr("mode") in _MODES, f"{node.op}: mode {node.attr('mode')!r}")


_RULES: list[tuple[frozenset[str], Callable[[Node, list[Value]], Result]]] = [
    (g.POINTWISE, _pointwise),
    (g.REDUCE | g.REDUCE_PAIR, _reduce),
    (g.SCAN, _scan),
    (g.CONTRACT, _contract),
    (g.ATTENTION, _attention),
    (g.RECURRENT, _recurrent),
    (g.POOL, _pool),
    (g.FOURIER, _fourier),
    (g.CODED, _coded),
    (g.MOVE, _move),
]
_RULE_OF = {op: rule for ops, rule in _RULES for op in ops}
_ARITY = (
    dict.fromkeys(g.UNARY | g.UNARY_TO_BOOL | g.UNARY_COMPLEX_TO_REAL | g.REDUCE | g.REDUCE_PAIR | g.SCAN | g.FOURIER, 1)
    | dict.fromkeys(g.BINARY | g.COMPARE | g.CONTRACT, 2)
    | {"where": 3, "cast": 1, "make_complex": 2, "constant": 0, "iota": 0, "random_uniform": 2, "take": 2, "searchsorted": 2}
    | {"coded_matmul": 4, "two_of_four_matmul": 3, "max_pool": 1, "max_pool_gradient": 2, "average_pool": 1, "average_pool_gradient": 1}
    | {"copy": 1, "take_rows": 2, "put_rows": 3, "gather": 2, "scatter": 3, "put": 3, "sort": 1, "topk": 1}
)


def infer(node: Node, inputs: list[Value]) -> Result:
    """(shape, dtype) of every result of a primitive that is neither a view nor a host call.

    Raises GraphError if the inputs or attributes break the primitive's rule.
    """
    arity = _ARITY.get(node.op)
    _require(arity is None or arity == len(inputs), f"{node.op}: {len(inputs)} inputs, must be {arity}")
    if node.op in g.INDEXED:
        _require(inputs[1].dtype is dtypes.int64, f"{node.op}: index of {inputs[1].dtype.name}, must be int64")
    _require(arity is not None or len(inputs) >= (2 if node.op == "scatter_view" else 1), f"{node.op}: too few inputs")
    try:
        return _RULE_OF[node.op](node, inputs)
    except KeyError as error:
        raise GraphError(str(error)) from None


# -- Layout and the whole graph -------------------------------------------------------------------------------------


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the strides are a permutation of contiguous strides; dims of size 1 may have any."""
    if len(shape) != len(strides):
        return False
    if prod(shape) == 0:
        return True
    step = 1
    for stride, size in sorted((st, s) for st, s in zip(strides, shape, strict=True) if s != 1):
        if stride != step:
            return False
        step *= size
    return True


def _check_bounds(name: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, d: dtype, base: Value) -> None:
    """Every element of the layout lies inside the buffer of `base`."""
    if prod(shape) == 0:
        return
    low = offset + sum((s - 1) * st for s, st in zip(shape, strides, strict=True) if st < 0)
    high = offset + sum((s - 1) * st for s, st in zip(shape, strides, strict=True) if st > 0)
    size = base.numel * base.dtype.itemsize
    _require(
        low >= 0 and (high + 1) * d.itemsize <= size,
        f"{name}: elements {low}..{high} ({d.itemsize} bytes each) of a buffer of {size} bytes",
    )


def _check_view(graph: Graph, node: Node, defined: set[int]) -> None:
    values = graph.values
    _require(len(node.outputs) == 1 and len(node.inputs) >= 1, f"{node.op}: one output, at least one input")
    source, out = values[node.inputs[0]], values[node.outputs[0]]
    _require(out.base is not None, f"{node.op}: the output must be a view")
    base = out.base
    assert base is not None
    _require(base == graph.root(node.inputs[0]), f"{node.op}: base %{base}, but its input aliases %{graph.root(node.inputs[0])}")
    _require(values[base].base is None, f"{node.op}: base %{base} is itself a view")
    _require(len(out.shape) == len(out.strides), f"{node.op}: strides {out.strides} of shape {out.shape}")
    if node.op not in ("bitcast", "real_view"):
        _require(out.dtype is source.dtype, f"{node.op}: dtype {source.dtype.name} becomes {out.dtype.name}")
    for parameter, _ in out.dynamic:
        _require(parameter in defined and values[parameter].dtype is dtypes.int64, f"{node.op}: offset %{parameter}")
    if not out.dynamic:
        _check_bounds(node.op, out.shape, out.strides, out.offset, out.dtype, values[base])


def check(graph: Graph) -> None:
    """Raise GraphError, naming the node, if the graph is not legal."""
    values = graph.values
    defined = set(graph.inputs) | set(graph.parameters)
    _require(len(defined) == len(graph.inputs) + len(graph.parameters), "an input or parameter is listed twice")
    for i in graph.inputs:
        _require(len(values[i].shape) == 1 and values[i].base is None, f"input %{i} must be a flat storage")
    for i in graph.parameters:
        d = values[i].dtype
        _require(values[i].shape == () and d in (dtypes.int64, dtypes.float64, dtypes.bool_), f"parameter %{i}: {d.name}")
    made = {o for node in graph.nodes for o in node.outputs}
    # Nobody has to make a value without elements.
    defined.update(i for i, v in enumerate(values) if v.base is None and 0 in v.shape and i not in made)
    for index, node in enumerate(graph.nodes):
        try:
            _check_node(graph, node, defined)
        except GraphError as error:
            raise GraphError(f"node {index} ({node.op} -> {node.outputs}): {error}") from None
    for i in (*graph.outputs, *(u for _, u in graph.updates)):
        _require(i not in graph.parameters, f"%{i} is a parameter: it has no buffer to return; copy it")
    for i in graph.outputs:
        _require(i in defined and values[i].base is None, f"output %{i} must be defined and materialised")
    seen: set[int] = set()
    for position, i in graph.updates:
        _require(0 <= position < len(graph.inputs) and position not in seen, f"update of input {position}")
        seen.add(position)
        target = values[graph.inputs[position]]
        _require(i in defined and values[i].base is None, f"update %{i} must be defined and materialised")
        same = values[i].numel * values[i].dtype.itemsize == target.numel * target.dtype.itemsize
        _require(same, f"update %{i}: {values[i].shape} {values[i].dtype.name} into {target.shape} {target.dtype.name}")


def _check_node(graph: Graph, node: Node, defined: set[int]) -> None:
    values = graph.values
    _require(node.op in g.PRIMITIVES, "unknown primitive")
    _require(all(i in defined for i in node.inputs), f"inputs {node.inputs} are not all defined before")
    _require(not any(o in defined for o in node.outputs), f"outputs {node.outputs} are defined twice")
    if node.op in g.VIEWS:
        _check_view(graph, node, defined)
    else:
        for o in node.outputs:
            out = values[o]
            _require(out.base is None and out.offset == 0 and not out.dynamic, f"%{o} must be materialised")
            _require(is_dense(out.shape, out.strides), f"%{o}: strides {out.strides} of shape {out.shape} are not dense")
        if node.op == "scatter_view":
            base, root = values[node.inputs[0]], values[graph.root(node.inputs[0])]
            # By another name where gradients lead through it (trace/recorder.py, `face`), or as another dtype: still all of the memory, in its order.
            all_of_it = base.numel * base.dtype.itemsize == root.numel * root.dtype.itemsize and is_dense(base.shape, base.strides)
            whole = base.base is None or (not base.offset and not base.dynamic and all_of_it)
            _require(whole, f"base %{node.inputs[0]} must be materialised")
        if node.op == "host_call":
            node.attr("function")
        else:
            expected: list[tuple[Any, ...]] = [tuple(r) for r in infer(node, [values[i] for i in node.inputs])]
            got = [(values[o].shape, values[o].dtype) for o in node.outputs]
            _require(expected == got, f"results {got}, must be {expected}")
    defined.update(node.outputs)
