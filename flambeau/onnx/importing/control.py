"""If, Loop, Scan, and a body for each element of a sequence: their graphs see the values around them."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.graph import Graph
from flambeau.onnx.importing.registry import Call, operator


def _inputs(n: Call, xs: tuple[Any, ...], graph: Graph) -> tuple[list[Any], list[Any]]:
    """(the node's inputs, the values around it that a graph uses)."""
    given = n.kept["inputs"]
    around = dict(zip(n.kept["captured"], xs[given:], strict=True))
    return list(xs[:given]), [around[name] for name in graph.outer]


def _true(x: Any) -> bool:
    return bool(values.number(x))


@operator("If", raw=True)
def if_(n: Call, *xs: Any) -> Any:
    """One of two graphs, by a condition that is observed."""
    graph = n.get("then_branch" if _true(xs[0]) else "else_branch")
    return tuple(graph.run([], _inputs(n, xs, graph)[1]))


@operator("Loop", raw=True)
def loop(n: Call, *xs: Any) -> Any:
    """A graph again and again, as often as a count and a condition say; what it gives beside its state is stacked."""
    graph = n.get("body")
    given, around = _inputs(n, xs, graph)
    most, going = given[0], True if given[1] is None else _true(given[1])
    limit = None if most is None else int(values.number(most))
    state, scans = given[2:], [[] for _ in range(len(graph.outputs) - 1 - len(given[2:]))]  # type: list[Any], list[list[Any]]
    i = 0
    while going and (limit is None or i < limit):
        made = graph.run([np.array(i, np.int64), np.array(True), *state], around)
        going = _true(made[0])
        state = made[1 : 1 + len(state)]
        for collected, value in zip(scans, made[1 + len(state) :], strict=True):
            collected.append(value)
        i += 1
    return (*state, *[_stacked(n, c) for c in scans])


def _stacked(n: Call, parts: list[Any], axis: int = 0) -> Any:
    if not parts:
        return flambeau.zeros(0)
    if any(isinstance(p, list) for p in parts):
        raise n.refuse("sequences cannot be stacked")
    return flambeau.stack([values.tensor(p) for p in parts], axis)


@operator("Scan", raw=True)
def scan(n: Call, *xs: Any) -> Any:
    """A graph for each slice of inputs, with a state."""
    graph = n.get("body")
    given, around = _inputs(n, xs, graph)
    if n.version < 9:  # opset 8: lengths first, and a batch
        return _scan_of_batches(n, graph, given[1:], around)
    count = n.get("num_scan_inputs")
    held = len(given) - count
    return tuple(_scanned(n, graph, given[:held], [values.tensor(x) for x in given[held:]], around))


def _scan_of_batches(n: Call, graph: Graph, given: list[Any], around: list[Any]) -> Any:
    count = n.get("num_scan_inputs")
    held = len(given) - count
    batches = [values.tensor(x) for x in given]
    rows = [_scanned(n, graph, [x[b] for x in batches[:held]], [x[b] for x in batches[held:]], around) for b in range(batches[0].shape[0])]
    return tuple([flambeau.stack([values.tensor(v) for v in column]) for column in zip(*rows, strict=True)])


def _scanned(n: Call, graph: Graph, state: list[Any], over: list[Any], around: list[Any]) -> list[Any]:
    axes = n.get("scan_input_axes", [0] * len(over))
    backwards = n.get("scan_input_directions", n.get("directions", [0] * len(over)))
    outs = len(graph.outputs) - len(state)
    out_axes, out_back = n.get("scan_output_axes", [0] * outs), n.get("scan_output_directions", [0] * outs)
    steps = over[0].shape[axes[0]]
    scans: list[list[Any]] = [[] for _ in range(outs)]
    for t in range(steps):
        slices = [x.select(a, steps - 1 - t if back else t) for x, a, back in zip(over, axes, backwards, strict=True)]
        made = graph.run([*state, *slices], around)
        state = made[: len(state)]
        for collected, value in zip(scans, made[len(state) :], strict=True):
            collected.append(value)
    return [*state, *[_stacked(n, c[::-1] if back else c, a) for c, a, back in zip(scans, out_axes, out_back, strict=True)]]


@operator("SequenceMap", raw=True)
def sequence_map(n: Call, *xs: Any) -> Any:
    """A graph for each element of sequences; tensors beside them are the same each time."""
    graph = n.get("body")
    given, around = _inputs(n, xs, graph)
    rows = [graph.run([x[i] if isinstance(x, list) else x for x in given], around) for i in range(len(given[0]))]
    return tuple([list(column) for column in zip(*rows, strict=True)]) if rows else tuple([[] for _ in graph.outputs])
