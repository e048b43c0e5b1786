"""torch.profiler. collector (the recorder's hook) -> instrumented (plans kernel by kernel) -> events -> table, chrome; machine
has the measured bandwidth and peak that floors come from."""

from __future__ import annotations

from flambeau.profiler.observer import DeviceType, ExecutionTraceObserver
from flambeau.profiler.profiler import (
    ProfilerAction,
    ProfilerActivity,
    kineto_available,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "DeviceType", "ExecutionTraceObserver", "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule",
    "supported_activities", "tensorboard_trace_handler",
]  # fmt: skip

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.profiler", globals())
