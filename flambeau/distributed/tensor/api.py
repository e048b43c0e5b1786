"""DTensor: a tensor that is spread over a mesh of processes.

The object is itself this process's part for autograd, optimizers and copies (`to_local()` is an alias of it); what it says of its shape, and what functions
make of it, is the whole. Functions of DTensors are in calls.py, their rules in rules/.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from math import prod
from pickle import UnpicklingError
from typing import Any, Final

import flambeau as torch
from flambeau.distributed.device_mesh import DeviceMesh
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard
from flambeau.distributed.tensor.spec import Spec, normalized, text
from flambeau.distributed.tensor.transitions import gradient_beside, gradient_from, redistribute, same_memory
from flambeau.io.globals import allow
from flambeau.ops.dispatch import DisableTorchFunctionSubclass, admit
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size
from flambeau.trace.once import warn_here


def inner(t: Any) -> Any:
    """This process's part of a DTensor, with its history; anything else as it is."""
    if not isinstance(t, DTensor):
        return t
    with DisableTorchFunctionSubclass():
        return t.as_subclass(Tensor)


def made(local: Any, spec: Spec) -> DTensor:
    """A DTensor over a local tensor with its history."""
    with DisableTorchFunctionSubclass():
        found: DTensor = local.as_subclass(DTensor)
    found._layout = spec
    return found


