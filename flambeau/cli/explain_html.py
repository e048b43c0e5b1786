"""`flambeau explain SCRIPT --html FILE`: what a script ran, as one page that needs nothing else.

The script's plans are run kernel by kernel (profiler/instrumented.py) and timed; a kernel's time is the best of all runs.
"""

from __future__ import annotations

import os
import platform
from bisect import bisect_right
from collections.abc import Sequence
from html import escape
from typing import Any

from flambeau.cli.charts import Point, Roof, kernel_graph, memory_plan, roofline
from flambeau.compiler.explain import headline
from flambeau.compiler.graph import CONTRACT, Graph
from flambeau.profiler import machine
from flambeau.profiler.events import FunctionEvent
from flambeau.profiler.instrumented import TimedPlan
from flambeau.profiler.table import amount
from flambeau.trace import evaluate
from flambeau.trace.state import State

_OVER = 1.05  # a share beyond this is no rounding: the machine was measured too slow
_STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1400px;padding:0 1rem;overflow-wrap:anywhere;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:.2rem 0;display:inline}h3{font-size:1rem;margin:1.2rem 0 .3rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}th{background:#f4f4f4}
td.l,th.l{text-align:left}td.w{white-space:normal;min-width:12rem;overflow-wrap:anywhere}.scroll{overflow:auto;max-height:60rem}
.over{color:#b04a00;font-weight:600}
pre{background:#f6f6f6;padding:.7rem;overflow:auto;max-height:26rem;font-size:12px}
details{border:1px solid #ccc;border-radius:6px;padding:.5rem 1rem;margin:.8rem 0}summary{cursor:pointer}
details details{border-color:#e4e4e4}svg{font-family:system-ui,sans-serif;max-width:100%;height:auto}
svg text:not([fill]){fill:#333}.grid{stroke:#e6e6e6}.axis{stroke:#666}.under{fill:#fff}.edge{fill:none;stroke:#888;stroke-width:1}
.bar{display:inline-block;width:80px;height:10px;background:#eee;vertical-align:middle}.bar i{display:block;height:10px;background:#0072b2}
@media (prefers-color-scheme:dark){body{background:#161616;color:#ddd}th{background:#252525}pre{background:#1f1f1f}th,td{border-color:#3a3a3a}
details,details details{border-color:#3a3a3a}svg text:not([fill]){fill:#ccc}.grid{stroke:#333}.bar{background:#333}.under{fill:#161616}}
"""


def _call_sites(state: State, graph: Graph) -> dict[int, str]:
    """{node: the line of the program that made it first, and the module around it}, of the nodes that a line has made.

    Asked while the script runs: modules are not kept alive for this.
    """
    recorded = [s for s in state.path() if s.place is not None and s.value_count > s.first_value]
    starts = [s.first_value for s in recorded]
    texts: dict[int, str] = {}
    found = {}
    for number, node in enumerate(graph.nodes):
        at = bisect_right(starts, node.outputs[0]) - 1 if node.outputs else -1
        if at < 0 or node.outputs[0] >= recorded[at].value_count:
            continue  # the compiler has made it
        if at not in texts:
            place = recorded[at].place
            assert place is not None
            module = place.module()
            texts[at] = f"{os.path.basename(place.file)}:{place.line}" + (f" in {module}" if module else "")
        found[number] = texts[at]
    return found


class _Record:
    """One plan: why its traces ended, how often it ran, the best seconds of each stage, and who recorded its nodes."""

    def __init__(self, trace_plan: Any, reason: str, state: State) -> None:
        self.sites = _call_sites(state, trace_plan.plan.graph)
        self.trace_plan = trace_plan
        self.plan = trace_plan.plan
        self.timed = TimedPlan(self.plan)
        self.reason = reason
        self.runs = 0
        self.best = [float("inf")] * len(self.timed.stages)

    def lines(self, nodes: Sequence[int]) -> list[str]:
        """The program's lines that made these nodes, each once, with those nodes' numbers."""
        found: dict[str, list[int]] = {}
        for n in nodes:
            if n in self.sites:
                found.setdefault(self.sites[n], []).append(n)
        return [f"{site} ({', '.join(map(str, made[:8]))}{', ...' if len(made) > 8 else ''})" for site, made in found.items()]

    @property
    def seconds(self) -> float:
        """Of one run, each kernel at its best."""
        return sum(self.best) if self.runs else 0.0


class Watcher:
    """Stands in the profiler's place (trace/evaluate.py) and notes the best time of each kernel of each plan."""

    def __init__(self) -> None:
        self.records: dict[int, _Record] = {}

    def compiled(self, plan: Any, begin: int, end: int) -> None:
        """Nothing: plans are noted when they run."""

    def run(self, trace_plan: Any, state: State, inputs: Sequence[Any], parameters: Sequence[Any], reason: str) -> Any:
        """Run a plan and keep its kernels' times."""
        record = self.records.get(id(trace_plan))
        if record is None:
            record = self.records[id(trace_plan)] = _Record(trace_plan, reason, state)
        buffers, times = record.timed.run(inputs, parameters)
        record.runs += 1
        record.best = [min(known, (end - begin) / 1e9) for known, (begin, end) in zip(record.best, times, strict=True)]
        return buffers

    def enter(self, name: str) -> FunctionEvent:
        """Ranges are not shown."""
        return FunctionEvent(name, "range", 0, 0, 0)

    def leave(self, event: Any) -> None:
        """Ranges are not shown."""


def watch() -> Watcher:
    """Note all plans that run from now on."""
    watcher = Watcher()
    evaluate.set_profiler(watcher)
    return watcher


def page(watcher: Watcher, script: str) -> str:
    """The page."""
    if evaluate.PROFILER is watcher:
        evaluate.set_profiler(None)  # what measures the machine is not the script
    records = sorted((r for r in watcher.records.values() if r.timed.stages), key=lambda r: -r.runs * r.seconds)
    products = {r.plan.graph.values[n.inputs[0]].dtype for r in records for n in r.plan.graph.nodes if n.op in CONTRACT}
    roofs = [Roof(f"memory, {machine.bandwidth() / 1e9:.0f} GB/s", machine.bandwidth(), True)]
    roofs.append(Roof(f"caches of level 2, {machine.cache_bandwidth() / 1e9:.0f} GB/s", machine.cache_bandwidth(), True))
    for d in sorted((d for d in products if d.is_floating_point), key=lambda d: d.name) or [machine.dtypes.float32]:
        roofs.append(Roof(f"{d.name} products, {machine.peak(d) / 1e9:.0f} GFLOP/s", machine.peak(d), False))
    title = f"flambeau explain {script}"
    whole = sum(r.runs * r.seconds for r in records)
    parts = [
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        _facts(records, roofs, whole), _doubts(records),
        "<h3>Roofline of all kernels</h3>", roofline([p for r in records for p in _points(r)], roofs),
        "<p>A circle is a kernel at its best, its area the time of one run. Names and numbers appear when the pointer rests on it.</p>",
    ]  # fmt: skip
    for number, record in enumerate(records, start=1):
        parts.append(_plan(number, record, roofs, whole, number == 1))
    if not records:
        parts.append("<p>The script ran no kernels.</p>")
    parts.append("</body></html>\n")
    return "".join(parts)


def _facts(records: Sequence[_Record], roofs: Sequence[Roof], whole: float) -> str:
    from flambeau.runtime import target, threads

    rows = {
        "machine": f"{platform.machine()}, {target.vector_bits()}-bit vectors, {threads.count()} threads",
        "measured": "; ".join(r.label for r in roofs),
        "plans": f"{len(records)}, run {sum(r.runs for r in records)} times",
        "time in kernels": f"{1e3 * whole:.3f} ms, floor {1e3 * sum(r.runs * _floor(r) for r in records):.3f} ms",
    }
    cells = "".join(f'<tr><th class="l">{escape(k)}</th><td class="l w">{escape(v)}</td></tr>' for k, v in rows.items())
    return f"<table>{cells}</table>"


def _doubts(records: Sequence[_Record]) -> str:
    """What the page has to say where kernels were faster than the machine was found to be."""
    over = sum(_stage_floor(r, i) > _OVER * t for r in records if r.runs for i, t in enumerate(r.best) if t > 0)
    if not over:
        return ""
    return (
        f'<p class="over">{over} kernel{"s" if over > 1 else ""} took less time than the floor: their shares are over 100 %. The floor is made of the '
        "bandwidth and peak that were measured just now, and something else kept the machine busy meanwhile, so they were measured too low. "
        "Times are right, floors and shares are not: run this again on a quiet machine.</p>"
    )


def _stage_floor(record: _Record, number: int) -> float:
    steps = record.timed.stages[number].steps
    dtype = machine.dtype_of(record.plan.graph, steps[0])
    return machine.floor_seconds(sum(s.bytes for s in steps), sum(s.operations for s in steps), dtype)


def _floor(record: _Record) -> float:
    return sum(_stage_floor(record, i) for i in range(len(record.timed.stages)))


def _points(record: _Record) -> list[Point]:
    return [
        Point(sum(s.bytes for s in stage.steps), sum(s.operations for s in stage.steps), seconds, stage.steps[0].name)
        for stage, seconds in zip(record.timed.stages, record.best, strict=True)
    ]  # fmt: skip


def _plan(number: int, record: _Record, roofs: Sequence[Roof], whole: float, is_open: bool) -> str:
    plan = record.plan
    share = f", {100 * record.runs * record.seconds / whole:.1f} % of the time" if whole else ""
    rows = []
    for i, (stage, seconds) in enumerate(zip(record.timed.stages, record.best, strict=True)):
        nbytes, operations = sum(s.bytes for s in stage.steps), sum(s.operations for s in stage.steps)
        floor = _stage_floor(record, i)
        reached = floor / seconds if seconds > 0 else 0.0
        made = [n for s in stage.steps for n in s.nodes]
        nodes = [f"{n}:{plan.graph.nodes[n].op}" for n in made]
        share = f"<td{' class=over' * (reached > _OVER)}>{100 * reached:.0f} %</td>"
        by = "<br>".join(escape(line) for line in record.lines(made)[:6])
        name = ("host " if stage.host else "") + stage.steps[0].name
        rows.append(
            f'<tr><td>{stage.phase}</td><td class="l">{escape(name)}</td><td>{len(stage.steps)}</td><td>{amount(nbytes)}</td>'
            f"<td>{amount(operations)}</td><td>{1e6 * floor:.2f}</td><td>{1e6 * seconds:.2f}</td>{share}"
            f'<td><span class="bar"><i style="width:{100 * min(reached, 1):.0f}%"></i></span></td><td class="l w">{escape(_several(nodes))}</td>'
            f'<td class="l w">{by}</td></tr>'
        )
    head = "".join(
        f"<th{' class=l' if name in ('kernel', 'nodes', 'lines (their nodes)') else ''}>{name}</th>"
        for name in ("phase", "kernel", "tasks", "bytes", "operations", "floor/us", "taken/us", "share", "", "nodes", "lines (their nodes)")
    )
    notes = list(dict.fromkeys(note for step in plan.steps for note in step.notes))
    drawn, memory = kernel_graph(plan), memory_plan(plan)
    parts = [
        f"<details{' open' if is_open else ''}><summary><h2>Plan {number}</h2> &mdash; run {record.runs} times, {1e6 * record.seconds:.1f} us a run"
        f"{share}; the trace ended with: {escape(record.reason)}</summary>",
        f"<p>{escape(headline(plan, machine.bandwidth(), machine.peak()))}</p>",
        f'<h3>Kernels</h3><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>',
        f"<h3>Roofline</h3>{roofline(_points(record), roofs) or '<p>No kernel computes.</p>'}",
        f'<h3>Kernels and the buffers between them</h3><div class="scroll">{drawn or "<p>Too many kernels to draw.</p>"}</div>',
        f"<h3>Memory plan</h3>{memory or '<p>No temporary memory.</p>'}",
        f"<details><summary>Graph: {len(plan.graph.nodes)} nodes</summary><pre>{escape(str(plan.graph))}</pre></details>",
    ]  # fmt: skip
    if notes:
        parts.append(f"<details><summary>Not fused, because</summary><pre>{escape(chr(10).join(notes))}</pre></details>")
    return "".join([*parts, "</details>"])


def _several(names: Sequence[str], most: int = 16) -> str:
    return " ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
