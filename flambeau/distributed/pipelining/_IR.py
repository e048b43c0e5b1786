"""torch.distributed.pipelining._IR: a model recorded as a graph and cut into stages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from flambeau import fx
from flambeau.distributed.pipelining.stage import PipelineStage
from flambeau.nn.modules.module import Module
from flambeau.trace.once import warn_here


class SplitPoint(Enum):
    """Where a model is cut: before or after a submodule."""

    BEGINNING = 1
    END = 2


def _cut() -> None:
    """The mark of a cut in a graph."""


_tracers: list[_Tracer] = []


def pipe_split() -> None:
    """In a model's forward: a new stage begins here. Nothing happens outside of `pipeline`."""
    if _tracers:
        _tracers[-1].create_node("call_function", _cut, (), {})


class _Tracer(fx.Tracer):
    """Records cuts before and after submodules that are marked."""

    def __init__(self, points: Mapping[str, SplitPoint]) -> None:
        super().__init__()
        self.points = points

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        point = self.points.get(self.path_of_module(m))
        if point is SplitPoint.BEGINNING:
            pipe_split()
        result = super().call_module(m, forward, args, kwargs)
        if point is SplitPoint.END:
            pipe_split()
        return result

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        inside = any(path.startswith(f"{module_qualified_name}.") for path in self.points)
        return not inside and super().is_leaf_module(m, module_qualified_name)


def annotate_split_points(mod: Module, spec: dict[str, SplitPoint]) -> None:
    """Mark submodules, by name, before or after which a stage begins. AttributeError for a name that there is not."""
    for name, point in spec.items():
        try:
            mod.get_submodule(name)
        except AttributeError:
            raise AttributeError(f"Specified target {name} referenced nonexistent module: {type(mod).__name__} has no submodule of that name") from None
        if not isinstance(point, SplitPoint):
            raise ValueError(f"Unknown split point type: {point}")
    mod._pipe_split_points = {**getattr(mod, "_pipe_split_points", {}), **spec}  # type: ignore[assignment]


class PipeInfo(NamedTuple):
    """What a stage knows of the model."""

    graph: fx.Graph
    num_stages: int
    has_loss_and_backward: bool


class Pipe(Module):
    """A model in stages: called as it is, it runs all of them here. Each stage has its submodules under their names in the model.

    A stage hands to the next what later stages need.
    """

    def __init__(self, stages: list[fx.GraphModule], graph: fx.Graph) -> None:
        super().__init__()
        self.num_stages = len(stages)
        self._graph = graph
        for i, stage in enumerate(stages):
            self.add_module(f"submod_{i}", stage)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """All stages, one after the other; the results as a tuple, as between stages."""
        result = self.get_stage_module(0)(*args, **kwargs)
        for i in range(1, self.num_stages):
            result = self.get_stage_module(i)(*(result if isinstance(result, tuple) else (result,)))
        return result if isinstance(result, tuple) else (result,)

    def get_stage_module(self, stage_idx: int) -> Module:
        """The module of a stage. ValueError for a number that there is not."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}: there are {self.num_stages} stages")
        return self.get_submodule(f"submod_{stage_idx}")

    def info(self) -> PipeInfo:
        """What build_stage needs of it."""
        return PipeInfo(self._graph, self.num_stages, False)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """A stage for this rank."""
        return PipelineStage(self.get_stage_module(stage_index), stage_index, self.num_stages, device, group=group)

    def print_readable(self) -> None:
        """Print each stage's code."""
        for name, stage in self.named_children():
            print(f"{name}:\n{getattr(stage, 'code', '')}")

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {getattr(stage, 'graph', '')}" for name, stage in self.named_children())


def pipeline(
    module: Module, mb_args: tuple[Any, ...], mb_kwargs: dict[str, Any] | None = None, split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
) -> Pipe:  # fmt: skip
    """Record a model as a graph and cut it: at `split_spec` (name of a submodule: before or after it), where its forward calls pipe_split(), or where
    `split_policy`, a function of the graph's module, has put such calls.

    `mb_args`, `mb_kwargs`: the arguments for one microbatch; parameters that they leave out have their defaults for good. A warning where two stages
    have the same parameter.
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if split_spec:
        annotate_split_points(module, split_spec)
    given = inspect.signature(module.forward).bind(*mb_args, **(mb_kwargs or {})).arguments
    fixed = {
        name: p.default for name, p in inspect.signature(module.forward).parameters.items() if name not in given and p.default is not inspect.Parameter.empty
    }
    tracer = _Tracer(getattr(module, "_pipe_split_points", {}))
    _tracers.append(tracer)
    try:
        graph = tracer.trace(module, fixed or None)
    finally:
        _tracers.pop()
    if split_policy is not None:
        graph = split_policy(fx.GraphModule(module, graph)).graph
    pipe = Pipe(_stages(module, graph), graph)
    _check_shared(pipe)
    return pipe


def _stages(module: Module, graph: fx.Graph) -> list[fx.GraphModule]:
    """The parts of a graph between cuts, as modules. What a later part needs goes through all parts between."""
    stage_of: dict[fx.Node, int] = {}
    number = 0
    for node in graph.nodes:
        if node.op == "call_function" and node.target in (_cut, pipe_split):
            number += 1
        elif node.op != "get_attr":
            stage_of[node] = 0 if node.op == "placeholder" else number
    count = number + 1
    made: list[fx.GraphModule] = []
    handed: list[fx.Node] = []  # what the stage before hands over
    for stage in range(count):
        part: fx.Graph = fx.Graph()
        known: dict[fx.Node, fx.Node] = {}
        for node in handed:
            known[node] = part.placeholder(node.name)

        def copied(node: fx.Node, part: fx.Graph = part, known: dict[fx.Node, fx.Node] = known) -> fx.Node:
            if node not in known:  # a parameter or buffer, in the stage that uses it
                known[node] = part.node_copy(node)
            return known[node]

        output: Any = None
        for node in graph.nodes:
            if stage_of.get(node) != stage:
                continue
            if node.op == "output":
                output = fx.node.map_arg(node.args[0], copied)
            else:
                known[node] = part.node_copy(node, copied)
                if node.op == "placeholder" and node.args and not isinstance(node.args[0], (int, float, str, bool, type(None))):
                    known[node].args = ()  # a default that code cannot spell (a tensor): the argument is one of those that were given
        if stage == count - 1:
            part.output(output)
        else:
            later = [node for node in graph.nodes if node.op != "get_attr" and stage_of.get(node, count) <= stage]
            handed = [node for node in later if any(stage_of.get(user, -1) > stage for user in node.users)]
            if not handed:
                raise ValueError(f"pipeline: nothing goes from stage {stage} to later ones")
            part.output(tuple(known[node] for node in handed))
        made.append(fx.GraphModule(module, part, f"Stage{stage}"))
        made[-1].train(module.training)
    return made


def _check_shared(pipe: Pipe) -> None:
    first: dict[int, tuple[int, str]] = {}
    for stage in range(pipe.num_stages):
        for name, p in pipe.get_stage_module(stage).named_parameters():
            before = first.setdefault(id(p), (stage, name))
            if before[0] != stage:
                warn_here(
                    f"pipeline: the parameter {name} is used in stage {before[0]} (as {before[1]}) and in stage {stage}: ranks train it apart, unless their "
                    "gradients are added up before each step; cut the model elsewhere"
                )
