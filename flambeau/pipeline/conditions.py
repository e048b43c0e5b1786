"""Metrics as JSON, and conditions on them, such as `accuracy >= 0.97`."""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from flambeau.names import meant

_COMPARISONS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_FORM: Final = re.compile(r"\s*([\w.\-/]+)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")


@dataclass(frozen=True)
class Condition:
    """A metric's name, a comparison, and the number that it is compared with."""

    metric: str
    comparison: str
    bound: float

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.bound:g}"

    def holds(self, metrics: Mapping[str, float]) -> bool:
        """Whether the metrics fulfil it; NaN fulfils nothing. KeyError, with what there is, for a metric that is not there."""
        if self.metric not in metrics:
            there = ", ".join(metrics) or "none"
            raise KeyError(f"the condition {self} needs the metric {self.metric}; there are: {there}.{meant(self.metric, metrics)}")
        value = metrics[self.metric]
        return not math.isnan(value) and _COMPARISONS[self.comparison](value, self.bound)


def parse(text: str) -> Condition:
    """A condition from its text. ValueError if it has another form than NAME COMPARISON NUMBER."""
    found = _FORM.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        bound = float(found[3])
        if math.isnan(bound):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"the condition {text!r} must have the form NAME COMPARISON NUMBER, as in 'accuracy >= 0.97'; comparisons: {' '.join(_COMPARISONS)}"
        ) from None
    return Condition(found[1], found[2], bound)


def flatten(table: Any, prefix: str = "") -> dict[str, float]:
    """The numbers of a table of metrics; those of tables in it have names like `test.accuracy`. TypeError for what is no number."""
    if not isinstance(table, Mapping):
        raise TypeError(f"metrics must be a table of numbers by name, got {type(table).__name__}")
    metrics: dict[str, float] = {}
    for name, value in table.items():
        if isinstance(value, Mapping):
            metrics |= flatten(value, f"{prefix}{name}.")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"the metric {prefix}{name} must be a number, got {value!r}; take a tensor's by item()")
        else:
            metrics[f"{prefix}{name}"] = float(value)
    return metrics


def read_metrics(path: Path) -> dict[str, float]:
    """The metrics in a JSON file. ValueError that names the file."""
    try:
        return flatten(json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def failed(conditions: list[Condition], metrics: Mapping[str, float]) -> list[str]:
    """What of the conditions does not hold, each with the metric's value."""
    return [f"{c} (it is {metrics[c.metric]:g})" for c in conditions if not c.holds(metrics)]
