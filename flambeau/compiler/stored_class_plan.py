"""Plans over symbols on disk: a path whose sizes have been planned by an earlier process is not planned again, nor compared.

An entry is named by what a plan over symbols depends on: the graph, whose sizes are expressions of the path's (by texts that are the same in every process),
and the target. It lists *variants*: plans for different sizes. Each has the guards that tell for which, the hints, the sizes that were the same whenever it
was compared (trace/class_plans.py), and the name of a second entry. It is taken at those sizes only, so nothing has to be compared again.

The second entry has the plan as in stored_plan.py, but for numbers that depend on sizes, which are rows of expressions (symbol_rows.py), and the compiled
function that gives them at given sizes: making that takes a third of the time that planning does. As with object code, what is run is what the folder's
owner, mode and check sums say is ours (runtime/object_cache.py).
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sys
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import CodeType
from typing import Any, Final

from flambeau.compiler import stored_plan
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel
from flambeau.compiler.place import assign_offsets
from flambeau.compiler.plan import Plan
from flambeau.compiler.schedule import Step
from flambeau.runtime import object_cache
from flambeau.statistics import counters
from flambeau.symbol_rows import SYMBOL, Rows, Texts, expressions_of, value_at, values_of
from flambeau.symbols import OPERATORS, Recording, Sym, SymFloat, by_expression, reaches

# With fewer nodes a plan over symbols is made in about the time in which an entry is found and read.
FEWEST_NODES: Final = 8
MOST_VARIANTS: Final = 12  # of an entry; the oldest goes
_FACTS: Final = 5  # of a variant: rows, guards, hints, untried sizes, name
_SUFFIX: Final = ".plan"
_PYTHON: Final = f"{sys.implementation.cache_tag} {sys.hexversion:x}"  # whose code it is
_LEVEL: Final = 1  # of zlib
_PLAIN: Final[frozenset[type]] = stored_plan.PLAIN | {Sym, SymFloat}
_UNREADABLE: Final = (ValueError, TypeError, KeyError, IndexError, ArithmeticError, EOFError, zlib.error)

Guard = tuple[str, Any, Any, bool]
Pairs = tuple[tuple[int, int], ...]  # (number of a size, the size)
Lower = Callable[[Graph], tuple[Graph, list[list[Step]]]]


@dataclass(slots=True)
class Entry:
    """Where a plan over symbols is kept. `rec`: what is asked while it is made. `afresh`: one to compare another with, which is not read.

    Filled in by who makes the plan: `key` (None: it is not kept), the hints and all that was asked. Of one that was read also its `name`, the sizes at which
    it was compared (`untried`, see from_model.tried), and the code of its function of the sizes.
    """

    rec: Recording
    afresh: bool = False
    key: str | None = None
    name: str = ""
    untried: Pairs = ()
    guards: tuple[Guard, ...] = ()
    hints: tuple[int, ...] = ()
    code: CodeType | None = None


def key_of(graph: Graph) -> str | None:
    """The name of the entry of a graph over symbols; None if it is too small, or has attributes that are no plain numbers and names."""
    return stored_plan.name_of("plan over symbols", graph, FEWEST_NODES, _PLAIN, Texts().plain)


# -- Reading ----------------------------------------------------------------------------------------------------------


def load(entry: Entry, graph: Graph, lower: Lower) -> Plan | None:
    """The plan of the variant that holds at the recording's sizes; None if there is none that can be read. What it asks of sizes is noted as asked."""
    rec = entry.rec
    assert entry.key is not None
    sizes = rec.sizes
    try:
        for rows, guards, hints, untried, name in _variants(entry.key):
            if any(sizes[i] != n for i, n in untried) or not _hold(guards, values_of(rows, sizes)):
                continue
            content = object_cache.load(name, _SUFFIX)
            if content is None:
                continue
            plan = _read(entry, zlib.decompress(content).decode(), tuple(hints), graph, lower)
            if plan is not None:
                _note(rec, guards, expressions_of(rows, rec))
                rec.hints = tuple(hints)
                entry.name, entry.untried = name, tuple([(i, n) for i, n in untried])
                counters.plans_from_disk += 1
                return plan
    except _UNREADABLE:
        pass
    rec.sizes = sizes
    return None


def _hold(guards: list[Any], values: list[Any]) -> bool:
    return all(OPERATORS[op](value_at(a, values), value_at(b, values)) is answer for op, a, b, answer in guards)


def _note(rec: Recording, guards: list[Any], exprs: list[Any]) -> None:
    for op, a, b, answer in guards:
        rec.guard(op, value_at(a, exprs), value_at(b, exprs), answer)


