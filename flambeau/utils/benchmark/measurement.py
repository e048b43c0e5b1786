"""One measurement: times of one statement, and what can be said of them."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

# How PyTorch judges times: figures that are certain by a normal approximation at 90 % (1.645 standard errors), never a closer interval
# than 25 ns; quartiles farther apart than these shares of the median are worth a warning.
_MAX_FIGURES, _LEAST_INTERVAL = 4, 25e-9
_WARN, _GROSS = 0.1, 0.25


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was timed."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        if "\n" not in self.stmt:
            return self.stmt + (f": {self.sub_label}" if self.sub_label else "")
        return f"stmt:{f' ({self.sub_label})' if self.sub_label else ''}\n{textwrap.indent(self.stmt, '  ')}"

    def setup_str(self) -> str:
        """The setup as text; empty if there is none."""
        if self.setup == "pass" or not self.setup:
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """All of it, a part a line."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(part for part in parts if part)


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """`raw_times`: seconds of each block of `number_per_run` runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "task_spec":
            raise AttributeError(name)
        return getattr(self.task_spec, name)

    @property
    def times(self) -> list[float]:
        """Seconds of one run, for each block."""
        return [t / self.number_per_run for t in self.raw_times]

    def _sorted(self) -> list[float]:
        if not self.raw_times:
            raise RuntimeError("Measurement: there are no times")
        return sorted(self.times)

    def _percentile(self, q: float) -> float:
        times = self._sorted()
        place = q * (len(times) - 1)
        low = math.floor(place)
        high = min(low + 1, len(times) - 1)
        return times[low] + (times[high] - times[low]) * (place - low)

    @property
    def median(self) -> float:
        """The median time of one run, in seconds."""
        return self._percentile(0.5)

    @property
    def mean(self) -> float:
        """The mean time of one run, in seconds."""
        return sum(self._sorted()) / len(self.raw_times)

    @property
    def iqr(self) -> float:
        """The distance of the quartiles, in seconds."""
        return self._percentile(0.75) - self._percentile(0.25)

    @property
    def significant_figures(self) -> int:
        """How many figures of the median are certain: 1 to 4."""
        times = self._sorted()
        inner = times[len(times) // 4 : math.ceil(3 * len(times) / 4)]
        mean = sum(inner) / len(inner)
        deviation = math.sqrt(sum((t - mean) ** 2 for t in inner) / len(inner))
        interval = max(1.645 * deviation / math.sqrt(len(inner)), _LEAST_INTERVAL)
        figures = max(math.floor(-math.log10(interval / self.median)), 1)
        return min(figures, _MAX_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the times vary too much."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _WARN) -> bool:
        """Whether the quartiles lie within this share of the median."""
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """The task's."""
        return self.task_spec.title

    @property
    def env(self) -> str:
        """The task's environment."""
        return "Unspecified env" if self.task_spec.env is None else self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """The name of the row in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def _warnings(self) -> list[str]:
        if self.meets_confidence():
            return []
        reason = "This suggests significant environmental influence." if not self.meets_confidence(_GROSS) else "This could indicate system fluctuation."
        return [f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement.", f"           {reason}"]

    def __repr__(self) -> str:
        n = len(self.raw_times)
        unit, scale = select_unit(self.median)
        lines = [
            f"<torch.utils.benchmark.utils.common.Measurement object at {id(self):#x}>", self.task_spec.summarize(),
            f"  {'Median: ' if n > 1 else ''}{self.median / scale:.2f} {unit}",
        ]  # fmt: skip
        if n >= 4:
            low, high = self._percentile(0.25), self._percentile(0.75)
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})")
        threads = self.task_spec.num_threads
        lines.append(
            f"  {n} measurement{'s' if n > 1 else ''}, {self.number_per_run} runs {'per measurement,' if n > 1 else ','} {threads} "
            f"thread{'s' if threads > 1 else ''}"
        )
        return "\n".join([*lines, *self._warnings()])

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, with the times of all; times of blocks of different lengths are those of one run."""
        groups: dict[TaskSpec, list[Measurement]] = defaultdict(list)
        for m in measurements:
            groups[m.task_spec].append(m)

        def join(group: list[Measurement]) -> Measurement:
            number = group[0].number_per_run
            same = all(m.number_per_run == number for m in group)
            times = [t for m in group for t in (m.raw_times if same else m.times)]
            return Measurement(number if same else 1, times, group[0].task_spec)

        return [join(group) for group in groups.values()]


def select_unit(t: float) -> tuple[str, float]:
    """("us", 1e-6): the unit in which a time in seconds is read well, and its size in seconds."""
    return {-3: ("ns", 1e-9), -2: ("us", 1e-6), -1: ("ms", 1e-3)}.get(math.floor(math.log10(t) / 3), ("s", 1.0)) if t > 0 else ("ns", 1e-9)


def unit_to_english(u: str) -> str:
    """ "microsecond" of "us"."""
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x: float, n: int) -> float:
    """A number with n significant figures."""
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    magnitude = math.ceil(math.log10(abs(x)))
    scale = 10 ** (magnitude - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """The elements, each once, in order."""
    return list(dict.fromkeys(elements))


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A block with n threads."""
    from flambeau.queries import get_num_threads, set_num_threads

    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)
