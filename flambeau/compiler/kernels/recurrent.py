"""Recurrent layers: all steps of one direction in one kernel, forward and backward.

Sequences do not depend on each other, so units are sequences: a thread takes some rows of the batch through all steps, and no thread waits for
another one. The number of steps and of rows are words: a kernel serves all lengths, padded and packed.

A step is a product of the states with the weights, and what the gates do with it. The weights are copied once, to panels of columns that the product
reads in order (the packing of Goto and van de Geijn 2008); it multiplies ROWS states at a time, and adds each sum in the order of the states, however many
rows and threads there are.
"""

from __future__ import annotations

from functools import partial

from flambeau.compiler.graph import GATES, Graph, recurrent_operands
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.description import describe_code
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.move_layout import address, reads
from flambeau.compiler.kernels.recurrent_product import ROWS, Facts, copy_to_panels
from flambeau.compiler.kernels.recurrent_steps import backward, forward
from flambeau.symbols import maximum

THREAD_OPERATIONS = 1 << 20  # that a further thread should have: some 10 microseconds


def make_recurrent(graph: Graph, node_index: int) -> list[Kernel]:
    """Kernels of a `recurrent` or `recurrent_gradient` node: one that copies the weights, one that takes all steps."""
    node = graph.nodes[node_index]
    host = graph.target
    gradient = node.op == "recurrent_gradient"
    mode = node.attr("mode")
    h = graph.values[node.inputs[1]]
    facts = Facts(
        mode, h.dtype.itemsize == 8, bool(node.attr("reverse")), bool(node.attr("packed")), not gradient and bool(node.attr("keep")), host.vector_bits,
        4 if host.registers == 32 else 2,
    )  # fmt: skip
    (batch, hidden), rows = h.shape, graph.values[node.outputs[0]].shape[0]
    inputs, results = recurrent_operands(node.op, dict(node.attrs), rows, batch, hidden)
    operands = dict(zip((*inputs, *["sizes"] * facts.packed, *results), (*node.inputs, *node.outputs), strict=True))
    width = GATES[mode] * hidden
    columns, depth = (hidden, width) if gradient else (width, hidden)
    pitch = round_up(columns, facts.panel)
    copied, panels = copy_to_panels(graph, node_index, operands["w"], facts, columns, depth, not gradient)
    scratch = Scratch(round_up(ROWS * pitch * facts.itemsize, 64))
    steps = graph.values[operands["sizes"]].shape[0] if facts.packed else rows // batch
    words: dict[str, Word] = {name: address(graph, v) for name, v in operands.items() if name != "w"}
    words |= {
        "panels": address(graph, panels), "scratch": scratch, "area": scratch.per_worker, "rows": rows, "batch": batch, "steps": steps, "hidden": hidden,
        "width": width, "pitch": pitch,
    }  # fmt: skip
    key = f"{node.op}:{facts.key}"
    operations = 2 * rows * width * hidden
    touched = [v for name, v in operands.items() if name != "w" and v not in node.outputs]
    traffic = sum([graph.values[v].numel for v in (*touched, *node.outputs)]) * facts.itemsize
    taking = describe_code(
        node.op, key, partial(backward if gradient else forward, facts, tuple(words)), words, reads=(*reads(graph, *touched), panels), writes=node.outputs,
        units=batch, bytes=traffic, operations=operations,
        nodes=(node_index,), grain=ROWS, min_units_per_thread=maximum(1, THREAD_OPERATIONS * batch // maximum(operations, 1)),
    )  # fmt: skip
    return [copied, taking]
