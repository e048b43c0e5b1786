"""Attention and its gradient: the operands' layout, block sizes, the words of the kernels.

`attention` is one kernel. `attention_gradient` is one too, or two where there are so few heads that their keys are cut into
parts: the parts' shares of q's gradient are then added in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from flambeau import dtypes
from flambeau.compiler.emit.code import Code
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word, float_word
from flambeau.compiler.kernels.attention_backward import OPERANDS as BACKWARD_OPERANDS
from flambeau.compiler.kernels.attention_backward import SUM_ELEMENTS, Backward, sum_parts
from flambeau.compiler.kernels.attention_body import PANELS
from flambeau.compiler.kernels.attention_forward import OPERANDS as FORWARD_OPERANDS
from flambeau.compiler.kernels.attention_forward import Forward
from flambeau.compiler.kernels.attention_tiles import Facts, block_vectors, tile_rows
from flambeau.compiler.kernels.attention_unit import BLOCK, GROUP
from flambeau.compiler.kernels.attention_unit import KEYS as UNIT_KEYS
from flambeau.compiler.kernels.attention_unit_backward import UnitBackward
from flambeau.compiler.kernels.attention_unit_forward import UnitForward
from flambeau.compiler.kernels.bfloat_parts import PARTS
from flambeau.compiler.kernels.convolution_problem import Operand, operand
from flambeau.compiler.kernels.convolution_tile_pack import parts_of
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.compiler.kernels.matmul_pack import SLACK_VECTORS
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES, SLOT
from flambeau.compiler.kernels.matrix_unit import blocks_function
from flambeau.symbols import maximum, minimum

# Keys of a block: scores, keys and values of a block must share the first- and second-level cache.
# Measured (head size 64, float32, AVX-512, causal, length 512): 72 to 144 alike; 48 and 192 up to 15 % slower.
KEYS = 96
RESIDENT_BYTES = 1 << 20  # keys and values of a head that are copied at once: half of a second-level cache
# The matrix unit pays from so many queries and keys on, for heads of so many numbers. Measured, forward and backward, causal:
# bfloat16 1.5 and 1.9 times as fast for 32 queries, 2.5 and 3.2 for 512; float32, which must be split, 0.96 and 1.2 for 128
# queries of 64 numbers, 1.35 and 1.3 for 256 and 512, and 0.7 for 100 of 24.
LEAST_OF_UNIT = {"bfloat16": (16, 16), "float32": (128, 48)}
LEAST_HEADS = 8  # fewer heads than this are cut into parts for the backward pass
LEAST_OPERATIONS = 2_000_000  # of a thread: some 20 microseconds


class _Problem:
    """A node's operands, its batch dims merged as far as the strides allow, and the words that both kernels share."""

    def __init__(self, graph: Graph, node: Node, operands: dict[str, int], name: str, packed: Sequence[str]) -> None:
        self.graph, self.node = graph, node
        self.values = {key: operand(graph, value) for key, value in operands.items()}
        q, v = self.values["q"], self.values["v"]
        self.length, self.head = q.shape[-2:]
        self.source, self.value = v.shape[-2:]
        self.batch = self._merge(q.shape[:-2])
        self.heads = prod(q.shape[:-2])
        host = graph.target
        dtype = graph.values[node.inputs[0]].dtype
        element = element_of(dtype)
        mask = self.values.get("mask")
        mask_kind = "none" if mask is None else "bool" if graph.values[operands["mask"]].dtype is dtypes.bool_ else "add"
        width = host.vector_bits // (8 * element.compute_bytes)
        parts = self._parts(element)
        self.facts = Facts(
            element, width, host.vector_bits, tile_rows(host.registers), BLOCK // width if parts else block_vectors(self.length, width),
            bool(node.attr("causal")), mask_kind, "none" if mask is None else _unit(mask), node.attr("dropout") > 0.0,
            _unit(self.values["kept"]) if "kept" in self.values else "none", tuple(_unit(self.values[key]) for key in packed), max(2, len(self.batch)), name,
            parts,
        )  # fmt: skip
        self.blocks = ceil_div(self.length, self.facts.lanes)
        wide = BLOCK if parts else max(self.facts.width, self.facts.rows)
        self.head_pitch, self.value_pitch = round_up(self.head, wide), round_up(self.value, wide)

    def _parts(self, element: Element) -> int:
        """Parts of a number where the matrix unit multiplies; 0 where it does not."""
        least = LEAST_OF_UNIT.get(element.name)
        if least is None or min(self.length, self.source) < least[0] or min(self.head, self.value) < least[1]:
            return 0
        return parts_of(element) if "bfloat16" in self.graph.target.matrix_dtypes else 0

    def _merge(self, sizes: Sequence[int]) -> list[tuple[int, dict[str, int]]]:
        merged: list[tuple[int, dict[str, int]]] = []
        for d, size in enumerate(sizes):
            if size == 1:
                continue
            strides = {key: o.strides[d] for key, o in self.values.items()}
            if merged and all(merged[-1][1][key] == strides[key] * size for key in strides):
                merged[-1] = (merged[-1][0] * size, strides)
            else:
                merged.append((size, strides))
        return merged

    def areas(self, sizes: dict[str, int]) -> tuple[dict[str, Word], int]:
        """Offsets of the parts of a worker's scratch, given in elements of the compute type, and their sum in bytes."""
        words: dict[str, Word] = {}
        at = 0
        for name, elements in sizes.items():
            words[name] = at
            at += round_up((elements + SLACK_VECTORS * self.facts.width) * self.facts.element.compute_bytes, 64)
        return words, at

    def plain_areas(self, sizes: dict[str, int]) -> dict[str, int]:
        """Areas of the steps that multiply-adds do: none where extents decide nothing."""
        return sizes if self.facts.parts in (0, PARTS) else dict.fromkeys(sizes, 0)

    def words(self, operands: Sequence[str], given: dict[str, Word], key_block: int) -> dict[str, Word]:
        """The kernel's words."""
        p = float(self.node.attr("dropout"))
        words: dict[str, Word] = {
            "length": self.length, "source": self.source, "head": self.head, "value": self.value,
            "heads": self.heads, "blocks": self.blocks, "key_block": key_block, "scale": float_word(self.node.attr("scale")),
            "keep_scale": float_word(1.0 / (1.0 - p) if p < 1.0 else 0.0),
        }  # fmt: skip
        for name in operands:
            o = self.values.get(name)
            words[name] = 0 if o is None else o.word
            is_matrix = name not in ("lse", "delta")
            words[f"{name}_row"], words[f"{name}_column"] = o.strides[-2:] if o is not None and is_matrix else (0, 0)
        batch = [(1, dict.fromkeys(self.values, 0))] * (self.facts.batch_dims - len(self.batch)) + self.batch
        for d, (size, strides) in enumerate(batch):
            words[f"size{d}"] = size
            words |= {f"{name}_batch{d}": strides.get(name, 0) for name in operands}
        return words | given

    def reads(self) -> tuple[int, ...]:
        roots = [self.graph.root(i) for i in self.node.inputs]
        return tuple(dict.fromkeys(roots))

    def bytes(self) -> int:
        values = [self.graph.values[i] for i in (*self.node.inputs, *self.node.outputs)]
        return sum(v.numel * v.dtype.itemsize for v in values)

    def operations(self, products: int) -> int:
        """Of products with the head's and the value's size, half of them each; half of all where half is masked."""
        pairs = self.length * self.source
        if self.facts.causal:
            short = min(self.length, self.source)
            pairs -= short * (short - 1) // 2 + max(0, self.source - self.length) * self.length
        return self.heads * pairs * products * (self.head + self.value)


