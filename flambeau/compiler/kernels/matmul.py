"""Matrix products: the operands' layout, the choice of a kernel, its blocking, its words.

`make_matmul` brings every product to one form: a (batch..., M, K) @ b (batch..., K, N) -> c, with arbitrary strides.
Batch dims that the strides allow are merged, into each other and into M (a linear layer over (B, T, C) is one product
of B * T rows). A c whose rows, not columns, lie next to each other is computed transposed, with the operands
exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flambeau.compiler.graph import Graph, Value
from flambeau.compiler.kernel import Address, Function, Kernel, Scratch, Word
from flambeau.compiler.kernels.description import Body, Epilogue, Layout, Writer, add_reader, describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_dots import dots_way
from flambeau.compiler.kernels.matmul_driver import Way
from flambeau.compiler.kernels.matmul_element import Element, Facts, Tile, element_of, register_tile
from flambeau.compiler.kernels.matmul_halves import form_of, halves_way
from flambeau.compiler.kernels.matmul_pack import packed_way
from flambeau.compiler.kernels.matmul_parts import PARTS, parts_pay, parts_way
from flambeau.compiler.kernels.matmul_prepacked import Panels, Prepacked
from flambeau.compiler.kernels.matmul_small import ITEM_OPERATIONS, height_of, is_small
from flambeau.compiler.kernels.matmul_split import READ_BY_SUM, count_parts, sum_body
from flambeau.compiler.kernels.matmul_tiles import tile_way
from flambeau.compiler.kernels.matrix_rows import COLUMNS, rows_body, scratch_bytes
from flambeau.compiler.kernels.matrix_rows import height_of as rows_height
from flambeau.compiler.kernels.matrix_vector import (
    DOT_ROWS,
    LINE,
    UNIT_VECTORS,
    dot_body,
    dot_scratch,
    dot_shape,
    instruction_of,
    most_rows,
    sweep_body,
)
from flambeau.compiler.kernels.tiled import Words, describe_tiled
from flambeau.dtypes import BY_NAME, dtype
from flambeau.runtime.target import Target
from flambeau.symbols import maximum, roughly, roughly_less

_FEW_UNTURNED = 128


@dataclass(slots=True)
class Operand:
    """One matrix operand: its buffer's word and its strides, in elements."""

    word: Address
    root: int
    row: int
    column: int


@dataclass(slots=True)
class Product:
    """c = a @ b, in normal form. `batch`: (size, a's, b's, c's stride) of each dim that could not be merged."""

    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    c: Operand
    batch: list[tuple[int, int, int, int]]
    rows_per_batch: int  # rows of one batch item before merging: what the epilogue calls a row
    exchanged: bool
    splits: int = 1  # parts of K (of `k` each, the last one what is left of `k_total`): the innermost batch dim
    k_total: int = -1

    @property
    def batches(self) -> int:
        count = 1
        for size, *_ in self.batch:
            count *= size
        return count


def _operand(graph: Graph, value_id: int) -> tuple[Operand, Value]:
    value = graph.values[value_id]
    itemsize = value.dtype.itemsize
    root = graph.root(value_id)
    word = Address(root, value.offset * itemsize, tuple((p, m * itemsize) for p, m in value.dynamic))
    return Operand(word, root, value.strides[-2], value.strides[-1]), value


