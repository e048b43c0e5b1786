"""Metrics: a name, a number and a time, in groups, each with a handler. Nothing is written until `configure` says whereto."""

from __future__ import annotations

import abc
import functools
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, overload

from flambeau.trace.once import warn_here

F = TypeVar("F", bound=Callable[..., Any])


class MetricData(NamedTuple):
    """One number."""

    timestamp: int
    group_name: str
    name: str
    value: int


class MetricsConfig:
    """Parameters of a handler."""

    def __init__(self, params: dict[str, str] | None = None) -> None:
        self.params = {} if params is None else params


class MetricHandler(abc.ABC):
    """What becomes of metrics."""

    @abc.abstractmethod
    def emit(self, metric_data: MetricData) -> None:
        """Take one."""


class ConsoleMetricHandler(MetricHandler):
    """Prints them."""

    def emit(self, metric_data: MetricData) -> None:
        print(f"[{metric_data.timestamp}][{metric_data.group_name}]: {metric_data.name}={metric_data.value}")


class NullMetricHandler(MetricHandler):
    """Drops them."""

    def emit(self, metric_data: MetricData) -> None:
        pass


class MetricStream:
    """The metrics of a group."""

    def __init__(self, group_name: str, handler: MetricHandler) -> None:
        self.group_name, self.handler = group_name, handler

    def add_value(self, metric_name: str, metric_value: int) -> None:
        """Hand a number on."""
        self.handler.emit(MetricData(int(time.time()), self.group_name, metric_name, metric_value))


_handlers: dict[str, MetricHandler] = {}
_default: list[MetricHandler] = [NullMetricHandler()]


def configure(handler: MetricHandler, group: str | None = None) -> None:
    """The handler of a group, or of all groups that have none of their own."""
    if group is None:
        _default[0] = handler
    else:
        _handlers[group] = handler


def getStream(group: str) -> MetricStream:
    """The stream of a group."""
    return MetricStream(group, _handlers.get(group, _default[0]))


def _get_metric_name(fn: Callable[..., Any]) -> str:
    name = fn.__qualname__
    if "." in name:  # a method: its class and its name
        return name
    return f"{fn.__module__.rpartition('.')[2]}.{name}" if fn.__module__ else name


@overload
def prof(fn: F, group: str = ...) -> F: ...
@overload
def prof(fn: None = None, group: str = ...) -> Callable[[F], F]: ...
def prof(fn: Any = None, group: str = "torchelastic") -> Any:
    """A function whose calls are counted (`NAME.success`, `NAME.failure`) and timed (`NAME.duration.ms`)."""

    def wrap(function: F) -> F:
        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            name, begin = _get_metric_name(function), time.time()
            how: Literal["success", "failure"] = "failure"
            try:
                found = function(*args, **kwargs)
                how = "success"
                return found
            finally:
                put_metric(f"{name}.{how}", 1, group)
                put_metric(f"{name}.duration.ms", get_elapsed_time_ms(begin), group)

        return measured  # type: ignore[return-value]

    return wrap if fn is None else wrap(fn)


def profile(group: str | None = None) -> Callable[[F], F]:
    """The older form of `prof`."""
    warn_here("Deprecated, use `@prof` instead", FutureWarning)
    return prof(group=group or "torchelastic")


def put_metric(metric_name: str, metric_value: int, metric_group: str = "torchelastic") -> None:
    """Write a number down."""
    getStream(metric_group).add_value(metric_name, metric_value)


def publish_metric(metric_group: str, metric_name: str, metric_value: int) -> None:
    """The older form of `put_metric`."""
    warn_here("Deprecated, use `put_metric(metric_group)(metric_name, metric_value)` instead", FutureWarning)
    put_metric(metric_name, metric_value, metric_group)


def get_elapsed_time_ms(start_time_in_seconds: float) -> int:
    """Milliseconds since then."""
    return int((time.time() - start_time_in_seconds) * 1000)
