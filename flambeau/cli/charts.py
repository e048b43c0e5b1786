"""Charts of a plan as inline SVG: the roofline, the kernels and their buffers as a graph, and the arena over the phases.

Everything is made of numbers and escaped text: no scripts, no fonts or images from elsewhere. Coordinates are pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from flambeau.compiler.plan import Plan
from flambeau.profiler.table import amount

# The palette of Okabe and Ito (2008), which people with colour-blindness can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")


class Point(NamedTuple):
    """A kernel in the roofline: its traffic, its arithmetic, its seconds, and its name."""

    nbytes: float
    operations: float
    seconds: float
    name: str


class Roof(NamedTuple):
    """A limit: operations a second for each byte a second (slanted), or operations a second (flat)."""

    label: str
    value: float
    slanted: bool


def _svg(width: float, height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(label, quote=True)}">' + "".join(parts) + "</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 11, extra: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{extra}>{escape(text)}</text>'


def colour_of(name: str) -> str:
    """One of COLOURS by the kind of kernel."""
    for i, start in enumerate(("matmul", "conv", "attention", "softmax", "host", "copy")):
        if start in name:
            return COLOURS[i]
    return COLOURS[6]


def roofline(points: Sequence[Point], roofs: Sequence[Roof]) -> str:
    """Operations a second over operations a byte, both logarithmic, under the roofs. Kernels without arithmetic, and those
    that were not timed, are left out; an empty text if none is left."""
    shown = [p for p in points if p.operations > 0 and p.seconds > 0 and p.nbytes > 0]
    if not shown:
        return ""
    width, height, left, bottom, top, right = 760, 380, 64, 40, 16, 24
    intensity = [p.operations / p.nbytes for p in shown]
    speed = [p.operations / p.seconds for p in shown]
    flat = max(r.value for r in roofs if not r.slanted)
    ridge = max(flat / r.value for r in roofs if r.slanted)
    x0, x1 = math.floor(math.log10(min(*intensity, 0.1))), math.ceil(math.log10(max(*intensity, 2 * ridge)))
    y0, y1 = math.floor(math.log10(min(*speed, flat / 1e3))), math.ceil(math.log10(max(*speed, 1.2 * flat)))

    def px(value: float) -> float:
        return left + (math.log10(value) - x0) / (x1 - x0) * (width - left - right)

    def py(value: float) -> float:
        return height - bottom - (math.log10(value) - y0) / (y1 - y0) * (height - bottom - top)

    parts = []
    for e in range(x0, x1 + 1):
        parts.append(f'<line class="grid" x1="{px(10.0**e):.1f}" x2="{px(10.0**e):.1f}" y1="{top}" y2="{height - bottom}"/>')
        parts.append(_text(px(10.0**e), height - bottom + 16, f"{10.0**e:g}", "middle"))
    for e in range(y0, y1 + 1):
        parts.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{py(10.0**e):.1f}" y2="{py(10.0**e):.1f}"/>')
        parts.append(_text(left - 6, py(10.0**e) + 4, amount(10.0**e), "end"))
    parts.append(_text((left + width - right) / 2, height - 6, "operations for each byte of traffic", "middle", 12))
    parts.append(_text(14, height / 2, "operations a second", "middle", 12, f' transform="rotate(-90 14 {height / 2:.1f})"'))
    for number, roof in enumerate(roofs):
        colour = COLOURS[number % len(COLOURS)]
        if roof.slanted:
            start, stop = max(10.0**x0, 10.0**y0 / roof.value), min(flat / roof.value, 10.0**x1)
            if start >= stop:
                continue
            ends = px(start), py(roof.value * start), px(stop), py(roof.value * stop)
            at = math.sqrt(start * stop)
            slope = math.degrees(math.atan2(ends[3] - ends[1], ends[2] - ends[0]))
            x, y = px(at), py(roof.value * at) - 5
            label = _text(x, y, roof.label, "middle", 11, f' fill="{colour}" transform="rotate({slope:.1f} {x:.1f} {y:.1f})"')
        else:
            begin = max(10.0**x0, min(roof.value / r.value for r in roofs if r.slanted))
            ends = px(begin), py(roof.value), px(10.0**x1), py(roof.value)
            label = _text(width - right - 4, py(roof.value) - 5, roof.label, "end", 11, f' fill="{colour}"')
        parts.append(f'<line x1="{ends[0]:.1f}" y1="{ends[1]:.1f}" x2="{ends[2]:.1f}" y2="{ends[3]:.1f}" stroke="{colour}" stroke-width="1.5"/>{label}')
    longest = max(p.seconds for p in shown)
    for p, x, y in sorted(zip(shown, intensity, speed, strict=True), key=lambda t: -t[0].seconds):
        radius = 3 + 9 * math.sqrt(p.seconds / longest)
        note = f"{p.name}: {amount(p.operations)} operations, {amount(p.nbytes)}B, {1e6 * p.seconds:.1f} us, {amount(y)}op/s"
        parts.append(
            f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="{radius:.1f}" fill="{colour_of(p.name)}" fill-opacity="0.6"><title>{escape(note)}</title></circle>'
        )
    return _svg(width, height, "roofline of the kernels", parts)


class _Box(NamedTuple):
    phase: int
    name: str
    steps: list[Any]


def kernel_graph(plan: Plan, most: int = 400) -> str:
    """The kernels of each phase in a row, with lines from who writes a buffer to who reads it; empty if there are more than `most`."""
    found: dict[tuple[int, str], _Box] = {}
    for step, phase in zip(plan.steps, plan.phases, strict=True):
        found.setdefault((phase, step.key), _Box(phase, step.name, [])).steps.append(step)
    boxes = list(found.values())
    if not boxes or len(boxes) > most:
        return ""
    rows: dict[int, list[int]] = {}
    for i, box in enumerate(boxes):
        rows.setdefault(box.phase, []).append(i)
    wide, high, gap, rise = 148, 26, 14, 34
    across = max(len(row) for row in rows.values())
    width = max(across * (wide + gap) + gap, 320)
    place: dict[int, tuple[float, float]] = {}
    for level, row in enumerate(rows[phase] for phase in sorted(rows)):
        start = (width - len(row) * (wide + gap) + gap) / 2
        for column, i in enumerate(row):
            place[i] = start + column * (wide + gap), 10 + level * (high + rise)
    parts: list[str] = []
    writer: dict[int, int] = {}
    edges: dict[tuple[int, int], int] = {}
    values = plan.graph.values
    for i, box in enumerate(boxes):
        for root in dict.fromkeys(r for s in box.steps for r in s.reads):
            if root in writer and writer[root] != i:
                edges[writer[root], i] = edges.get((writer[root], i), 0) + values[root].numel * values[root].dtype.itemsize
        for root in (r for s in box.steps for r in s.writes):
            writer[root] = i
    for (a, b), nbytes in edges.items():
        (xa, ya), (xb, yb) = place[a], place[b]
        x1, y1, x2, y2 = xa + wide / 2, ya + high, xb + wide / 2, yb
        parts.append(
            f'<path class="edge" d="M{x1:.1f} {y1:.1f}C{x1:.1f} {y1 + 20:.1f} {x2:.1f} {y2 - 20:.1f} {x2:.1f} {y2:.1f}"><title>{amount(nbytes)}B</title></path>'
        )
    for i, box in enumerate(boxes):
        x, y = place[i]
        where = f'x="{x:.1f}" y="{y:.1f}" width="{wide}" height="{high}" rx="4"'
        colour = colour_of(box.name)
        nodes = ", ".join(f"{n}:{plan.graph.nodes[n].op}" for s in box.steps for n in s.nodes)
        times = f" x {len(box.steps)}" if len(box.steps) > 1 else ""
        label = box.name if len(box.name) + len(times) <= 22 else box.name[: 21 - len(times)] + "\u2026"
        parts.append(
            f'<g><title>{escape(f"phase {box.phase}: {box.name}{times}: {nodes}")}</title><rect class="under" {where}/>'
            f'<rect {where} fill="{colour}" fill-opacity="0.18" stroke="{colour}"/>{_text(x + wide / 2, y + 17, label + times, "middle")}</g>'
        )
    return _svg(width, 20 + len(rows) * (high + rise) - rise, "kernels and the buffers between them", parts)


def memory_plan(plan: Plan) -> str:
    """The arena: bytes upwards, phases to the right, a rectangle for the life of each buffer; empty if there is no arena."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step, phase in zip(plan.steps, plan.phases, strict=True):
        for root in (*step.reads, *step.writes):
            first.setdefault(root, phase)
            last[root] = max(phase, last.get(root, phase))
    values, places = plan.graph.values, plan.placement.places
    lives = [
        (first[r], last[r], places[r][1], values[r].numel * values[r].dtype.itemsize, r)
        for r in first if r in places and places[r][0] == "arena" and r not in plan.schedule.inside
    ]  # fmt: skip
    if not lives or not plan.arena_bytes:
        return ""
    phases = max(plan.phases) + 1
    width, height, left, bottom = 760, 240, 64, 34
    step_width = (width - left - 10) / phases
    scale = (height - bottom - 10) / plan.arena_bytes
    parts = [
        f'<line class="axis" x1="{left}" x2="{left}" y1="10" y2="{height - bottom}"/>',
        f'<line class="axis" x1="{left}" x2="{width - 10}" y1="{height - bottom}" y2="{height - bottom}"/>',
        _text(left - 6, 18, amount(plan.arena_bytes) + "B", "end"), _text(left - 6, height - bottom, "0", "end"),
        _text((left + width) / 2, height - 8, f"phases 0 to {phases - 1}", "middle", 12),
    ]  # fmt: skip
    for number, (begin, end, offset, nbytes, root) in enumerate(sorted(lives)):
        x, w = left + begin * step_width, (end - begin + 1) * step_width
        y, h = height - bottom - (offset + nbytes) * scale, max(nbytes * scale, 0.5)
        value = values[root]
        note = f"%{root}: {value.dtype.name}{list(value.shape)}, {amount(nbytes)}B at {offset}, phases {begin} to {end}"
        colour = COLOURS[number % len(COLOURS)]
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w - 1, 0.5):.1f}" height="{h:.1f}" fill="{colour}" fill-opacity="0.35" stroke="{colour}" '
            f'stroke-width="0.5"><title>{escape(note)}</title></rect>'
        )
    return _svg(width, height, "the plan's memory over its phases", parts)