def normalise(graph: Graph, a_id: int, b_id: int, c_id: int, exchange: bool | None = None) -> Product:
    """The product c = a @ b of three values of the graph, in normal form. `exchange`: whether the operands are exchanged; None:
    as it is cheapest."""
    (a, va), (b, vb), (c, vc) = (_operand(graph, value) for value in (a_id, b_id, c_id))
    m, k = va.shape[-2:]
    n = vb.shape[-1]
    batch: list[tuple[int, int, int, int]] = []
    for size, sa, sb, sc in zip(vc.shape[:-2], va.strides[:-2], vb.strides[:-2], vc.strides[:-2], strict=True):
        if size == 1:
            continue
        if batch and all(outer == inner * size for outer, inner in zip(batch[-1][1:], (sa, sb, sc), strict=True)):
            batch[-1] = (batch[-1][0] * size, sa, sb, sc)
        else:
            batch.append((size, sa, sb, sc))
    rows_per_batch = m
    # Merge trailing batch dims that share b into the rows.
    while batch and batch[-1][2] == 0:
        size, sa, _, sc = batch[-1]
        if m == 1 and rows_per_batch == 1:
            a.row, c.row = sa, sc
        elif sa != m * a.row or sc != m * c.row:
            break
        m *= size
        batch.pop()
    # c.T = b.T @ a.T, where that lets c be written, or the smaller operand be packed, more cheaply: b must be
    # transposed into panels if its columns do not lie next to each other. (Measured: a packed element costs half a
    # cycle, so does an element of a c that is written transposed.)
    b_transposes, a_transposes = b.column != 1, a.row != 1
    straight = k * n * b_transposes + m * n * (c.column != 1)
    turned = k * m * a_transposes + m * n * (c.row != 1)
    few_rows, few_columns = (DOT_ROWS < most_rows(va.dtype.name, graph.target, many, k) >= few for few, many in ((m, n), (n, m)))
    if exchange is not None:
        exchanged = exchange
    elif b.row == 1 and ((few_rows and a.column == 1) or (few_columns and 1 in (a.column, a.row))):
        exchanged = n < m  # by dot instructions, where the larger operand lies (matrix_vector.py, matrix_rows.py)
    elif _in_parts(graph.target, va.dtype.name, m, n, k) or _by_dots(graph.target, va.dtype.name, m, n):
        # Both operands are packed anyway. Few rows times a transposed matrix: the larger operand is not turned while it is
        # packed then, which is worth more than a c that is (measured: 7 to 30 %).
        unturned = c.column == 1 and a.column == 1 and b.row == 1 and m <= _FEW_UNTURNED <= n
        exchanged = unturned or (c.column != 1 and c.row == 1)
    elif n == 1 or (a.column == 1 and b.row == 1 and (m <= DOT_ROWS or n <= DOT_ROWS)):
        exchanged = n < m  # a few vectors times a matrix (matrix_vector.py): they are the rows of a
    else:
        exchanged = m > 1 and roughly_less(turned, straight)
    if exchanged:
        a, b = Operand(b.word, b.root, b.column, b.row), Operand(a.word, a.root, a.column, a.row)
        c = Operand(c.word, c.root, c.column, c.row)
        m, n = n, m
        batch = [(size, sb, sa, sc) for size, sa, sb, sc in batch]
    if n == 1:  # strides of a dim of one element are free: choose the one that is the best fact
        c.column = 1
    return Product(m, n, k, a, b, c, batch, rows_per_batch, exchanged)


def _in_parts(target: Target, dtype_name: str, m: int, n: int, k: int) -> bool:
    """Whether a product of float32 is computed as products of bfloat16 parts."""
    return dtype_name == "float32" and "bfloat16" in target.matrix_dtypes and parts_pay(m, n, k)


def _by_dots(target: Target, dtype_name: str, m: int, n: int) -> bool:
    """Whether a product is computed by dot instructions."""
    return dtype_name in target.dots - target.matrix_dtypes and m > DOT_ROWS and n > DOT_ROWS


def unit_stride(lane: int, k_stride: int, lanes: int, k: int) -> str:
    """Which stride is 1, as a fact: "lane", "k" or "none". A dim of one element counts as unit."""
    if lane == 1 and lanes > 1:
        return "lane"
    if k_stride == 1 and k > 1:
        return "k"
    if lanes == 1:
        return "lane"
    if k <= 1:
        return "k"
    return "none"


