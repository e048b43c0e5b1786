"""torch.autograd.profiler: the older interface of the profiler."""

from __future__ import annotations

from typing import Any

from flambeau.profiler.events import EventList, FunctionEvent, FunctionEventAvg
from flambeau.profiler.profiler import kineto_available, record_function
from flambeau.profiler.profiler import profile as _profile


class profile:
    """A context manager that profiles what runs inside; afterwards it is a list of events with tables and traces.

    `use_cuda`, `use_device`, `use_kineto`, `use_cpu` and `experimental_config` are accepted. `enabled=False`: nothing is done.
    """

    def __init__(
        self, enabled: bool = True, *, use_cuda: bool = False, use_device: str | None = None, record_shapes: bool = False,
        with_flops: bool = False, profile_memory: bool = False, with_stack: bool = False, with_modules: bool = False,
        use_kineto: bool = False, use_cpu: bool = True, experimental_config: Any = None, acc_events: bool = False,
        custom_trace_id_callback: Any = None, post_processing_timeout_s: float | None = None, activity_filters: Any = None,
    ) -> None:  # fmt: skip
        self.enabled = enabled
        self.entered = False
        self._inner = _profile(
            record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops, acc_events=acc_events,
            custom_trace_id_callback=custom_trace_id_callback,
        )  # fmt: skip

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._inner.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.enabled:
            self._inner.stop()

    @property
    def function_events(self) -> EventList:
        """The events. RuntimeError while there are none."""
        if self._inner._events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._inner._events

    def table(self, sort_by: str | None = None, **options: Any) -> str:
        """See EventList.table."""
        return self.function_events.table(sort_by, **options)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """See EventList.key_averages."""
        return self.function_events.key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def total_average(self) -> FunctionEventAvg:
        """See EventList.total_average."""
        return self.function_events.total_average()

    def export_chrome_trace(self, path: str) -> None:
        """Write the trace for chrome://tracing or ui.perfetto.dev."""
        self.function_events  # noqa: B018 - raises if there are none
        self._inner.export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks with their times."""
        self.function_events  # noqa: B018
        self._inner.export_stacks(path, metric)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return self.function_events.self_cpu_time_total

    def __str__(self) -> str:
        return "<unfinished torch.autograd.profiler.profile>" if self._inner._events is None else str(self.function_events)

    __repr__ = __str__


__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "kineto_available", "profile", "record_function"]


class emit_nvtx:
    """Marks for NVIDIA's profilers: RuntimeError where it is entered, unless `enabled=False`: there is no CUDA."""

    _what = "NVTX"

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled

    def __enter__(self) -> Any:
        if self.enabled:
            raise RuntimeError(f"torch.autograd.profiler.{type(self).__name__}: there is no {self._what} here; use torch.profiler.profile")
        return None

    def __exit__(self, *_: Any) -> None:
        return None


class emit_itt(emit_nvtx):
    """Marks for Intel's profilers: RuntimeError where it is entered, unless `enabled=False`."""

    _what = "ITT"


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.autograd.profiler", globals())
