"""A plan as text: the graph, what became of its nodes, why neighbours were not fused, and how fast it could be.

print(explain(compile_graph(graph), bandwidth=40e9, peak=400e9))
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau.compiler import graph as g
from flambeau.compiler.kernels.host_step import HostCall
from flambeau.compiler.pipeline import PASSES
from flambeau.compiler.plan import Plan
from flambeau.compiler.schedule import Step


def floor(step: Step, bandwidth: float, peak: float) -> float:
    """The least time of a step in seconds: its bytes at `bandwidth` (bytes/s) or its operations at `peak` (1/s)."""
    return max(step.bytes / bandwidth, step.operations / peak)


def explain(plan: Plan, *, bandwidth: float, peak: float, graph: bool = True, notes: bool = True, seconds: Sequence[float] = ()) -> str:
    """The report. `bandwidth` in bytes/s and `peak` in operations/s are this machine's, as measured (`flambeau info`).
    `seconds`: measured times of the steps (`plan.time_steps`), for a column beside the floor."""
    lines: list[str] = []
    if graph:
        lines += ["graph", *[f"  {line}" for line in str(plan.graph).splitlines()], ""]
    lines.append(headline(plan, bandwidth, peak))
    lines.append(f"{'phase':>5} {'kernel':<28} {'tasks':>5} {'bytes':>10} {'operations':>11} {'floor/us':>9}{'taken/us' if seconds else '':>10}  nodes")
    taken = {id(step): time for step, time in zip(plan.steps, seconds, strict=False)}
    for phase, steps in _by_phase_and_key(plan):
        nodes = [i for step in steps for i in step.nodes]
        name = ("host " if isinstance(steps[0], HostCall) else "") + steps[0].name
        lines.append(
            f"{phase:>5} {name[:28]:<28} {len(steps):>5} {_amount(sum(s.bytes for s in steps)):>10} "
            f"{_amount(sum(s.operations for s in steps)):>11} {1e6 * sum(floor(s, bandwidth, peak) for s in steps):>9.2f}"
            f"{f'{1e6 * sum(taken[id(s)] for s in steps):.2f}' if seconds else '':>10}  {_nodes(plan, nodes)}"
        )
    if notes:
        reasons = list(dict.fromkeys(note for step in plan.steps for note in step.notes))
        if reasons:
            lines += ["", "not fused, because"] + [f"  {reason}" for reason in reasons]
    return "\n".join(lines)


def passes() -> str:
    """What the compiler's passes cost in this process so far."""
    lines = [f"{'pass':<24} {'runs':>6} {'ms':>9} {'nodes removed':>14}"]
    for name, counter in PASSES.items():
        lines.append(f"{name:<24} {counter.runs:>6} {1e3 * counter.seconds:>9.2f} {counter.removed_nodes:>14}")
    return "\n".join(lines)


def headline(plan: Plan, bandwidth: float, peak: float) -> str:
    """One line: kernels, phases, memory, traffic, operations, floor."""
    statistics = plan.statistics
    total = sum(floor(step, bandwidth, peak) for step in plan.steps)
    shared = f" ({_amount(statistics['unshared_bytes'])} without reuse)" if statistics["unshared_bytes"] else ""
    return (
        f"{plan.kernel_count} kernels, {statistics['tasks']} tasks in {statistics['phases']} phases, arena "
        f"{_amount(plan.arena_bytes)}{shared}, {_amount(statistics['bytes'])} of traffic, "
        f"{_amount(statistics['operations'])} operations, floor {1e6 * total:.2f} us"
    )


def _by_phase_and_key(plan: Plan) -> list[tuple[int, list[Step]]]:
    """Steps of one phase and one key are one kernel."""
    found: dict[tuple[int, str], list[Step]] = {}
    for step, phase in zip(plan.steps, plan.phases, strict=True):
        found.setdefault((phase, step.key), []).append(step)
    return [(phase, steps) for (phase, _), steps in found.items()]


def _nodes(plan: Plan, nodes: list[int]) -> str:
    text = " ".join(f"{i}:{plan.graph.nodes[i].op}" for i in nodes[:12] if plan.graph.nodes[i].op not in g.VIEWS)
    return text + (f" and {len(nodes) - 12} more" if len(nodes) > 12 else "")


def _amount(n: float) -> str:
    """1536 -> "1.54 K"."""
    for unit in ("", " K", " M", " G", " T"):
        if n < 1000 or unit == " T":
            return f"{n:.3g}{unit}" if unit else f"{n:.0f}"
        n /= 1000
    raise AssertionError
