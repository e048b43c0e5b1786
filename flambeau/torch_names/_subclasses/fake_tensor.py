"""torch._subclasses.fake_tensor: tensors that have a shape and a device, and no memory: tensors of `meta` that say that they are somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import flambeau as torch
from flambeau import operator_shapes
from flambeau.devices import META, Device
from flambeau.library import CustomOpDef
from flambeau.operator_shapes import DynamicOutputShapeException as DynamicOutputShapeException
from flambeau.ops import below
from flambeau.ops.dispatch import admit
from flambeau.tensor import Tensor
from flambeau.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from flambeau.utils._pytree import tree_map


class UnsupportedFakeTensorException(RuntimeError):
    """What cannot be done without values."""


class DataDependentOutputException(RuntimeError):
    """A result that depends on values."""


class MetadataMismatchError(RuntimeError):
    """A tensor without values that is not like that with values."""


class FakeTensor(Tensor):
    """A tensor without elements that says it is on `fake_device`. `fake_mode`: the mode that made it."""

    fake_mode: FakeTensorMode
    _elements: Tensor  # on meta

    @staticmethod
    def __new__(cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any = "cpu") -> FakeTensor:
        made: FakeTensor = below.make_wrapper_subclass(
            cls, tuple(elem.shape), strides=elem.stride(), dtype=elem.dtype, device=device, requires_grad=elem.requires_grad
        )
        made.fake_mode, made._elements = fake_mode, elem.detach()
        return made

    @property
    def fake_device(self) -> Device:
        """The device that it says it is on."""
        return self.device

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        dtype = "" if self.dtype is torch.get_default_dtype() else f", dtype={self.dtype}"
        return f"FakeTensor(..., {f'device={str(self.device)!r}, ' if self.device.type != 'cpu' else ''}size={tuple(self.shape)}{dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = below.dispatched((*args, *(kwargs or {}).values()))
        return found[0].fake_mode.dispatch(func, args, kwargs or {})


admit(FakeTensor)


class FakeTensorMode(TorchDispatchMode):
    """A block in which new tensors are fake. Real ones among arguments are refused (AssertionError) unless `allow_non_fake_inputs`."""

    def __init__(self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None, **_: Any) -> None:
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.allow_fallback_kernels = allow_fallback_kernels
        self.shape_env = shape_env

    def from_tensor(self, tensor: Tensor, *, static_shapes: Any = None, **_: Any) -> FakeTensor:
        """A fake tensor with the layout of a real one."""
        with _disable_current_modes():
            return FakeTensor(self, _bare(tensor), tensor.device)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An operator of aten over fake tensors: it runs on `meta`, and its results are fake. Without tensors: they are made on `meta`."""
        name = func.overloadpacket.__name__
        definition = getattr(func, "_function", None)
        if isinstance(definition, CustomOpDef) and not definition._for_meta:
            with self, operator_shapes.context(operator_shapes.current() or operator_shapes.FakeImplCtx(str(func))):
                return definition.without_values(args, kwargs)
        if name == "_local_scalar_dense":
            raise DataDependentOutputException(func)
        devices: list[Device] = []

        def bare(x: Any) -> Any:
            if isinstance(x, FakeTensor):
                devices.append(x.device)
                return x._elements
            if isinstance(x, Tensor) and x.device is not META:
                if x.ndim and not self.allow_non_fake_inputs and name not in ("lift_fresh", "detach"):
                    raise AssertionError(
                        f"Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'. Found in {func}"
                    )
                devices.append(x.device)
                return _bare(x)
            return x

        with _disable_current_modes():
            given, named = tree_map(bare, (tuple(args), kwargs))
            device = Device(kwargs["device"]) if kwargs.get("device") is not None else devices[0] if devices else Device("cpu")
            if (not devices or kwargs.get("device") is not None) and not isinstance(definition, CustomOpDef):
                named = {**named, "device": META}
            try:
                result = definition.without_values(given, named) if isinstance(definition, CustomOpDef) else func(*given, **named)
            except NotImplementedError as error:
                if "no data" in str(error):
                    raise DataDependentOutputException(func) from None
                raise
            return tree_map(lambda x: FakeTensor(self, x, device) if isinstance(x, Tensor) else x, result)


class FakeTensorConverter:
    """What makes fake tensors of real ones."""

    def from_real_tensor(self, fake_mode: FakeTensorMode, t: Tensor, **_: Any) -> FakeTensor:
        """A fake tensor with the layout of `t`."""
        return fake_mode.from_tensor(t)


def _bare(t: Tensor) -> Tensor:
    """The layout of a real tensor, on `meta`."""
    return torch.empty_strided(tuple(t.shape), t.stride(), dtype=t.dtype, device=META)


def is_fake(x: Any) -> bool:
    """Whether it is a fake tensor."""
    return isinstance(x, FakeTensor)


@contextmanager
def unset_fake_temporarily() -> Iterator[None]:
    """A block in which no mode is asked: new tensors are real."""
    with _disable_current_modes():
        yield
