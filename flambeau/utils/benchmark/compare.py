"""Tables of measurements: a row for each sub_label, a column for each description, a block for each number of threads."""

from __future__ import annotations

import enum
import math

from flambeau.utils.benchmark.measurement import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

BEST, GOOD, BAD, VERY_BAD = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m"
BOLD, TERMINATE = "\033[1m", "\033[0m\033[0m"


class Colorize(enum.Enum):
    """What is best: in a column or in a row."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class _Column:
    """How the numbers of a column are written."""

    def __init__(self, results: list[Measurement | None], scale: float, trim: bool, warn: bool) -> None:
        self.scale, self.trim, self.warn = scale, trim, warn
        there = [r for r in results if r is not None]
        digits = [math.ceil(math.log10(r.median / scale)) for r in there]
        self.decimals = min([max(r.significant_figures - d, 0) for r, d in zip(there, digits, strict=True)], default=0)
        self.length = max([*digits, 1]) + self.decimals + bool(self.decimals)

    def text(self, r: Measurement | None) -> str:
        if r is None:
            return ""
        value = r.median / self.scale
        if self.trim:
            value = trim_sigfig(value, r.significant_figures)
        text = f"{value:>{self.length}.{self.decimals}f}"
        return f"{text} (! {r.iqr / r.median * 100:.0f}%)" if self.warn and r.has_warnings else text


def _colour(value: float, best: float) -> str | None:
    """The colour of a time beside the best: up to 1 % the best's, and so on (PyTorch's limits)."""
    if value <= best * 1.01 + 1e-7:
        return BEST + BOLD
    if value <= best * 1.1:
        return GOOD + BOLD
    if value >= best * 5:
        return VERY_BAD + BOLD
    return BAD if value >= best * 2 else None


def _row_of(r: Measurement) -> tuple[int, str, str]:
    """(threads, environment, name) of a measurement's row."""
    return r.task_spec.num_threads, r.task_spec.env or "", r.as_row_name


class Compare:
    """Measurements as tables, one for each label: `print(compare)`."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._warn = False
        self._colorize = Colorize.NONE

    def extend_results(self, results: list[Measurement]) -> None:
        """Add measurements; ValueError for anything else."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Write figures that are certain only."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Mark the best times of each row, or of each column."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark times that vary too much."""
        self._warn = True

    def print(self) -> None:
        """Print the tables."""
        print(str(self))

    def __str__(self) -> str:
        merged = Measurement.merge(self._results)
        labels = ordered_unique(r.task_spec.label for r in merged)
        parts = [self._table([r for r in merged if r.task_spec.label == label]) for label in labels]
        return "\n".join(parts)

    def _table(self, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(r.median for r in results))
        columns = ordered_unique(r.task_spec.description for r in results)
        rows = ordered_unique(map(_row_of, results))
        rows.sort(key=lambda row: row[0])

        def find(row: tuple[int, str, str], column: str | None) -> Measurement | None:
            return next((r for r in results if _row_of(r) == row and r.task_spec.description == column), None)

        grid = [[find(row, column) for column in columns] for row in rows]
        formats = [_Column([line[i] for line in grid], scale, self._trim, self._warn) for i in range(len(columns))]
        cells = [[f.text(r) for f, r in zip(formats, line, strict=True)] for line in grid]
        heads = [c or "" for c in columns]
        widths = [max(len(h), *[len(line[i]) for line in cells]) for i, h in enumerate(heads)]
        names = [f"      {f'({env})  ' if env else ''}{name}" for _, env, name in rows]
        left = max(len(n) for n in names)
        header = "  |  ".join([" " * left, *[h.center(w) for h, w in zip(heads, widths, strict=True)]]).rstrip()
        rule = "  |  "
        bodies = [rule.join([n.ljust(left), *[c.rjust(w) for c, w in zip(line, widths, strict=True)]]) for n, line in zip(names, cells, strict=True)]
        width = max(map(len, (header, *bodies)))
        statements = ordered_unique(r.task_spec.stmt for r in results)
        label = results[0].task_spec.label or (statements[0] if len(statements) == 1 else "")
        lines = [f"[{(' ' + label + ' ').center(width - 2, '-')}]", header]
        before = None
        for row, name, line, measured in zip(rows, names, cells, grid, strict=True):
            if row[0] != before:
                before = row[0]
                lines.append(f"{before} threads: ".ljust(width, "-"))
            shown = []
            for i, (cell, r) in enumerate(zip(line, measured, strict=True)):
                text = cell.rjust(widths[i])
                if r is not None and self._colorize is not Colorize.NONE:
                    group = measured if self._colorize is Colorize.ROWWISE else [g[i] for g in grid]
                    colour = _colour(r.median, min(g.median for g in group if g is not None))
                    text = text if colour is None else f"{colour}{text}{TERMINATE}"
                shown.append(text)
            lines.append("  |  ".join([name.ljust(left), *shown]).rstrip())
        lines += ["", f"Times are in {unit_to_english(unit)}s ({unit})."]
        if self._warn and any(r.has_warnings for r in results):
            lines.append("(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join(lines) + "\n"
