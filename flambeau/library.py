"""torch.library: operators of one's own: a decorator that keeps the function, as functions run as they are here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

_registered: dict[str, Any] = {}


class Tag(Enum):
    """What an operator says of itself; accepted, and changes nothing."""

    core, cudagraph_unsafe, data_dependent_output, dynamic_output_shape, flexible_layout, generated, inplace, inplace_view = range(8)
    maybe_aliasing_or_mutating, needs_contiguous_strides, needs_exact_strides, needs_fixed_stride_order = range(8, 12)
    nondeterministic_bitwise, nondeterministic_seeded, out, out_variant, pointwise, pt2_compliant_tag, reduction, view_copy = range(12, 20)


class CustomOpDef:
    """A function with a name; what is registered for tracing is accepted, `register_autograd` makes it a torch.autograd.Function."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self._name = name
        self._fn: Callable[..., Any] = fn
        self._call: Callable[..., Any] = fn
        self._backward: Callable[..., Any] | None = None
        self._setup_context: Callable[..., Any] | None = None
        self._vmap: Callable[..., Any] | None = None
        self.__name__ = getattr(fn, "__name__", name)
        self.__doc__ = fn.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def register_fake(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Accepted: shapes come from the function itself."""
        return fn

    def register_kernel(self, device_types: Any, fn: Callable[..., Any] | None = None) -> Any:
        """The function for the CPU, if it is among the devices."""

        def register(f: Callable[..., Any]) -> Callable[..., Any]:
            listed = [device_types] if isinstance(device_types, str) or device_types is None else device_types
            if None in listed or "cpu" in listed:
                self._fn = self._call = f
            return f

        return register if fn is None else register(fn)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """Gradients by `backward(ctx, *grads)`, after `setup_context(ctx, inputs, output)`."""
        self._backward, self._setup_context = backward, setup_context
        self._made()

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """The function over a batch: `func(info, in_dims, *args)` returns (output, out_dims)."""
        if func is None:

            def register_rule(f: Callable[..., Any]) -> Callable[..., Any]:
                self.register_vmap(f)
                return f

            return register_rule
        self._vmap = func
        self._made()
        return None

    def register_autocast(self, device_type: str, cast_inputs: Any) -> Callable[..., Any]:
        """Under autocast on the device, floating arguments are cast first."""
        if device_type not in ("cpu", "cuda"):
            raise ValueError(f"Unknown device type: {device_type}")
        plain = self._call

        def kernel(*args: Any, **kwargs: Any) -> Any:
            from flambeau.amp import autocast
            from flambeau.amp.autocast_mode import is_autocast_enabled

            if device_type != "cpu" or not is_autocast_enabled("cpu"):
                return plain(*args, **kwargs)
            with autocast("cpu", enabled=False):
                return plain(*[a.to(cast_inputs) if hasattr(a, "_meta") and a.is_floating_point() else a for a in args], **kwargs)

        self._call = kernel
        return kernel

    def _made(self) -> None:
        """Make the torch.autograd.Function that has the registered gradient and batching rule."""
        from flambeau.autograd.function import Function

        setup = self._setup_context

        class Made(Function):
            forward = staticmethod(self._fn)

            @staticmethod
            def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
                if setup is not None:
                    setup(ctx, inputs, output)

        if self._backward is not None:
            Made.backward = staticmethod(self._backward)  # type: ignore[method-assign]
        if self._vmap is not None:
            Made.vmap = staticmethod(self._vmap)  # type: ignore[method-assign]
        Made.__name__ = self.__name__
        parameters = inspect.signature(self._fn)

        def call(*args: Any, **kwargs: Any) -> Any:
            return Made.apply(*(parameters.bind(*args, **kwargs).args if kwargs else args))

        self._call = call


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Any, device_types: Any = None, schema: str | None = None, tags: Any = None
) -> Any:
    """A decorator: the function as the operator "namespace::name", also found as torch.ops.namespace.name."""
    if "::" not in name:
        raise ValueError(f"torch.library.custom_op: the name is 'namespace::operator', got {name!r}")

    def make(f: Callable[..., Any]) -> CustomOpDef:
        _registered[name] = made = CustomOpDef(name, f)
        return made

    return make if fn is None else make(fn)


def _found(op: Any) -> Any:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _registered:
        raise RuntimeError(f"torch.library: there is no operator {op!r}; define it by torch.library.custom_op")
    return _registered[op]


def register_fake(op: Any, func: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """Accepted: shapes come from the function itself."""
    return func if func is not None else (lambda f: f)


def register_kernel(op: Any, device_types: Any, func: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """See CustomOpDef."""
    return _found(op).register_kernel(device_types, func)


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None, **_: Any) -> None:
    """See CustomOpDef."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Callable[..., Any] | None = None, /, **_: Any) -> Any:
    """See CustomOpDef."""
    return _found(op).register_vmap(func)


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, **_: Any) -> Any:
    """See CustomOpDef."""
    return _found(op).register_autocast(device_type, cast_inputs)


class Library:
    """A namespace of operators: `define("name(Tensor x) -> Tensor")`, then `impl("name", function, "CPU")`."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """The name of the schema."""
        return schema.split("(", 1)[0].strip()

    def impl(self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", **_: Any) -> None:
        """The function for the CPU; those for other keys are accepted."""
        if (dispatch_key or self.dispatch_key) in ("", "CPU", "CompositeImplicitAutograd", "CompositeExplicitAutograd", "Autograd"):
            name = str(op_name).split("::")[-1]
            _registered[f"{self.ns}::{name}"] = CustomOpDef(f"{self.ns}::{name}", fn)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Accepted: an operator has its function by impl()."""


def impl(qualname: str, types: Any, func: Callable[..., Any] | None = None, *, lib: Any = None) -> Any:
    """The operator's function, for the CPU."""

    def register(f: Callable[..., Any]) -> Callable[..., Any]:
        listed = [types] if isinstance(types, str) else types
        if any(t.lower() in ("cpu", "default", "compositeimplicitautograd", "compositeexplicitautograd") for t in listed):
            _registered[qualname] = CustomOpDef(qualname, f)
        return f

    return register if func is None else register(func)


def triton_op(name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """RuntimeError: there is no Triton here."""
    raise RuntimeError("torch.library.triton_op: Triton kernels run on GPUs; flambeau runs on the CPU so far")
