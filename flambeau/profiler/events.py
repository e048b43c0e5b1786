"""Events of a profile, lists of them, and their averages, with the attributes that PyTorch's have.

Four kinds: "range" (record_function, ProfilerStep#), "plan" (one run of recorded work), "kernel" (a compiled kernel, or a call
of NumPy, inside a plan), "compile". Times are microseconds on the clock of time.perf_counter. An event's own time is what no
event inside it takes; its total is its own, and the totals of what belongs to it: the kernels that a range *recorded* belong
to the range, also where they ran later. So the own times of all events add up to the time that was profiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.runtime import whole_files

if TYPE_CHECKING:
    from collections import Counter


class Interval:
    """Begin and end in microseconds."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """The time between."""
        return self.end - self.start


def format_time(us: float) -> str:
    """1234.5 -> "1.234ms", as PyTorch prints it (also what is below a microsecond is microseconds)."""
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


class _Times:
    """What single events and averages share. Without a CUDA device all device times are 0."""

    count: int = 1
    cpu_time_total: Any
    self_cpu_time_total: Any
    device_time_total = self_device_time_total = cuda_time_total = self_cuda_time_total = 0.0
    device_time = cuda_time = 0.0
    device_memory_usage = self_device_memory_usage = cuda_memory_usage = self_cuda_memory_usage = 0

    @property
    def cpu_time(self) -> float:
        """The mean of the total time of one call."""
        return self.cpu_time_total / self.count if self.count else 0.0

    cpu_time_str = property(lambda self: format_time(self.cpu_time))
    cpu_time_total_str = property(lambda self: format_time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: format_time(self.self_cpu_time_total))
    device_time_str = cuda_time_str = property(lambda self: format_time(0.0))
    device_time_total_str = cuda_time_total_str = property(lambda self: format_time(0.0))


class FunctionEvent(_Times):
    """One event. `sources`: the public functions that a kernel computes (parts of); `floor_us`: the least time that its bytes
    and operations can take on this machine; `share`: the floor over the time taken."""

    def __init__(self, name: str, kind: str, begin: int, end: int, thread: int) -> None:
        self.id = 0
        self.trace_name = name
        self.name = "ProfilerStep*" if name.startswith("ProfilerStep#") else name  # steps are one row of a table
        self.kind = kind
        self.thread = thread
        self.time_range = Interval(begin / 1e3, end / 1e3)
        self.stack: list[str] = []
        self.input_shapes: list[list[int]] = []
        self.input_dtypes: list[str] = []
        self.concrete_inputs: list[Any] = []
        self.kwinputs: dict[str, Any] = {}
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.owner: FunctionEvent | None = None  # of a kernel: the range that recorded it
        self.plan: FunctionEvent | None = None  # of a kernel
        self.recorded: Counter[str] | None = None  # of a plan: the calls that it computes
        self.note = ""
        self.sources: tuple[str, ...] = ()
        self.key_text = ""
        self.memory = 0
        self.bytes = 0
        self.flops = 0
        self.tasks = 0
        self.phase = 0
        self.work: tuple[Any, Any] | None = None  # of a kernel: its graph and first step
        self.is_async = self.is_remote = self.is_legacy = False
        self.node_id = -1
        self.sequence_nr = -1
        self.scope = 0
        self.device_type = "DeviceType.CPU"
        self.use_device = None
        self._self_us: float | None = None

    def end(self, at: int) -> None:
        """Note the end, in nanoseconds."""
        self.time_range.end = at / 1e3

    key = property(lambda self: self.name)

    @property
    def is_user_annotation(self) -> bool:
        """Whether it is a range."""
        return self.kind == "range"

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds that no event inside takes."""
        return self.time_range.elapsed_us() if self._self_us is None else self._self_us

    @property
    def cpu_time_total(self) -> float:  # type: ignore[override]
        """Its own microseconds, and those of what belongs to it."""
        return self.self_cpu_time_total + sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def cpu_memory_usage(self) -> int:  # type: ignore[override]
        """Bytes of fresh results (with profile_memory)."""
        return self.memory if self.kind in ("kernel", "plan") else sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        """The same, without what is inside."""
        return self.memory if self.kind == "kernel" else 0

    @property
    def floor_us(self) -> float:
        """Of a kernel: the least time here, in microseconds; measures the machine when it is first asked for."""
        if self.work is None:
            return 0.0
        from flambeau.profiler import machine

        graph, step = self.work
        return 1e6 * machine.floor_seconds(self.bytes, self.flops, machine.dtype_of(graph, step))

    @property
    def share(self) -> float:
        """Of a kernel: floor over time. Above 1 where the data was in a cache."""
        return self.floor_us / self.cpu_time_total if self.work is not None and self.cpu_time_total else 0.0

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} kind={self.kind} cpu_time={self.cpu_time_str} cpu_start_us={self.time_range.start} "
            f"cpu_end_us={self.time_range.end} cpu_children={[c.id for c in self.cpu_children]} thread={self.thread}>"
        )


