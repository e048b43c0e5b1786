"""Plans on disk, beside the compiled code: a large graph that was compiled by an earlier process is not fused and lowered again.

An entry is named by what a plan depends on: the graph (values by shape, dtype and layout; nodes with their attributes), the
target (threads, caches, the units that may be used, costs); its folder is that of the processor and of the generators' version
(runtime/object_cache.py). It holds the schedule, the memory's places and the kernels as JSON: numbers, strings and lists, so that
reading one runs nothing. Emitters are not in it: code that is missing is made by lowering the graph again (`Lowered`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, ErrorRecord, Function, Kernel, Scratch, Table, Word
from flambeau.compiler.place import Placement
from flambeau.compiler.plan import Plan
from flambeau.compiler.schedule import Schedule, Step
from flambeau.dtypes import dtype
from flambeau.exact import exact
from flambeau.runtime import object_cache
from flambeau.runtime.target import Target
from flambeau.statistics import counters

# Fewer nodes are planned in little more than the time that it takes to find and read an entry (measured: 0.06 to 0.07 ms a
# node to plan, 0.01 to 0.02 ms a node to read).
FEWEST_NODES: Final = 64
_SUFFIX: Final = ".plan"
_LEVEL: Final = 1  # of zlib: JSON of kernels shrinks to a tenth
PLAIN: Final[frozenset[type]] = frozenset((int, float, complex, bool, str, type(None), dtype))

Front = Callable[[], tuple[Graph, list[list[Step]]]]


class Lowered:
    """The first half of the pipeline, run when somebody asks for the graph after all passes, or for missing code."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._made: tuple[Graph, dict[str, Callable[[Target], str]]] | None = None

    def _get(self) -> tuple[Graph, dict[str, Callable[[Target], str]]]:
        if self._made is None:
            graph, steps = self._front()
            kernels = [step for group in steps for step in group if isinstance(step, Kernel)]
            used: list[Kernel | Function] = [*kernels, *[word for kernel in kernels for word in kernel.words if isinstance(word, Function)]]
            self._made = graph, {x.key: x.emit for x in used}
        return self._made

    def graph(self) -> Graph:
        """The graph after all passes."""
        return self._get()[0]

    def emit(self, key: str, target: Target) -> str:
        """The IR text of a kernel or a shared function."""
        return self._get()[1][key](target)


def key_of(graph: Graph) -> str | None:
    """The name of the graph's plan; None if it is too small, or has attributes that are no plain numbers and names."""
    return name_of("plan", graph, FEWEST_NODES, PLAIN, lambda x: x)


def name_of(kind: str, graph: Graph, fewest: int, kinds: frozenset[type], plain: Callable[[Any], Any]) -> str | None:
    """The name of a plan of at least so many nodes, whose attributes are of these types. `plain`: what stands for a number, or a tuple of some, in it."""
    if len(graph.nodes) < fewest or not all(_is_plain(node.attrs, kinds) for node in graph.nodes if node.attrs):
        return None
    facts = (
        graph.target.key(),
        graph.inputs, graph.parameters, graph.outputs, graph.updates,
        [(plain(tuple(v.shape)), v.dtype.name, plain(v.strides), plain(v.offset), v.base, plain(v.dynamic)) for v in graph.values],
        [(node.op, node.inputs, node.outputs, exact(plain(node.attrs))) for node in graph.nodes],
    )  # fmt: skip
    return f"{kind}:{hashlib.sha256(repr(facts).encode()).hexdigest()}"


def _is_plain(x: Any, kinds: frozenset[type]) -> bool:
    return type(x) in kinds or (type(x) is tuple and all(_is_plain(y, kinds) for y in x))


def load(key: str, graph: Graph, lowered: Lowered) -> Plan | None:
    """The plan of an entry, for `graph`; None if there is none that can be read."""
    content = object_cache.load(key, _SUFFIX)
    if content is None:
        return None
    try:
        order, placement = decoded(json.loads(zlib.decompress(content)), lowered)
    except (ValueError, TypeError, KeyError, IndexError, zlib.error):
        return None
    counters.plans_from_disk += 1
    return Plan(graph, order, placement, lowered.graph)


