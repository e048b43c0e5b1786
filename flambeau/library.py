"""torch.library: operators of one's own: a decorator that keeps the function, as functions run as they are here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: dict[str, Any] = {}


class CustomOpDef:
    """A function with a name; what is registered for tracing is accepted, `register_autograd` makes it a torch.autograd.Function."""

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self._name = name
        self._fn = self._call = fn
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
        from flambeau.autograd.function import Function

        fn = self._fn

        class Made(Function):
            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                result = fn(*args)
                if setup_context is not None:
                    setup_context(ctx, args, result)
                return result

        Made.backward = staticmethod(backward)  # type: ignore[method-assign]
        Made.__name__ = self.__name__
        self._call = lambda *args: Made.apply(*args)


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
