"""torch.distributed.tensor.parallel: plans that spread layers over processes: by columns, by rows, along the sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.tensor.api import DTensor, distribute_module, distribute_tensor
from flambeau.distributed.tensor.placement_types import Placement, Replicate, Shard
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.sparse import Embedding
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor


class ParallelStyle:
    """How one module is spread."""

    src_data_rank: int | None = 0

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define _apply(module, device_mesh)")


def _laid(x: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None) -> Any:
    """A tensor that lies in this layout, in another."""
    if not isinstance(x, Tensor) or layout is None:
        return x
    if not isinstance(x, DTensor):
        x = DTensor.from_local(x, mesh, [layout])
    return x if wanted is None or x.placements == (wanted,) else x.redistribute(placements=[wanted])


def _handed(x: Any, layout: Placement, local: bool) -> Any:
    if not isinstance(x, DTensor):
        return x
    if x.placements != (layout,):
        x = x.redistribute(placements=[layout])
    return x.to_local() if local else x


class _OfLayers(ParallelStyle):
    """Parameters in placements by name, the first input and the output in layouts."""

    def __init__(self, input_layouts: Placement, output_layouts: Placement, desired: Placement, use_local_output: bool) -> None:
        self.input_layouts, self.output_layouts, self.desired_input_layouts = (input_layouts,), (output_layouts,), (desired,)
        self.use_local_output = use_local_output

    def _placement(self, module: Any, name: str) -> Placement:
        raise NotImplementedError

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def partition(name: str, each: Any, mesh: DeviceMesh) -> None:
            for key, p in list(each.named_parameters(recurse=False)):
                spread = distribute_tensor(p.detach(), mesh, [self._placement(each, key)], src_data_rank=self.src_data_rank)
                each.register_parameter(key, Parameter(spread, p.requires_grad))

        def given(each: Any, inputs: Any, mesh: DeviceMesh) -> Any:
            return (_laid(inputs[0], mesh, self.input_layouts[0], self._wanted(each)), *inputs[1:])

        def result(each: Any, outputs: Any, mesh: DeviceMesh) -> Any:
            return _handed(outputs, self.output_layouts[0], self.use_local_output)

        return distribute_module(module, device_mesh, partition, given, result)

    def _wanted(self, module: Any) -> Placement:
        return self.desired_input_layouts[0]


class ColwiseParallel(_OfLayers):
    """A Linear cut along its outputs, or an Embedding along its width. The input is Replicate, the output Shard(-1), if nothing else is said."""

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Replicate(), output_layouts or Shard(-1), Replicate(), use_local_output)

    def _placement(self, module: Any, name: str) -> Placement:
        if isinstance(module, Embedding):
            return Shard(1)
        if not isinstance(module, Linear):
            raise NotImplementedError(f"ColwiseParallel currently only support nn.Linear and nn.Embedding, got {type(module).__name__}!")
        return Shard(0)


class RowwiseParallel(_OfLayers):
    """A Linear cut along its inputs, or an Embedding along its rows. The input is Shard(-1), the output Replicate, if nothing else is said."""

    def __init__(self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None, use_local_output: bool = True) -> None:
        super().__init__(input_layouts or Shard(-1), output_layouts or Replicate(), Shard(-1), use_local_output)

    def _placement(self, module: Any, name: str) -> Placement:
        if isinstance(module, Embedding):
            return Shard(0)
        if not isinstance(module, Linear):
            raise NotImplementedError(f"RowwiseParallel currently only support nn.Linear and nn.Embedding, got {type(module).__name__}!")
        return Shard(1) if name == "weight" else Replicate()

    def _wanted(self, module: Any) -> Placement:
        return Replicate() if isinstance(module, Embedding) else Shard(-1)


class SequenceParallel(_OfLayers):
    """Parameters Replicate, input and output cut along a dim (a norm or dropout between parallel layers)."""

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False) -> None:
        cut = Shard(sequence_dim)
        super().__init__(cut, cut, cut, use_local_output)

    def _placement(self, module: Any, name: str) -> Placement:
        return Replicate()


def _several(layouts: Any) -> tuple[Any, ...]:
    return layouts if isinstance(layouts, tuple) else (layouts,)


class PrepareModuleInput(ParallelStyle):
    """A module's inputs, which lie in `input_layouts`, as DTensors in `desired_input_layouts`; None for what is not to be touched."""

    def __init__(
        self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_output: bool = False,
    ) -> None:  # fmt: skip
        self.input_layouts, self.desired_input_layouts = input_layouts, desired_input_layouts
        self.kwarg_layouts, self.desired_kwarg_layouts = input_kwarg_layouts or {}, desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        if input_layouts is not None:
            if desired_input_layouts is None:
                raise AssertionError("desired module inputs should not be None!")
            if len(_several(input_layouts)) != len(_several(desired_input_layouts)):
                raise AssertionError("input_layouts and desired_input_layouts should have same length!")

    def _one(self, x: Any, mesh: DeviceMesh, layout: Placement | None, wanted: Placement | None) -> Any:
        x = _laid(x, mesh, layout, wanted)
        return x.to_local() if self.use_local_output and isinstance(x, DTensor) else x

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def given(each: Any, args: Any, kwargs: Any) -> Any:
            if self.input_layouts is not None:
                layouts, wanted = _several(self.input_layouts), _several(self.desired_input_layouts)
                if len(args) != len(layouts):
                    raise ValueError("module inputs and input_layouts should have same length!")
                args = tuple([self._one(x, device_mesh, p, q) for x, p, q in zip(args, layouts, wanted, strict=True)])
            kwargs = {k: self._one(x, device_mesh, self.kwarg_layouts.get(k), self.desired_kwarg_layouts.get(k)) for k, x in kwargs.items()}
            return args, kwargs

        module.register_forward_pre_hook(given, with_kwargs=True)
        return module