class DTensor(Tensor):
    """A tensor over a mesh of processes: see distribute_tensor and DTensor.from_local."""

    _layout: Spec
    _source: tuple[Any, Spec] | None = None  # what redistribute has made it of: the local tensor, and how that lies

    def __new__(cls, local_tensor: Any, spec: Any, *, requires_grad: bool = False) -> Any:
        if hasattr(spec, "own"):
            spec = spec.own()
        if not isinstance(spec, Spec):
            raise TypeError("DTensor: use DTensor.from_local(local_tensor, device_mesh, placements) or distribute_tensor")
        if local_tensor.requires_grad and not requires_grad:
            warn_here("To construct DTensor from torch.Tensor, it's recommended to use local_tensor.detach() and make requires_grad consistent.")
        found = made(local_tensor.detach(), spec)
        with DisableTorchFunctionSubclass():
            return found.requires_grad_(requires_grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from flambeau.distributed.tensor.calls import call

        return call(func, args, kwargs or {})

    # -- parts and the whole --------------------------------------------------------------------------------------
    @staticmethod
    def from_local(
        local_tensor: Any, device_mesh: DeviceMesh | None = None, placements: Any = None, *, run_check: bool = False, shape: Any = None, stride: Any = None,
        grad_placements: Any = None,
    ) -> Any:  # fmt: skip
        """A DTensor whose part on this process is `local_tensor`. Without `shape` all parts are as large as this one."""
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value.")
        mesh = device_mesh or _whole_mesh()
        found = normalized(placements, mesh, local_tensor.ndim, "DTensor.from_local")
        if (shape is None) != (stride is None):
            raise RuntimeError("Please pass both shape and stride at the same time.")
        if run_check:
            from flambeau.distributed.tensor.checks import same_everywhere

            local_tensor = same_everywhere(local_tensor, mesh, found, shape is None)
        if shape is None:
            whole = list(local_tensor.shape)
            for size, p in zip(mesh.shape, found, strict=True):
                if isinstance(p, Shard):
                    whole[p.dim] *= size
            shape = whole
        spec = Spec(mesh, found, tuple(shape))
        if mesh.get_coordinate() is None:
            local_tensor = local_tensor.new_empty(0)
        if grad_placements is not None:
            local_tensor = gradient_from(local_tensor, spec, normalized(grad_placements, mesh, len(spec.shape), "DTensor.from_local"))
        elif local_tensor.requires_grad and local_tensor.is_leaf:
            local_tensor = same_memory(local_tensor)
        return made(local_tensor, spec)

    def to_local(self, *, grad_placements: Any = None) -> Tensor:
        """This process's part, with its history. `grad_placements`: how its gradient will lie, if not as the tensor does."""
        if grad_placements is not None:
            given = normalized(grad_placements, self._layout.mesh, len(self._layout.shape), "DTensor.to_local")
            if self._source is not None:  # one redistribution of the gradient instead of two
                local, spec = self._source
                return gradient_beside(local, inner(self), spec, self._layout.placed(given))  # type: ignore[no-any-return]
            return gradient_from(inner(self), self._layout, given)  # type: ignore[no-any-return]
        return inner(self)  # type: ignore[no-any-return]

    def redistribute(self, device_mesh: DeviceMesh | None = None, placements: Any = None, *, async_op: bool = False, **dtypes: Any) -> DTensor:
        """The same tensor in other placements of its mesh, with gradients. A collective."""
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        if device_mesh is not None and device_mesh != self._layout.mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        found = normalized(placements, self._layout.mesh, len(self._layout.shape), "DTensor.redistribute")
        if any(isinstance(p, Partial) and p != q for p, q in zip(found, self._layout.placements, strict=True)):
            raise RuntimeError("Can not redistribute to Partial, redistributing to Partial is for internal use only!")
        local = inner(self)
        result = made(redistribute(local, self._layout, found), self._layout.placed(found))
        if local.requires_grad and torch.is_grad_enabled():
            result._source = local, self._layout
        return result

    def full_tensor(self, *, grad_placements: Any = None) -> Tensor:
        """The whole tensor on every process, with gradients. A collective."""
        return self.redistribute(placements=[Replicate()] * self._layout.mesh.ndim).to_local(grad_placements=grad_placements)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The processes."""
        return self._layout.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """How it lies along each dim of the mesh."""
        return self._layout.placements

    def _greatest_anywhere(self, t: Tensor) -> Tensor:
        """The greatest of each element of a plain tensor over all processes of the mesh. A collective."""
        from flambeau.distributed.collectives import all_reduce

        t = t.clone()
        for group in self._layout.mesh.get_all_groups():
            all_reduce(t, ReduceOp.MAX, group)
        return t

    @staticmethod
    def _take_result(target: Any, source: Any, name: str) -> None:
        """Write a function's result to its `out=`, which keeps its placements. A collective where they differ."""
        if not isinstance(target, DTensor) or not isinstance(source, DTensor):
            raise RuntimeError(
                f"{name}(): got mixed torch.Tensor and DTensor: out= must be a DTensor if the arguments are; it is a {type(target).__name__}, the result a "
                f"{type(source).__name__}"
            )
        if target._layout.shape != source._layout.shape:
            raise RuntimeError(
                f"{name}(): out= must have the shape of the result, as DTensors keep theirs: got {target._layout.shape} for {source._layout.shape}"
            )
        if torch.is_grad_enabled() and (source.requires_grad or target.requires_grad):
            raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad.")
        inner(target).copy_(inner(source.redistribute(placements=target.placements)))

    @property
    def _spec(self) -> DTensorSpec:
        """The same as PyTorch's programs ask for it: with the strides and the dtype of the whole."""
        return DTensorSpec(self._layout.mesh, self._layout.placements, TensorMeta(self.shape, self.stride(), self.dtype))

    @property
    def _local_tensor(self) -> Tensor:
        return inner(self)  # type: ignore[no-any-return]

    # -- what it says of itself -----------------------------------------------------------------------------------
    @property
    def shape(self) -> Any:  # type: ignore[override]
        """The shape of the whole."""
        return Size(self._layout.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape of the whole, or one size of it."""
        return self.shape if dim is None else self._layout.shape[dim]

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._layout.shape)

    def dim(self) -> int:
        """`ndim`."""
        return len(self._layout.shape)

    def numel(self) -> int:
        """How many elements the whole has."""
        return prod(self._layout.shape)

    nelement = numel

    def stride(self, dim: int | None = None) -> Any:
        """The strides that the whole would have, its dims in the order in which they lie in memory here."""
        local, sizes = inner(self).stride(), self._layout.shape
        steps, step = [0] * len(sizes), 1
        for d in sorted(range(len(sizes)), key=lambda d: (local[d], -d)):
            steps[d], step = step, step * max(1, sizes[d])
        return tuple(steps) if dim is None else steps[dim]

    def is_contiguous(self, memory_format: Any = torch.contiguous_format) -> bool:
        """Whether this process's part is."""
        return bool(inner(self).is_contiguous(memory_format=memory_format))

    def __len__(self) -> int:
        if not self._layout.shape:
            raise TypeError("len() of a 0-d tensor")
        return self._layout.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.unbind(0))

    def __bool__(self) -> bool:
        return bool(self.full_tensor())

    def __float__(self) -> float:
        return float(self.full_tensor())

    def __int__(self) -> int:
        return int(self.full_tensor())

    def item(self) -> Any:
        """The number of a tensor with one element. A collective where it lies in parts."""
        return self.full_tensor().item()

    def tolist(self) -> Any:
        """The numbers of the whole."""
        return self.full_tensor().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError: of which part would have to be said."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses: use full_tensor().numpy() or to_local().numpy()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"DTensor(local_tensor={inner(self).detach()!r}, device_mesh={self._layout.mesh}, placements={text(self._layout.placements)})"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment")
        copied = made(inner(self).detach().clone(), self._layout)
        copied.__class__ = type(self)
        memo[id(self)] = copied
        with DisableTorchFunctionSubclass():
            return copied.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        mesh = self._layout.mesh
        placements = tuple([(type(p).__name__, *vars(p).values()) for p in self._layout.placements])
        about = (mesh.device_type, mesh._ranks.tolist(), mesh.mesh_dim_names, placements, self._layout.shape)
        return _rebuild, (inner(self).detach(), about, self.requires_grad)

    @property
    def T(self) -> Any:
        """Its dims in the other order."""
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Any:
        """Its last two dims exchanged."""
        return self.transpose(-2, -1)

    @property
    def H(self) -> Any:
        """A matrix transposed and conjugate."""
        return self.conj().transpose(-2, -1) if self.is_complex() else self.transpose(-2, -1)

    @property
    def mH(self) -> Any:
        """`H` of matrices."""
        return self.H

    # -- gradients ------------------------------------------------------------------------------------------------
    @property
    def grad(self) -> Any:
        """The accumulated gradient of a leaf: it lies as the tensor does."""
        with DisableTorchFunctionSubclass():
            found = Tensor.grad.__get__(self)  # type: ignore[attr-defined]
        return found if found is None or isinstance(found, DTensor) else made(found, self._layout.gradient())

    @grad.setter
    def grad(self, value: Any) -> None:
        if isinstance(value, DTensor):
            value = inner(value.redistribute(placements=self._layout.gradient().placements))
        elif value is not None and tuple(value.shape) != tuple(inner(self).shape):
            raise RuntimeError(
                f"DTensor.grad: the gradient must be a DTensor, or a tensor of the local shape {tuple(inner(self).shape)}; got shape {tuple(value.shape)}"
            )
        with DisableTorchFunctionSubclass():
            Tensor.grad.__set__(self, value)  # type: ignore[attr-defined]

    def _for_gradients(self) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
        """Gradients of this tensor: (what a custom function's backward is given for a local one, the local one of what it returns)."""
        spec = self._layout.gradient()
        return lambda g: made(g, spec), lambda g: inner(g.redistribute(placements=spec.placements)) if isinstance(g, DTensor) else g

    @property
    def data(self) -> Any:
        """The same memory without history."""
        return made(inner(self).detach(), self._layout)

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, DTensor):
            raise TypeError(f"DTensor.data: expected a DTensor, got {type(value).__name__}")
        with DisableTorchFunctionSubclass():
            Tensor.data.__set__(self, inner(value))  # type: ignore[attr-defined]
        self._layout = value._layout

    def backward(self, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Gradients of what this was computed from, on all processes."""
        if isinstance(gradient, DTensor):
            gradient = inner(gradient.redistribute(placements=self._layout.gradient().placements))
        inner(self).backward(gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


admit(DTensor)


def _rebuild(local: Any, about: tuple[Any, ...], requires_grad: bool) -> DTensor:
    """What pickles of DTensors call. UnpicklingError where what they say is no mesh and no placements."""
    try:
        device_type, ranks, names, given, shape = about
        placements = tuple([_PLACEMENTS[kind](*values) for kind, *values in given])
        spec = Spec(DeviceMesh._over_groups(device_type, ranks, names), placements, tuple(shape))
    except (KeyError, TypeError, ValueError) as error:
        raise UnpicklingError(f"a DTensor in the file is malformed: {error!r}") from error
    if not isinstance(local, Tensor) or isinstance(local, DTensor):
        raise UnpicklingError(f"a DTensor in the file is malformed: its local tensor is a {type(local).__name__}")
    found = made(local, spec)
    with DisableTorchFunctionSubclass():
        return found.requires_grad_(requires_grad)  # type: ignore[return-value]


_PLACEMENTS: Final = {kind.__name__: kind for kind in (Shard, _StridedShard, Replicate, Partial)}
allow("torch.distributed.tensor.api", "_rebuild", _rebuild)  # PyTorch, too, reads DTensors once this package is imported


def _whole_mesh() -> DeviceMesh:
    """The mesh of `with mesh:`, or the one of all processes."""
    from flambeau.distributed.device_mesh import _mesh_resources, init_device_mesh
    from flambeau.distributed.group import get_world_size

    if _mesh_resources.mesh_stack:
        return _mesh_resources.get_current_mesh()
    return init_device_mesh("cpu", (get_world_size(),))


def distribute_tensor(
    tensor: Any, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *, src_data_rank: int | None = 0
) -> Any:
    """A leaf DTensor of a whole tensor, which each process gives; what counts is that of the process in place `src_data_rank` (None: each one's own)."""
    from flambeau.distributed.collectives import broadcast

    mesh = device_mesh or _whole_mesh()
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    found = normalized(placements, mesh, tensor.ndim, "distribute_tensor")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh {mesh}.")
        if tensor.placements != found:
            raise ValueError(
                f"Cannot distribute a DTensor with placements {text(tensor.placements)} to a different placements {text(found)}. "
                "do you want to call `redistribute` instead?"
            )
        return tensor
    spec = Spec(mesh, (Replicate(),) * mesh.ndim, tuple(tensor.shape))
    local = tensor.detach()
    if mesh.get_coordinate() is None:
        return DTensor(local.new_empty(0), spec.placed(found), requires_grad=tensor.requires_grad)
    if src_data_rank is not None and tensor.device.type != "meta":
        local = local.clone(memory_format=torch.contiguous_format)
        for d in range(mesh.ndim):
            if mesh.shape[d] > 1:
                broadcast(local, group=mesh.get_group(d), group_src=src_data_rank)
    with torch.no_grad():
        for d, p in enumerate(found):
            if isinstance(p, Partial):
                local = local if mesh.get_local_rank(d) == 0 or p.reduce_op != "sum" else torch.zeros_like(local)
        local = redistribute(local, spec, [Replicate() if isinstance(p, Partial) else p for p in found])
        if local is tensor:
            local = local.view_as(local)
    return DTensor(local, spec.placed(found), requires_grad=tensor.requires_grad)


def _shard_tensor(full_tensor: Any, placements: Sequence[Placement], device_mesh: DeviceMesh | None = None) -> Any:
    """distribute_tensor where every process has the same tensor: each keeps its part, nothing is sent."""
    return distribute_tensor(full_tensor, device_mesh, placements, src_data_rank=None)


def _around(function: Callable[..., Any], what: str, values: str) -> Callable[..., Any]:
    """`function(module, values, mesh)`; one of (values, mesh) still works, with PyTorch's warning."""
    count = len(inspect.signature(function).parameters)
    if count == 2:
        warn_here(f"Deprecating {what} that takes two arguments ({values}, device_mesh), please use {what} that takes in (module, {values}, device_mesh) "
                      "instead!", FutureWarning)  # fmt: skip
        return lambda module, given, mesh: function(given, mesh)
    if count != 3:
        raise ValueError(f"{what} {function} should take in 3 arguments, but got {count} arguments!")
    return function


def distribute_module(
    module: Any, device_mesh: DeviceMesh | None = None, partition_fn: Callable[..., Any] | None = None, input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """Make a module's parameters and buffers DTensors: as `partition_fn(name, module, mesh)` does for each submodule, all others Replicate.

    `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` change what forward is given and returns.
    """
    mesh = device_mesh or _whole_mesh()
    if getattr(module, "_distribute_module_applied", False):
        raise RuntimeError("distribute_module should only be called once on a module, but it has already been called on this module!")
    for name, each in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, each, mesh)
        for key, p in each._parameters.items():
            if p is not None and not isinstance(p, DTensor):
                each.register_parameter(key, torch.nn.Parameter(distribute_tensor(p.data, mesh), p.requires_grad))
        for key, b in each._buffers.items():
            if b is not None and not isinstance(b, DTensor):
                each._buffers[key] = distribute_tensor(b.detach(), mesh)
    if input_fn is not None:
        before = _around(input_fn, "input_fn", "inputs")
        module.register_forward_pre_hook(lambda each, inputs: before(each, inputs, mesh))
    if output_fn is not None:
        after = _around(output_fn, "output_fn", "outputs")
        module.register_forward_hook(lambda each, inputs, outputs: after(each, outputs, mesh))
    module._distribute_module_applied = True
    return module
