"""torch._dynamo.explain: what one run of a function records, and where the program reads a value in the middle of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flambeau.trace import evaluate, tiers
from flambeau.trace.place import is_ours
from flambeau.trace.state import State

_READ = "observation"  # the reason for which a recording ends where a program reads a value (trace/evaluate.py)


@dataclass
class GraphCompileReason:
    """Why a recording ended: `user_stack` are the frames of the program, the innermost one last."""

    reason: str
    user_stack: list[traceback.FrameSummary]
    graph_break: bool = True


@dataclass
class ExplainOutput:
    """What torch._dynamo.explain has found. `graphs`: what ran, as the compiler has it. Guards and times of compilation are not looked at."""

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphCompileReason]
    op_count: int
    ops_per_graph: list[list[str]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}", f"Op Count: {self.op_count}", "Break Reasons:"]
        for i, found in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {i}:", f"    Reason: {found.reason}", "    User Stack:", *[f"      {frame}" for frame in found.user_stack]]
        if self.ops_per_graph is not None:
            lines.append("Ops per Graph:")
            for i, ops in enumerate(self.ops_per_graph, 1):
                lines += [f"  Ops {i}:", *[f"    {op}" for op in ops]]
        return "\n".join(lines) + "\n"


class _Watch:
    """Stands where a profiler stands: it runs the plans and notes what was recorded."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.recordings: list[list[str]] = [[]]
        self.breaks: list[GraphCompileReason] = []

    def compiled(self, plan: Any, begin: int, end: int) -> None:
        """A plan was made: its time is of no interest."""

    def run(self, plan: Any, state: State, inputs: Sequence[Any], parameters: Sequence[Any], reason: str) -> Any:
        """Run a plan; a recording that ended for another reason than a read goes on in the next one."""
        self.graphs.append(plan.graph)
        self.recordings[-1] += [str(getattr(call.edge[0], "name", call.edge[0])) for call in [*state.calls()][::-1]]
        if reason == _READ:
            frames = [frame for frame in traceback.extract_stack() if not is_ours(frame.filename)]
            self.breaks.append(GraphCompileReason("a value is read", frames))
            self.recordings.append([])
        return plan.run(inputs, parameters)


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """How many graphs a call of `f` records, and where values are read in between: `explain(f)(*args)` is an ExplainOutput.

    A read ends a recording, as a graph break does in PyTorch: nothing is lost by it but fusion over that place. `flambeau explain SCRIPT` prints the graphs and
    kernels. `explain(f, *args)` is the older form. RuntimeError while a profile is on.
    """

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        if evaluate.PROFILER is not None:
            raise RuntimeError("torch._dynamo.explain: a profile is on, which watches the same; end it first")
        evaluate.synchronize("preparation")
        mode, watch = tiers.MODE[0], _Watch()
        tiers.MODE[0] = tiers.WHOLE
        evaluate.set_profiler(watch)
        try:
            result = f(*args, **kwargs)  # held: what nobody holds is not computed
            evaluate.synchronize("preparation")
            del result
        finally:
            evaluate.set_profiler(None)
            tiers.MODE[0] = mode
        recorded = [ops for ops in watch.recordings if ops]
        count = len(recorded)
        breaks = watch.breaks[: max(count - 1, 0)]
        return ExplainOutput(watch.graphs, count, len(breaks), breaks, sum(map(len, recorded)), recorded)

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner
