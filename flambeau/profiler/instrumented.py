"""A plan run kernel by kernel, each with its time: the same kernels in the same order with the same threads.

What a plan runs as one native call (tasks of all phases) is here one call for each kernel of a phase, so that Python can
read the clock between them. This costs about 2 microseconds a kernel, and kernels of one phase no longer overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from flambeau.compiler.kernels.host_step import HostCall
from flambeau.compiler.plan import Assembly, Plan
from flambeau.compiler.schedule import Step
from flambeau.runtime.buffers import Buffer, allocate, arena


class Stage:
    """The tasks of one kernel in one phase, or a host call."""

    __slots__ = ("execute", "fail", "host", "phase", "steps")

    def __init__(self, assembly: Assembly, phase: int, indices: list[int]) -> None:
        steps = [assembly.plan.steps[i] for i in indices]
        self.phase = phase
        self.steps: list[Step] = steps
        self.host = isinstance(steps[0], HostCall)
        self.execute: Any
        self.fail: Any = None
        if isinstance(steps[0], HostCall):
            self.execute = assembly.host_part(steps[0])
        else:
            self.execute = assembly.program(indices).run
            self.fail = assembly.fail_part(indices)


class TimedPlan:
    """`run` is a plan's `run`, but also gives the nanoseconds (of perf_counter_ns) at which each stage began and ended."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.assembly = assembly = Assembly(plan)
        groups: dict[tuple[int, str], list[int]] = {}
        for index, (step, phase) in enumerate(zip(plan.steps, plan.phases, strict=True)):
            groups.setdefault((phase, f"{index}" if isinstance(step, HostCall) else step.key), []).append(index)
        self.stages = [Stage(assembly, phase, indices) for (phase, _), indices in groups.items()]
        self._sizes = [plan.graph.values[plan.graph.outputs[j]].nbytes for j in assembly.fresh]

    @property
    def fresh_bytes(self) -> int:
        """Bytes of the buffers that each run makes for its results."""
        return sum(self._sizes)

    def run(self, inputs: Sequence[Buffer], parameters: Sequence[Any]) -> tuple[list[Buffer], list[tuple[int, int]]]:
        """The outputs' buffers, and (begin, end) of each stage."""
        plan, assembly = self.plan, self.assembly
        fresh = [allocate(n) for n in self._sizes]
        temporary = [arena(plan.arena_bytes)] if assembly.pooled else []
        io = (*[b.address for b in (*temporary, *inputs, *fresh)], *parameters)
        times = []
        for stage in self.stages:
            begin = perf_counter_ns()
            if stage.host:
                stage.execute(io, inputs)
            else:
                code = stage.execute(io)
                if code:
                    stage.fail(code)
            times.append((begin, perf_counter_ns()))
        made = iter(fresh)
        returned = plan.schedule.returned
        return [inputs[returned[j]] if j in returned else next(made) for j in range(len(plan.graph.outputs))], times
