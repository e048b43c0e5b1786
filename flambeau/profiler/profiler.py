"""torch.profiler: profile, schedule, record_function, handlers of finished traces."""

from __future__ import annotations

import functools
import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from enum import Enum
from types import TracebackType
from typing import Any

from flambeau.profiler.chrome import write_trace
from flambeau.profiler.collector import Collector
from flambeau.profiler.events import EventList, FunctionEvent, Metadata, build_tree
from flambeau.trace import evaluate
from flambeau.trace.once import warn_here


class ProfilerActivity(Enum):
    """What can be profiled. There are no events but the CPU's."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """What this build can profile."""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """True: traces are made, though not by Kineto."""
    return True


def _default_schedule_fn(_: int) -> ProfilerAction:
    """Every step is recorded."""
    return ProfilerAction.RECORD


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0) -> Callable[[int], ProfilerAction]:
    """A plan of steps: skip `skip_first`, then again and again (`repeat` times; 0: always) `wait` steps off, `warmup` steps
    whose events are thrown away, and `active` steps. `skip_first_wait`: the first round has no wait."""
    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), active={active} (need > 0), "
            f"repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warn_here("Profiler won't be using warmup, this can skew profiler results")

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait != 0:
            step += wait
        length = wait + warmup + active
        if repeat > 0 and step / length >= repeat:
            return ProfilerAction.NONE
        within = step % length
        if within < wait:
            return ProfilerAction.NONE
        if within < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if within < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False, use_python_export: bool = False) -> Callable[[Any], None]:
    """For `on_trace_ready`: writes each trace into a directory, under a name that TensorBoard's plug-in knows."""

    def write(prof: profile) -> None:
        try:
            os.makedirs(dir_name, exist_ok=True)
        except OSError as error:
            raise RuntimeError("Can't create directory: " + dir_name) from error
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json" + (".gz" if use_gzip else "")
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return write


class record_function:
    """A named range, as context manager or decorator. Without a profile it does nothing."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._open: list[tuple[Collector, FunctionEvent] | None] = []

    def __enter__(self) -> record_function:
        active = evaluate.PROFILER
        if active is None:
            self._open.append(None)
        else:
            event = active.enter(self.name)
            if self.args:
                event.note = self.args
            self._open.append((active, event))
        return self

    def __exit__(self, *_: Any) -> None:
        entered = self._open.pop() if self._open else None
        if entered is not None and evaluate.PROFILER is entered[0]:
            entered[0].leave(entered[1])

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return inside


class profile:
    """Profiles what runs inside. `schedule` and `step()` choose steps; `on_trace_ready(self)` is called after each round.

    `record_shapes`: shapes of what kernels read; `profile_memory`: bytes of results and of plans' memory; `with_stack`: the
    Python stack at ranges and where a plan was run; `with_flops`: a column of operations. A plan is run kernel by kernel while
    it is profiled. `activities`: the CPU only; others are accepted and have no events.
    """

    def __init__(
        self, *, activities: Iterable[Any] | None = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, acc_events: bool = False, use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None, post_processing_timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        self.activities = set(activities) if activities is not None else supported_activities()
        if use_cuda is not None:
            warn_here("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning)
        if not self.activities:
            raise AssertionError("No valid profiler activities found")
        self.schedule = schedule or _default_schedule_fn
        self.record_steps = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.acc_events = acc_events
        self.custom_trace_id_callback = custom_trace_id_callback
        self.step_num = 0
        self.current_action = self.schedule(0)
        self._collector: Collector | None = None
        self._warming = False
        self._events: EventList | None = None
        self._metadata: dict[str, Any] = {}
        self._step_range: record_function | None = None

    # -- life -------------------------------------------------------------------------------------------------------
    def __enter__(self) -> profile:
        try:
            self.start()
            return self
        except BaseException:  # no `__exit__` will come
            collector, self._collector = self._collector, None
            if collector is not None:
                collector.abandon()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Begin, in the state that the schedule gives to step 0."""
        self._go(ProfilerAction.NONE, self.current_action)
        self._begin_step()

    def stop(self) -> None:
        """End; a round that is recording is finished."""
        self._end_step()
        self._go(self.current_action, None)

    def step(self) -> None:
        """The next step begins."""
        self._end_step()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        self._go(before, self.current_action)
        self._begin_step()

    def _begin_step(self) -> None:
        if self.record_steps and self._collector is not None:
            self._step_range = record_function(f"ProfilerStep#{self.step_num}")
            self._step_range.__enter__()

    def _end_step(self) -> None:
        if self._step_range is not None:
            self._step_range.__exit__(None, None, None)
            self._step_range = None

    def _go(self, before: ProfilerAction, after: ProfilerAction | None) -> None:
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        finished = before in recording and (before is ProfilerAction.RECORD_AND_SAVE or after not in recording)
        if self._collector is not None:
            if finished:
                self._stop_trace(keep=True)
                if before is ProfilerAction.RECORD and after is not None:
                    warn_here(f"Incorrect schedule: RECORD followed by {after.name}")
                if self.on_trace_ready is not None:
                    self.on_trace_ready(self)
            elif after in (None, ProfilerAction.NONE):
                self._stop_trace(keep=False)
            elif before is ProfilerAction.WARMUP and after in recording:
                self._collector.restart()
        if after not in (None, ProfilerAction.NONE) and self._collector is None:
            self._collector = Collector(self.record_shapes, self.profile_memory, self.with_stack)
            self._collector.start()

    def _stop_trace(self, keep: bool) -> None:
        collector = self._collector
        assert collector is not None
        self._collector = None
        collector.stop()
        if keep:
            build_tree(collector.events)
            known = list(self._events) if self.acc_events and self._events is not None else []
            meta = Metadata(collector.begin, collector.end, self.profile_memory, self.record_shapes, self.with_flops)
            self._events = EventList([*known, *collector.events], meta)

    # -- results ----------------------------------------------------------------------------------------------------
    def events(self) -> EventList:
        """The events of the last finished round. AssertionError if there is none."""
        if self._events is None:
            raise AssertionError("Profiler must be initialized before accessing events: no round has been recorded and finished")
        return self._events

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False) -> EventList:
        """The events by name."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n, group_by_overload_name)

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Write the trace for chrome://tracing or ui.perfetto.dev (compressed, if the name ends with .gz)."""
        facts = {"record_shapes": int(self.record_shapes), "profile_memory": int(self.profile_memory), "with_stack": int(self.with_stack)}
        if self.custom_trace_id_callback is not None:
            facts["trace_id"] = self.custom_trace_id_callback()  # type: ignore[assignment]
        write_trace(path, self.events(), {**facts, **self._metadata})

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write the stacks with their times, for flame graphs (needs with_stack)."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """A string for the exported trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """A JSON value for the exported trace."""
        self._metadata[key] = json.loads(value)

    preset_metadata_json = add_metadata_json
