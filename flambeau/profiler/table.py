"""A list of events as PyTorch's text table, with our columns behind it: bytes, operations, floor and the share reached."""

from __future__ import annotations

from typing import Any

from flambeau.profiler.events import format_time

_GAP = "  "
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def make_table(
    events: Any, sort_by: str | None, row_limit: int, source_width: int, name_width: int, shapes_width: int, header: str | None,
    top_level_only: bool, time_unit: str | None,
) -> str:  # fmt: skip
    """See EventList.table. AttributeError if there is no column `sort_by`."""
    if not events:
        return ""
    if time_unit is not None and time_unit not in _UNITS:
        raise ValueError(f"time_unit must be one of {', '.join(_UNITS)}, got {time_unit!r}")
    meta = events.metadata
    rows = sorted(events, key=lambda e: getattr(e, sort_by), reverse=True) if sort_by is not None else list(events)
    total = sum([e.self_cpu_time_total for e in events])
    kernels = any(e.kind == "kernel" for e in events)
    shapes = any(e.input_shapes for e in events)
    stacks = any(e.stack for e in events)

    def time(us: float) -> str:
        return format_time(us) if time_unit is None else f"{us / _UNITS[time_unit]:.3f}{time_unit}"

    head = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    head += ["CPU Mem", "Self CPU Mem"] if meta.memory else []
    head += ["# of Calls"]
    head += ["Input Shapes"] if shapes else []
    head += ["Source Location"] if stacks else []
    head += [f"Total {_flops_unit(events)[1]}"] if meta.flops else []
    head += ["Bytes", "Operations", "Floor", "Share", "Recorded as"] if kernels else []
    body: list[list[str]] = []
    for e in rows:
        if top_level_only and e.cpu_parent is not None:
            continue
        if len(body) == row_limit:
            break
        row = [
            _cut(e.key, name_width), _percent(e.self_cpu_time_total, total), time(e.self_cpu_time_total), _percent(e.cpu_time_total, total),
            time(e.cpu_time_total), time(e.cpu_time),
        ]  # fmt: skip
        row += [format_bytes(e.cpu_memory_usage), format_bytes(e.self_cpu_memory_usage)] if meta.memory else []
        row.append(str(e.count))
        row += [_cut(str(e.input_shapes or "[]"), shapes_width)] if shapes else []
        row += [_cut(e.stack[0] if e.stack else "", source_width)] if stacks else []
        row += [f"{e.flops / _flops_unit(events)[0]:.3f}" if e.flops else "--"] if meta.flops else []
        if kernels:
            if e.kind == "kernel":
                row += [amount(e.bytes), amount(e.flops), time(e.floor_us), f"{100 * e.share:.1f}%", _cut(", ".join(e.sources), 48)]
            else:
                row += ["--"] * 4 + [""]
        body.append(row)
    widths = [max(len(cell) for cell in column) for column in zip(head, *body, strict=True)]
    left = {head.index(name) for name in ("Source Location", "Recorded as") if name in head}
    rule = _GAP.join("-" * w for w in widths)

    def line(cells: list[str]) -> str:
        return _GAP.join(c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))).rstrip()

    lines = [header] if header else []
    lines += [rule, line(head), rule, *[line(row) for row in body], rule, f"Self CPU time total: {time(total)}"]
    if kernels:
        taken = sum([e.self_cpu_time_total for e in events if e.kind == "kernel"])
        floor = sum([e.floor_us for e in events if e.kind == "kernel"])
        lines.append(f"Kernels: {time(taken)}, floor {time(floor)} ({_percent(floor, taken)})")
    return "\n".join(lines) + "\n"


def _cut(text: str, width: int) -> str:
    return text if width <= 0 or len(text) <= width else text[: max(width - 3, 0)] + "..."


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


def _flops_unit(events: Any) -> tuple[float, str]:
    most = max([e.flops for e in events], default=0)
    for unit, name in ((1e12, "TFLOPs"), (1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "KFLOPs")):
        if most >= unit:
            return unit, name
    return 1.0, "FLOPs"


def format_bytes(n: float) -> str:
    """3000 -> "2.93 KB" (units of 1024, as in PyTorch's tables)."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(n) >= unit:
            return f"{n / unit:.2f} {name}"
    return f"{n:.0f} B"


def amount(n: float) -> str:
    """1536 -> "1.54 K" (units of 1000)."""
    for unit in ("", " K", " M", " G"):
        if n < 1000:
            return f"{n:.3g}{unit}" if unit else f"{n:.0f}"
        n /= 1000
    return f"{n:.3g} T"