def _unit(o: Operand) -> str:
    """Which stride of a matrix (lanes, k) is 1."""
    if o.strides[-1] == 1 or o.shape[-1] == 1:
        return "k"
    return "lane" if o.strides[-2] == 1 else "none"


def make_attention(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of an `attention` or `attention_gradient` node; none if there is nothing to compute."""
    node = graph.nodes[node_index]
    if node.op == "attention":
        return _forward(graph, node, node_index)
    return _backward(graph, node, node_index)


def _write(kind: type[Forward] | type[Backward], facts: Facts, c: Code) -> None:
    kind(facts, c).write()


def _optional(node: Node, at: int) -> dict[str, int]:
    """The values with a number for each weight that the node has."""
    names = [name for name, there in (("mask", node.attr("masked")), ("kept", node.attr("dropout") > 0.0)) if there]
    return dict(zip(names, node.inputs[at:], strict=True))


def _panels(facts: Facts, key_block: int) -> dict[str, int]:
    """Areas of the panels of what there is for each weight."""
    return {area: key_block * facts.lanes if facts.weight_element(name) is not None else 0 for name, area in PANELS.items()}


def _forward(graph: Graph, node: Node, node_index: int) -> list[Kernel]:
    ids = dict(zip(("q", "k", "v"), node.inputs, strict=False)) | _optional(node, 3)
    ids |= dict(zip(("out", "lse"), node.outputs, strict=True))
    problem = _Problem(graph, node, ids, "attention", ("q", "k", "v"))
    if graph.values[ids["lse"]].numel == 0:
        return []
    facts, lanes = problem.facts, problem.facts.lanes
    if facts.parts:
        return [_unit_forward(problem, node, node_index)]
    key_block = minimum(KEYS, round_up(problem.source, facts.rows))
    both = problem.head_pitch + problem.value_pitch
    resident = problem.source * both * facts.element.compute_bytes <= RESIDENT_BYTES
    rows = round_up(problem.source if resident else key_block, facts.rows)
    areas, scratch = problem.areas({
        "keys": rows * problem.head_pitch, "values": rows * problem.value_pitch, "queries": problem.head_pitch * lanes,
        "scores": key_block * lanes, "result": problem.value_pitch * lanes, "statistics": 3 * lanes,
        **_panels(facts, key_block),
    })  # fmt: skip
    given = areas | {
        "scratch": Scratch(scratch), "scratch_bytes": scratch, "resident": int(resident),
        "head_pitch": problem.head_pitch, "value_pitch": problem.value_pitch,
    }  # fmt: skip
    operations = problem.operations(2)
    units = problem.heads * problem.blocks
    return [describe_code(
        f"attention_{facts.element.name}", facts.key(), partial(_write, Forward, facts), problem.words(FORWARD_OPERANDS, given, key_block),
        reads=problem.reads(),
        writes=node.outputs, units=units, bytes=problem.bytes(), operations=operations, nodes=(node_index,),
        grain=problem.blocks if problem.heads >= LEAST_HEADS else 1,
        min_units_per_thread=maximum(1, LEAST_OPERATIONS * units // maximum(1, operations)),
    )]  # fmt: skip


def _unit_forward(problem: _Problem, node: Node, node_index: int) -> Kernel:
    facts, lanes = problem.facts, problem.facts.lanes
    key_block = minimum(UNIT_KEYS, round_up(problem.source, BLOCK))
    both, block_bytes = problem.head_pitch + problem.value_pitch, facts.parts * PART_BYTES
    # Blocks of keys that are held at once, and blocks of queries in a unit
    held = ceil_div(problem.source, key_block)
    if held * key_block * both * facts.parts * 2 > RESIDENT_BYTES:
        held = 1
    group = minimum(GROUP, problem.blocks, maximum(1, problem.heads * problem.blocks // LEAST_HEADS))
    tiles = {
        "key_panels": held * key_block // BLOCK * (problem.head_pitch // BLOCK) * block_bytes,
        "value_panels": held * key_block // BLOCK * (problem.value_pitch // BLOCK) * block_bytes,
        "query_panels": group * (problem.head_pitch // BLOCK) * block_bytes,
        "weight_panel": key_block // BLOCK * block_bytes, "extents": (group + 2 * held) * SLOT,
    }  # fmt: skip
    areas, scratch = problem.areas({
        "scores": key_block * lanes, "result": group * problem.value_pitch * lanes, "statistics": group * 3 * lanes,
        **_panels(facts, key_block), "block_sums": BLOCK * lanes,
        "staging": BLOCK * max(problem.head_pitch, problem.value_pitch), **{name: nbytes // 4 for name, nbytes in tiles.items()},
        **problem.plain_areas({"keys": key_block * problem.head_pitch, "values": key_block * problem.value_pitch,
                               "queries": problem.head_pitch * lanes}),
    })  # fmt: skip
    blocks = ceil_div(problem.blocks, group)
    given = areas | {
        "scratch": Scratch(scratch), "scratch_bytes": scratch, "resident": int(held > 1 or problem.source <= key_block),
        "head_pitch": problem.head_pitch, "value_pitch": problem.value_pitch, "tiles": blocks_function(facts.parts, facts.vector_bits),
        "group": group, "blocks": blocks,
    }  # fmt: skip
    operations, units = problem.operations(2), problem.heads * blocks
    return describe_code(
        f"attention_{facts.element.name}", facts.key(), partial(_write, UnitForward, facts), problem.words(FORWARD_OPERANDS, given, key_block),
        reads=problem.reads(),
        writes=node.outputs, units=units, bytes=problem.bytes(), operations=operations, nodes=(node_index,),
        grain=blocks if problem.heads >= LEAST_HEADS else 1,
        min_units_per_thread=maximum(1, LEAST_OPERATIONS * units // maximum(1, operations)),
    )  # fmt: skip


def _backward(graph: Graph, node: Node, node_index: int) -> list[Kernel]:
    ids = dict(zip(("g", "q", "k", "v", "lse", "delta"), node.inputs, strict=False)) | _optional(node, 6)
    ids |= dict(zip(("dq", "dk", "dv"), node.outputs, strict=True))
    problem = _Problem(graph, node, ids, "attention_gradient", ("q", "k", "v", "g"))
    facts, lanes = problem.facts, problem.facts.lanes
    tall = BLOCK if facts.parts else facts.rows
    key_block = minimum(UNIT_KEYS if facts.parts else KEYS, round_up(problem.source, tall))
    parts = 1
    if problem.heads < LEAST_HEADS:
        parts = minimum(ceil_div(LEAST_HEADS, problem.heads), ceil_div(problem.source, 2 * key_block))
    part_keys = round_up(ceil_div(problem.source, parts), key_block)
    parts = ceil_div(problem.source, part_keys)
    rows = minimum(part_keys, round_up(problem.source, tall))
    group = minimum(GROUP, problem.blocks) if facts.parts else 1
    held = key_block if facts.parts else rows  # keys that are in scratch for multiply-adds
    queries = round_up(minimum(lanes, problem.length), facts.rows)
    areas, scratch = problem.areas({
        "key_sums": rows * problem.head_pitch, "value_sums": rows * problem.value_pitch,
        "weights": key_block * lanes, "slopes": key_block * lanes, "query_sums": group * problem.head_pitch * lanes,
        **_panels(facts, key_block),
        **problem.plain_areas({
            "keys": held * problem.head_pitch, "values": held * problem.value_pitch,
            "queries": problem.head_pitch * lanes, "query_rows": queries * problem.head_pitch,
            "gradients": problem.value_pitch * lanes, "gradient_rows": queries * problem.value_pitch,
        }),
        **(_unit_backward_areas(problem, round_up(rows, key_block), key_block, group) if facts.parts else {}),
    })  # fmt: skip
    given = areas | {
        "scratch": Scratch(scratch), "scratch_bytes": scratch, "head_pitch": problem.head_pitch,
        "value_pitch": problem.value_pitch, "parts": parts, "part_keys": part_keys, "dq_part": 0,
    }  # fmt: skip
    if facts.parts:
        given |= {"tiles": blocks_function(facts.parts, facts.vector_bits), "group": group}
    write = partial(_write, UnitBackward if facts.parts else Backward, facts)
    operations = problem.operations(5)
    units = problem.heads * parts
    writes = tuple(dict.fromkeys(graph.root(o) for o in node.outputs))  # gradients may be pieces of a concatenation
    q_gradient = graph.values[node.outputs[0]]
    temporary = -1
    if parts > 1:  # only these two kernels know it
        temporary = graph.add_value(Value((parts * q_gradient.numel,), q_gradient.dtype, (1,)))
        given |= {"dq": Address(temporary), "dq_part": q_gradient.numel}
        writes = (temporary, *writes[1:])
    kernels = [describe_code(
        f"attention_gradient_{facts.element.name}", facts.key(), write, problem.words(BACKWARD_OPERANDS, given, key_block), reads=problem.reads(),
        writes=writes,
        units=units, bytes=problem.bytes(), operations=operations, nodes=(node_index,),
        min_units_per_thread=maximum(1, LEAST_OPERATIONS * units // maximum(1, operations)),
    )]  # fmt: skip
    return kernels if parts == 1 else [*kernels, _sum_of_parts(graph, node, node_index, temporary, parts, facts)]


def _unit_backward_areas(problem: _Problem, keys: int, key_block: int, group: int) -> dict[str, int]:
    """Areas that only the matrix unit's kernel has, in float32; `keys` of a part."""
    head, value, panels = problem.head_pitch // BLOCK, problem.value_pitch // BLOCK, keys // BLOCK
    steps = {
        "key_panels": panels * head, "key_turned": panels * head, "value_panels": panels * value,
        "query_panels": group * head, "query_steps": group * head, "gradient_panels": group * value,
        "gradient_steps": group * value, "weight_steps": key_block // BLOCK * group, "slope_steps": key_block // BLOCK * group,
        "slope_panel": key_block // BLOCK,
    }  # fmt: skip
    areas = {name: count * problem.facts.parts * PART_BYTES // 4 for name, count in steps.items()}
    extents = 2 * (group + keys // key_block) * SLOT // 4
    return areas | {
        "extents": extents, "block_sums": BLOCK * BLOCK, "staging": BLOCK * max(problem.head_pitch, problem.value_pitch)
    }  # fmt: skip


def _sum_of_parts(graph: Graph, node: Node, node_index: int, temporary: int, parts: int, facts: Facts) -> Kernel:
    """q's gradient from the parts' shares, which all have its layout."""
    value = graph.values[node.outputs[0]]
    key = f"attention_sum:{facts.element.name}:{facts.width}:{facts.vector_bits}"
    words: dict[str, Word] = {"source": Address(temporary), "target": Address(node.outputs[0]), "parts": parts, "count": value.numel}
    return describe_code(
        f"attention_sum_{facts.element.name}", key, partial(sum_parts, facts), words, reads=(temporary,), writes=(node.outputs[0],),
        units=ceil_div(value.numel, SUM_ELEMENTS),
        bytes=(parts + 1) * value.numel * value.dtype.itemsize, operations=(parts - 1) * value.numel, nodes=(node_index,),
        min_units_per_thread=64,
    )  # fmt: skip