def _read(entry: Entry, text: str, hints: tuple[int, ...], graph: Graph, lower: Lower) -> Plan | None:
    """The plan; None where a guard about the places of its blocks does not hold."""
    head, body, python, code = text.split("\n")
    rows, of_lives, guards, lives = json.loads(head)
    rec = entry.rec
    sizes = tuple(rec.sizes)
    if lives:
        values = values_of(rows[:of_lives], sizes)
        offsets, top = assign_offsets([(first, last, value_at(nbytes, values)) for first, last, nbytes in lives])
        rec.more((*offsets, top))
    values = values_of(rows, rec.sizes)
    if not _hold(guards, values):
        rec.sizes = sizes
        return None
    exprs = expressions_of(rows, rec)
    symbols = [rec.symbol(e, value) for e, value in zip(exprs, values, strict=True)]
    lowered = stored_plan.Lowered(partial(_lowered_at, lower, graph, sizes, hints))
    order, placement = stored_plan.decoded(json.loads(body, object_hook=lambda x: symbols[x[SYMBOL]]), lowered)
    entry.code = marshal.loads(b64decode(code)) if python == _PYTHON else None
    if not isinstance(entry.code, CodeType | None):
        raise TypeError("the entry has no code of a function")
    _note(rec, guards, exprs)
    return Plan(graph, order, placement, lowered.graph, over_symbols=True)


def _lowered_at(lower: Lower, graph: Graph, sizes: tuple[int, ...], hints: tuple[int, ...]) -> tuple[Graph, list[list[Step]]]:
    """What the plan was made of, when somebody asks for it or for missing code: over symbols again, as kernels depend on the hints, too."""
    rec = Recording(sizes)
    rec.hints, rec.texts = hints, True
    values, nodes = [v.mapped(rec.again) for v in graph.values], [n.mapped(rec.again) for n in graph.nodes]
    return lower(replace(graph, values=values, nodes=nodes))


# -- Writing ----------------------------------------------------------------------------------------------------------


def made(entry: Entry, graph: Graph, plan: Plan) -> None:
    """A plan has been made: one that is not all native, or whose graph has other inputs or results than `graph`, is not kept."""
    entry.hints = tuple(entry.rec.hints)
    if not all(isinstance(step, Kernel) for step in plan.schedule.steps) or _interface(graph) != _interface(plan.graph):
        entry.key = None


def _interface(graph: Graph) -> Any:
    values = [(by_expression(tuple(graph.values[i].shape)), graph.values[i].dtype) for i in (*graph.inputs, *graph.parameters, *graph.outputs)]
    return graph.inputs, graph.parameters, graph.outputs, values


def store(entry: Entry, plan: Plan, count: int, untried: Pairs, code: CodeType) -> None:
    """Keep a plan over symbols, or say of one that is kept that it was right at other sizes, too. `count`: the sizes of its path; `code`: see `Entry`."""
    if entry.key is None:
        return
    before = _variants(entry.key)
    if entry.name:
        for variant in before:
            if variant[4] == entry.name:
                variant[3] = [pair for pair in variant[3] if tuple(pair) in untried]
    else:
        later = [g for g in entry.guards if reaches(g[1], count) or reaches(g[2], count)]
        index = Rows()
        early = _plain_guards(index, [g for g in entry.guards if g not in later])
        entry.name = f"{entry.key}:{hashlib.sha256(_text([early, index.rows, entry.hints]).encode()).hexdigest()}"
        object_cache.store(entry.name, zlib.compress(_written(plan, later, code).encode(), _LEVEL), _SUFFIX)
        before = [[index.rows, early, entry.hints, untried, entry.name], *[v for v in before if v[4] != entry.name][: MOST_VARIANTS - 1]]
        entry.guards = ()
    object_cache.store(entry.key, zlib.compress(_text(before).encode(), _LEVEL), _SUFFIX)


def _written(plan: Plan, later: list[Guard], code: CodeType) -> str:
    """A plan as text. `later`: guards about where blocks lie."""
    rows = Rows()
    lives = [[first, last, rows.operand(nbytes.expr if nbytes.__class__ is Sym else nbytes)] for first, last, nbytes in plan.placement.lives]
    of_lives = len(rows.rows)
    guards = _plain_guards(rows, later)
    body = _text(rows.plain(stored_plan.encoded(plan.schedule, plan.placement)))
    return "\n".join([_text([rows.rows, of_lives, guards, lives]), body, _PYTHON, b64encode(marshal.dumps(code)).decode()])


def _variants(key: str) -> list[Any]:
    """The variants that an entry lists; two processes that write at once may lose one."""
    listed = object_cache.load(key, _SUFFIX)
    try:
        return [] if listed is None else [v for v in json.loads(zlib.decompress(listed)) if isinstance(v, list) and len(v) == _FACTS]
    except _UNREADABLE:
        return []


def _plain_guards(rows: Rows, guards: list[Guard]) -> list[Any]:
    return [[op, rows.operand(a), rows.operand(b), answer] for op, a, b, answer in guards]


def _text(x: Any) -> str:
    return json.dumps(x, separators=(",", ":"))