class FunctionEventAvg(_Times):
    """All events of one name (and shape, and stack, if they were grouped by them) together."""

    def __init__(self) -> None:
        self.key = ""
        self.kind = ""
        self.count = 0
        self.cpu_time_total = 0.0
        self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = 0
        self.self_cpu_memory_usage = 0
        self.bytes = 0
        self.flops = 0
        self.floor_us = 0.0
        self.input_shapes: Any = None
        self.stack: list[str] = []
        self.sources: tuple[str, ...] = ()
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.is_async = self.is_remote = self.is_legacy = False
        self.is_user_annotation = False
        self.device_type = "DeviceType.CPU"
        self.use_device = None
        self.node_id = 0
        self.scope = 0

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Take one more event, or average, in."""
        if not self.key:
            self.key, self.kind = other.key, other.kind
            self.input_shapes, self.stack, self.is_user_annotation = other.input_shapes, other.stack, other.is_user_annotation
            self.cpu_parent = other.cpu_parent
        self.count += other.count
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.bytes += other.bytes
        self.flops += other.flops
        self.floor_us += other.floor_us
        self.sources = tuple(dict.fromkeys((*self.sources, *other.sources)))
        return self

    __iadd__ = add

    @property
    def share(self) -> float:
        """Floor over time, of kernels."""
        return self.floor_us / self.cpu_time_total if self.floor_us and self.cpu_time_total else 0.0

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} cpu_time={self.cpu_time_str} "
            f" input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class Metadata(NamedTuple):
    """What of a profile its events do not say."""

    begin: int = 0
    end: int = 0
    memory: bool = False
    shapes: bool = False
    flops: bool = False


class EventList(list[Any]):
    """Events (or averages), with PyTorch's questions to them."""

    def __init__(self, events: Iterable[Any] = (), metadata: Metadata = Metadata()) -> None:  # noqa: B008 - immutable
        super().__init__(events)
        self.metadata = metadata

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events."""
        return sum([e.self_cpu_time_total for e in self])

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
        max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False, time_unit: str | None = None,
    ) -> str:  # fmt: skip
        """The events as a text table. `sort_by`: a column, as "cpu_time_total", "self_cpu_time_total", "count", "bytes", "flops",
        "floor_us" or "share", largest first."""
        from flambeau.profiler.table import make_table

        return make_table(
            self, sort_by, row_limit, max_src_column_width, max_name_column_width, max_shapes_column_width, header, top_level_events_only,
            time_unit,
        )  # fmt: skip

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """One average for each name (and input shapes, and innermost stack frames, where wanted)."""
        found: dict[Any, FunctionEventAvg] = {}
        for e in self:
            key: list[Any] = [e.key, e.kind]
            if group_by_input_shapes:
                key.append(str(e.input_shapes))
            key += e.stack[:group_by_stack_n]
            found.setdefault(tuple(key), FunctionEventAvg()).add(e)
        for average in found.values():
            average.stack = average.stack[:group_by_stack_n]
            if not group_by_input_shapes:
                average.input_shapes = ""
        return EventList(found.values(), self.metadata)

    def total_average(self) -> FunctionEventAvg:
        """All events as one."""
        total = FunctionEventAvg()
        for e in self:
            total.add(e)
            total.key = ""
        total.key = "Total"
        return total

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing or ui.perfetto.dev."""
        from flambeau.profiler.chrome import write_trace

        write_trace(path, self, {})

    def supported_export_stacks_metrics(self) -> list[str]:
        """What export_stacks can weigh by."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_xpu_time_total", "self_privateuse1_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write `outer;...;inner microseconds` lines, for flame graphs (profiles with_stack)."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        weights: dict[str, int] = {}
        for e in self:
            if e.stack and int(getattr(e, metric, 0)) > 0:
                line = ";".join([frame.translate(_SEPARATORS) for frame in reversed(e.stack)])
                weights[line] = weights.get(line, 0) + int(getattr(e, metric))
        with whole_files.replacing(path) as file:
            file.writelines([f"{line} {weight}\n".encode() for line, weight in weights.items()])


_SEPARATORS = str.maketrans(" ;\t\n", "____")


def build_tree(events: list[FunctionEvent]) -> None:
    """Find own times by what lies inside in time, and children by what belongs together."""
    by_thread: dict[int, list[FunctionEvent]] = {}
    for e in events:
        by_thread.setdefault(e.thread, []).append(e)
    for own in by_thread.values():
        stack: list[FunctionEvent] = []
        for e in sorted(own, key=lambda e: (e.time_range.start, -e.time_range.end, e.id)):
            while stack and stack[-1].time_range.end <= e.time_range.start:
                stack.pop()
            around = stack[-1] if stack else None
            e._self_us = e.time_range.elapsed_us()
            if around is not None:
                around._self_us = (around._self_us or 0.0) - e._self_us
            parent = e.owner or around
            e.cpu_parent = parent
            if parent is not None:
                parent.cpu_children.append(e)
            stack.append(e)
    for e in events:
        e._self_us = max(e._self_us or 0.0, 0.0)


def leaves(events: Iterable[FunctionEvent], kind: str) -> Iterator[FunctionEvent]:
    """The events of one kind."""
    return (e for e in events if e.kind == kind)
