"""Counters of all layers: one flat object, read with `flambeau.stats()`."""

from __future__ import annotations

from typing import Any


class Counters:
    """Numbers since the start of the process, or since `reset()`."""

    # Recording and planning.
    operations_recorded: int
    immediate_calls: int  # not among the recorded: run at once, without a trace (trace/immediate.py)
    slow_path_entries: int
    class_edges: int  # made from what was recorded at other sizes (trace/classes.py)
    made_ahead: int  # of those: before they were asked for (trace/ahead.py)
    kept_stages: int  # and their backward passes (autograd/kept_stages.py)
    kept_pieces: int  # pieces of one call that ran at the call (trace/kept.py)
    kept_by_class: int  # of both: at sizes that have no function of their own (trace/kept_classes.py)
    pieces: int  # ends of traces before calls that had no edge: their paths run in pieces (trace/tiers.py)
    paths_joined: int  # that were recorded as a whole, as such paths had come back
    paths_not_followed: int  # at sizes that are not those of a class
    traces_run: int
    trace_end_reasons: dict[str, int]
    changing_numbers: dict[str, str]  # float arguments that had a second value: given at run time since, or why not (ops/changing.py)
    plans_made: int
    plans_from_disk: int  # of those
    class_plans: int  # made from a plan for other sizes (trace/class_plans.py)
    plans_forgotten: int  # to make room for others (trace/forgetting.py)
    # Code: a function that is wanted was compiled now, read from the disk cache, or there already.
    kernels_compiled: int
    kernels_plain: int  # of the compiled: they began with plain code (runtime/twice.py)
    kernels_replaced: int  # of those: good code has taken its place
    kernels_from_disk: int
    kernels_in_process: int
    # Memory for tensors, in bytes asked for.
    bytes_from_pool: int
    bytes_from_system: int
    # Running.
    plan_runs: int
    host_calls: int
    parallel_phases: int  # phases of plans that were given to more than one thread

    __slots__ = tuple(__annotations__)

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start all counts again from zero."""
        for name in self.__slots__:
            setattr(self, name, {} if name in ("trace_end_reasons", "changing_numbers") else 0)

    def snapshot(self) -> dict[str, Any]:
        """A copy of all counts by name."""
        return {name: (dict(v) if isinstance(v := getattr(self, name), dict) else v) for name in self.__slots__}


counters = Counters()
snapshot = counters.snapshot
reset = counters.reset
