"""Counters of all layers: one flat object, read with `flambeau.stats()`."""

from __future__ import annotations

from typing import Any


class Counters:
    """Numbers since the start of the process, or since `reset()`."""

    __slots__ = (
        "bytes_from_pool", "bytes_from_system", "host_calls", "kernels_compiled", "kernels_from_disk", "kernels_in_process",
        "operations_recorded", "parallel_phases", "plan_runs", "plans_made", "slow_path_entries", "trace_end_reasons",
        "traces_run",
    )  # fmt: skip

    trace_end_reasons: dict[str, int]

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start all counts again from zero."""
        for name in self.__slots__:
            setattr(self, name, {} if name == "trace_end_reasons" else 0)

    def snapshot(self) -> dict[str, Any]:
        """A copy of all counts by name."""
        return {name: (dict(v) if isinstance(v := getattr(self, name), dict) else v) for name in self.__slots__}


counters = Counters()
snapshot = counters.snapshot
reset = counters.reset