def make_matmul(
    graph: Graph, node_index: int, epilogue: Epilogue | None = None, prepacked: Prepacked | None = None
) -> list[Kernel]:  # fmt: skip
    """Kernels of the `matmul` node, (..., M, K) @ (..., K, N) -> (..., M, N), and of its epilogue. All are of one dtype, or the result is
    of a wider one (graph.py, WIDER).

    One kernel, or two where a long K is cut into parts (see matmul_split.py); none if the result has no elements. `prepacked`:
    the graph's shared operands; the first product with one also brings the kernel that packs it.
    """
    node = graph.nodes[node_index]
    exchange = None if prepacked is None else prepacked.is_left(node_index)
    product = normalise(graph, node.inputs[0], node.inputs[1], node.outputs[0], exchange)
    dtype = graph.values[node.outputs[0]].dtype
    if graph.values[node.outputs[0]].numel == 0:
        return []
    operands = graph.values[node.inputs[0]].dtype
    element = replace(element_of(operands), wide=operands is not dtype)
    host = graph.target
    tile = register_tile(element, host.vector_bits, host.registers)
    if prepacked is not None and exchange is not None:
        panels, packing = prepacked.panels(node_index, product.b)
        return [*packing, _product_kernel(product, element, tile, host, epilogue, node_index, panels)]
    by_vectors = _vector_way(product, _facts(product, element, tile, host), host) != ""
    splits = count_parts(element, product.m, product.n, product.k, product.batches, by_vectors)
    if splits is None:
        return [_product_kernel(product, element, tile, host, epilogue, node_index)]
    k = round_up(ceil_div(product.k, splits), 16)
    splits = ceil_div(product.k, k)
    size = product.m * product.n
    parts = graph.add_value(Value((splits * size,), dtype, (1,)))  # only these two kernels know it
    inner = (splits, k * product.a.column, k * product.b.row, size)
    cut = replace(product, k=k, k_total=product.k, splits=splits, batch=[inner], c=Operand(Address(parts), parts, product.n, 1))
    first = _product_kernel(cut, element, tile, host, None, node_index)
    facts = _facts(product, element, tile, host)
    total = replace(product, a=Operand(Address(parts), parts, product.n, 1), splits=splits)
    sums = {name: word for name, word in _common_words(total, facts).items() if name in READ_BY_SUM}
    second = _kernel(
        f"matmul:sum:{facts.key()}", partial(sum_body, facts, epilogue is not None), facts, sums, product=total, node_index=node_index, epilogue=epilogue,
        units=product.m, min_units=maximum(1, (256 << 10) // maximum(1, splits * product.n * element.itemsize)),
    )  # fmt: skip
    second.name, second.reads = f"matmul_sum_{element.name}", (parts,)
    second.operations, second.bytes = splits * size, (splits + 1) * size * element.itemsize
    return [first, second]


def _facts(product: Product, element: Element, tile: Tile, host: Target) -> Facts:
    return Facts(
        element, tile, host.vector_bits,
        a_unit=unit_stride(product.a.row, product.a.column, product.m, product.k),
        b_unit=unit_stride(product.b.column, product.b.row, product.n, product.k),
        c_unit="column" if product.c.column == 1 else "row" if product.c.row == 1 else "none",
        batch_dims=max(2, len(product.batch)), exchanged=product.exchanged,
    )  # fmt: skip


def _vector_way(product: Product, facts: Facts, host: Target) -> str:
    """Which kernel of matrix_vector.py or matrix_rows.py does a product: "dot", "sweep", "rows" or "" for none."""
    few = most_rows(facts.element.name, host, product.n, product.k)
    if facts.element.parts == 1 and product.m <= few:
        if facts.b_unit == "k" and product.a.column == 1:
            return "dot"
        if few > DOT_ROWS and facts.b_unit == "lane" and product.m > 1 and product.a.column == 1 and product.b.column == 1 and facts.c_unit == "column":
            return "rows"
        if facts.b_unit == "lane" and product.m == 1 and (product.b.column == 1 or product.n == 1):
            return "sweep"
    return ""


def product_kernel(graph: Graph, product: Product, kind: dtype, node_index: int, epilogue: Epilogue | None) -> Kernel:
    """The kernel of a product that another node is made of."""
    host, element = graph.target, element_of(kind)
    return _product_kernel(product, element, register_tile(element, host.vector_bits, host.registers), host, epilogue, node_index)


def _product_kernel(
    product: Product, element: Element, tile: Tile, host: Target, epilogue: Epilogue | None, node_index: int,
    panels: Panels | None = None,
) -> Kernel:  # fmt: skip
    """The kernel of a product in normal form."""
    facts = replace(_facts(product, element, tile, host), prepacked=panels is not None)
    described = partial(_kernel, product=product, node_index=node_index, epilogue=epilogue)
    kind = _vector_way(product, facts, host) if panels is None else ""
    if kind:
        return _vector_kernel(kind, product, facts, host, described, epilogue is not None)
    sizes = product.m, product.n, product.k, product.batches
    plain = epilogue is None and panels is None and product.splits == 1
    if plain and is_small(element, facts, *sizes, host) and not _in_parts(host, element.name, *sizes[:3]):
        return _small_kernel(product, facts, BY_NAME[element.name], host, node_index)
    way = _way(facts, *sizes, host)
    blocking = way.blocking
    words = _common_words(product, facts) | {
        "scratch": Scratch(blocking.scratch_bytes),
        "mc": blocking.mc, "nc": blocking.nc, "kc": blocking.kc,
        "row_panels": blocking.row_panels, "column_blocks": blocking.column_blocks,
        "b_columns": blocking.b_columns, "scratch_bytes": blocking.scratch_bytes,
        "a_panels": blocking.a_panels, "row_step": blocking.row_step,
        "packs_b": int(blocking.pack_b), **way.words,
    }  # fmt: skip
    if panels is not None:
        words |= {"packed": Address(panels.value), "packed_count": panels.count, "packed_extents": panels.extents}
    kernel = described(
        f"matmul:{way.kind}:{way.facts.key()}", way.write(epilogue is not None), way.facts, words, late=way.late, helpers=way.helpers,
        constants=way.constants, units=blocking.row_panels * blocking.column_blocks * product.batches, min_units=blocking.min_units, grain=blocking.grain,
    )  # fmt: skip
    if panels is not None:
        kernel.reads = (*kernel.reads, panels.value)
    return kernel


def _way(facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> Way:
    """By which of the machine's multiply-adds a product is computed in blocks, and how its operands are split for them."""
    name = facts.element.name
    if name == "float32" and (facts.prepacked or _in_parts(host, name, m, n, k)):
        make = parts_way if form_of(host, k) is PARTS else halves_way
    elif name in host.matrix_dtypes:
        make = tile_way
    else:
        make = dots_way if name in host.dots else packed_way
    return make(facts, m, n, k, batches, host)


def _vector_kernel(kind: str, product: Product, facts: Facts, host: Target, described: Callable[..., Kernel], has_epilogue: bool) -> Kernel:
    """A kernel of matrix_vector.py or matrix_rows.py, whose unit is some columns."""
    element, dot = facts.element, instruction_of(facts.element.name, host, product.n, product.k)
    if kind == "dot":
        shape = dot_shape(product.m, product.n, dot is not None)
        kind = f"dot:{'instruction:' * bool(dot)}{'x'.join(map(str, shape))}"
        write, columns = partial(dot_body, facts, has_epilogue, shape, dot), shape[1]
        scratch = dot_scratch(shape, dot, product.m, product.k, element.itemsize)
    elif kind == "rows":
        assert dot is not None
        height = rows_height(product.m)
        kind = f"rows:{height}"
        write, columns, scratch = partial(rows_body, facts, has_epilogue, height, dot), COLUMNS, scratch_bytes(height)
    else:
        write, columns, scratch = partial(sweep_body, facts, has_epilogue), UNIT_VECTORS * facts.tile.width, 2 * LINE * element.compute_bytes
    units = ceil_div(product.n, columns)
    words = _common_words(product, facts) | {"scratch": Scratch(scratch), "units_per_batch": units, "scratch_bytes": scratch}
    # Bound by reading b: a thread is worth its start from about 256 KiB on.
    min_units = maximum(1, (256 << 10) // maximum(1, columns * product.k * element.itemsize))
    return described(f"matmul:{kind}:{facts.key()}", write, facts, words, units=units * product.batches, min_units=min_units)


def _small_kernel(product: Product, facts: Facts, kind: dtype, host: Target, node_index: int) -> Kernel:
    """The kernel of many small products (matmul_small.py)."""
    lanes = facts.tile.width
    vectors = ceil_div(product.n, lanes)
    height = height_of(roughly(product.m), vectors, host.registers)
    while product.m < height:  # the last rows start earlier, but not before the first one
        height -= 1
    # As of the blocked product: a thread is worth its start from a million operations on.
    min_units = maximum(1, 1_000_000 // (2 * product.m * product.n * product.k + ITEM_OPERATIONS))
    a, b, c = product.a, product.b, product.c
    words: Words = {"a": a.word, "b": b.word, "c": c.word, "m": product.m, "n": product.n, "k": product.k, "a_row": a.row, "a_column": a.column,
                    "b_row": b.row, "c_row": c.row, "batch": tuple(product.batch) or ((1, 0, 0, 0),)}  # fmt: skip
    return describe_tiled(
        f"matmul_{facts.element.name}", "products.small", words, dict.fromkeys("abc", kind), {"HEIGHT": height, "VECTORS": vectors, "LANES": lanes},
        host.vector_bits, units=product.batches, min_units_per_thread=min_units, **_work(product, facts.element, node_index),
    )  # fmt: skip


def _work(product: Product, element: Element, node_index: int) -> dict[str, Any]:
    """What a kernel reads, writes and does."""
    operations = 2 * product.m * product.n * product.k * product.batches * (4 if element.parts == 2 else 1)
    nbytes = (product.m * product.k + product.k * product.n) * element.itemsize + product.m * product.n * element.result.itemsize
    reads = tuple(dict.fromkeys((product.a.root, product.b.root)))
    return {"reads": reads, "writes": (product.c.root,), "bytes": nbytes * product.batches, "operations": operations, "nodes": (node_index,)}


def _common_words(product: Product, facts: Facts) -> dict[str, Word]:
    a, b, c = product.a, product.b, product.c
    words: dict[str, Word] = {
        "a": a.word, "b": b.word, "c": c.word, "m": product.m, "n": product.n, "k": product.k,
        "a_row": a.row, "a_column": a.column, "b_row": b.row, "b_column": b.column, "c_row": c.row,
        "c_column": c.column, "rows_per_batch": product.rows_per_batch,
        "splits": product.splits, "k_total": product.k if product.k_total < 0 else product.k_total,
    }  # fmt: skip
    batch = [(1, 0, 0, 0)] * (facts.batch_dims - len(product.batch)) + product.batch
    for d, (size, sa, sb, sc) in enumerate(batch):
        words |= {f"size{d}": size, f"a_batch{d}": sa, f"b_batch{d}": sb, f"c_batch{d}": sc}
    return words


def _kernel(
    key: str, write: Body, facts: Facts, words: dict[str, Word], *, product: Product, node_index: int, epilogue: Epilogue | None, units: int,
    min_units: int, grain: int = 1, helpers: Sequence[Writer] = (), constants: Sequence[str] = (),
    late: Mapping[str, Callable[[Layout], Function]] | None = None,
) -> Kernel:  # fmt: skip
    element = facts.element
    for name, function in (late or {}).items():
        add_reader(words, name, function)
    return describe(
        f"matmul_{element.name}", f"{key}:{facts.vector_bits}", write, words, helpers=helpers, constants=constants, epilogue=epilogue,
        units=units, min_units_per_thread=min_units, grain=grain, **_work(product, element, node_index),
    )  # fmt: skip