def store(key: str, graph: Graph, plan: Plan) -> None:
    """Keep a plan of `graph`, if all that it does is native and the passes left the graph's inputs and results as they are."""
    steps = plan.schedule.steps
    if all(isinstance(step, Kernel) for step in steps) and _interface(graph) == _interface(plan.graph):
        text = json.dumps(encoded(plan.schedule, plan.placement), separators=(",", ":"))
        object_cache.store(key, zlib.compress(text.encode(), _LEVEL), _SUFFIX)


def _interface(graph: Graph) -> Any:
    """What a plan needs of a graph to run."""
    values = [(graph.values[i].numel, graph.values[i].dtype) for i in (*graph.inputs, *graph.parameters, *graph.outputs)]
    return graph.inputs, graph.parameters, graph.outputs, values


# -- As JSON ----------------------------------------------------------------------------------------------------------
# Long strings (keys, names) stand once, in a table. A word is a number, or a list: [address: value, offset, dynamic],
# [scratch: per worker, shared], [function: key's index], [table: name's index, arguments, 0, 0], [] for the error record.


def encoded(order: Schedule, placement: Placement) -> Any:
    """A plan's schedule and places as nested lists."""
    texts: dict[str | None, int] = {}

    def text(x: str | None) -> int:
        return texts.setdefault(x, len(texts))

    def word(w: Word) -> Any:
        match w:
            case Address(value, offset, dynamic):
                return [value, offset, dynamic]
            case Scratch(per_worker, shared):
                return [per_worker, shared]
            case Function(key):
                return [text(key)]
            case Table(name, arguments):
                return [text(name), arguments, 0, 0]
            case ErrorRecord():
                return []
            case _:
                return w

    steps = [
        [
            text(k.name), text(k.key), [word(w) for w in k.words], k.reads, k.writes, k.units, k.bytes, k.operations, k.nodes,
            k.in_place, text(k.fails), k.grain, k.min_units_per_thread, k.zero_first, k.starts_as, [text(n) for n in k.notes],
        ]
        for k in order.steps if isinstance(k, Kernel)
    ]  # fmt: skip
    schedule = [order.phases, _pairs(order.homes), _pairs(order.shares), _pairs(order.returned), _pairs(order.inside)]
    places = [_pairs(placement.places), _pairs(placement.scratch), placement.arena_bytes, placement.unshared_bytes, placement.workers, placement.lives]
    return [list(texts), steps, schedule, places]


def _pairs(table: dict[Any, Any]) -> list[Any]:
    return list(table.items())


def decoded(content: Any, lowered: Lowered) -> tuple[Schedule, Placement]:
    """What `encoded` has made lists of; `lowered` gives code that is missing."""
    texts, rows, (phases, homes, shares, returned, inside), (places, scratch, arena_bytes, unshared_bytes, workers, lives) = content
    emitters = [partial(lowered.emit, x) for x in texts]

    def word(w: Any) -> Word:
        match w:
            case int():
                return w
            case [value, offset, dynamic]:
                return Address(value, offset, _tuples(dynamic))
            case [per_worker, shared]:
                return Scratch(per_worker, shared)
            case [key]:
                return Function(texts[key], emitters[key])
            case [name, arguments, _, _]:
                return Table(texts[name], tuple(arguments))
            case []:
                return ErrorRecord()
        raise ValueError(f"no word {w}")

    steps: list[Step] = []
    for name, key, words, reads, writes, units, traffic, operations, nodes, in_place, fails, grain, least, zero, starts, notes in rows:
        steps.append(
            Kernel(
                texts[name], texts[key], emitters[key], [w if type(w) is int else word(w) for w in words], tuple(reads), tuple(writes),
                units, traffic, operations, tuple(nodes), _tuples(in_place), texts[fails], grain, least, tuple(zero), _tuples(starts),
                [texts[n] for n in notes],
            )
        )  # fmt: skip
    order = Schedule(steps, phases, {root: tuple(home) for root, home in homes}, dict(shares), dict(returned), dict(inside))
    at_words = {tuple(at): offset for at, offset in scratch}
    placement = Placement({root: tuple(home) for root, home in places}, at_words, arena_bytes, unshared_bytes, workers, _tuples(lives))
    return order, placement


def _tuples(pairs: list[list[int]]) -> tuple[Any, ...]:
    return tuple([tuple(pair) for pair in pairs]) if pairs else ()