class PrepareModuleOutput(ParallelStyle):
    """A module's outputs, which lie in `output_layouts`, in `desired_output_layouts`."""

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True) -> None:
        self.output_layouts, self.desired_output_layouts = _several(output_layouts), _several(desired_output_layouts)
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise AssertionError("output_layouts and desired_output_layouts should have same length!")

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        def result(each: Any, inputs: Any, outputs: Any) -> Any:
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            if len(several) != len(self.output_layouts):
                raise ValueError("module outputs and output_layouts should have same length!")
            found = []
            for x, p, q in zip(several, self.output_layouts, self.desired_output_layouts, strict=True):
                x = _laid(x, device_mesh, p, q)
                found.append(x.to_local() if self.use_local_output and isinstance(x, DTensor) and p is not None else x)
            return tuple(found) if isinstance(outputs, tuple) else found[0]

        module.register_forward_hook(result)
        return module


class PrepareModuleInputOutput(ParallelStyle):
    """Both."""

    def __init__(
        self, *, input_layouts: Any = None, desired_input_layouts: Any = None, input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_input: bool = False, output_layouts: Any,
        desired_output_layouts: Any, use_local_output: bool = True,
    ) -> None:  # fmt: skip
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts, input_kwarg_layouts=input_kwarg_layouts,
            desired_input_kwarg_layouts=desired_input_kwarg_layouts, use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts, use_local_output=use_local_output
        )

    def _apply(self, module: Any, device_mesh: DeviceMesh) -> Any:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)


def _matching(module: Any, parts: Sequence[str]) -> Iterator[Any]:
    if not parts:
        yield module
        return
    for name, child in module.named_children():
        if fnmatch(name, parts[0]):
            yield from _matching(child, parts[1:])


def parallelize_module(
    module: Any, device_mesh: DeviceMesh | None = None, parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None, *,
    src_data_rank: int | None = 0,
) -> Any:  # fmt: skip
    """Spread a module by a style, or its submodules by their names (with `*` and `?`). What counts are the parameters of the process `src_data_rank`.

    `device_mesh`: of one dim. ValueError for meshes of several; TypeError for other plans.
    """
    from flambeau.distributed.tensor.api import _whole_mesh

    mesh = device_mesh or _whole_mesh()
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module: Tensor Parallel only accepts a 1D DeviceMesh, but found {mesh.ndim}D! Slice it by a name: mesh['tp']")
    if parallelize_plan is None:
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        for each in list(_matching(module, path.split(".") if path else [])):
            parallelize_module(each, mesh, style, src_data_rank=src_data_rank)
    return module


@contextmanager
def loss_parallel() -> Iterator[None]:
    """A block for losses of outputs that are cut along their classes. They are put together for it: the numbers are the same, memory is not saved."""
    yield


__all__ = [
    "ColwiseParallel", "ParallelStyle", "PrepareModuleInput", "PrepareModuleInputOutput", "PrepareModuleOutput", "RowwiseParallel", "SequenceParallel",
    "loss_parallel", "parallelize_module",
]  # fmt: skip


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.distributed.tensor.parallel", globals())
