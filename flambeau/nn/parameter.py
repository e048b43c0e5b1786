"""Parameter and Buffer: tensors that a Module registers when they are assigned to one of its attributes."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.foreign import refuse
from flambeau.ops.dispatch import PLAIN, DisableTorchFunctionSubclass, Overridable, admit, disabled_torch_function, parameter_of
from flambeau.ops.signatures import must_be
from flambeau.tensor import Tensor, prepare, users_dict
from flambeau.trace import recorder


class Parameter(Tensor):
    """A tensor that is a module's parameter: a leaf that requires a gradient unless said otherwise.

    It shares the memory of `data`. Without data it is an empty tensor of shape (0,).
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        if requires_grad is not True:
            must_be("Parameter", "requires_grad bool", requires_grad)
        if data is None:
            data = torch.empty(0)
        elif not isinstance(data, Tensor):
            refuse((data,), "Parameter()")
            raise TypeError(f"Parameter: expected a Tensor as data, got {type(data).__name__}")
        elif isinstance(data, Overridable) and not issubclass(cls, type(data)):
            made = data.detach()
            made.__class__ = parameter_of(type(data), cls)
            made._is_param = True
            return made.requires_grad_(requires_grad)  # type: ignore[no-any-return]
        return Tensor._make_subclass(cls, data, requires_grad)  # type: ignore[no-any-return]

    __dict__: Any = users_dict
    __torch_function__ = staticmethod(disabled_torch_function)  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        copied = type(self)(self._copied_layout(memo), self.requires_grad)
        memo[id(self)] = copied
        return copied

    def __repr__(self) -> str:  # type: ignore[override]
        return "Parameter containing:\n" + super().__repr__()


class Buffer(Tensor):
    """A tensor that becomes a buffer when it is assigned to a module's attribute; saved with it if `persistent`."""

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        if data is None:
            data = torch.empty(0)
        t = Tensor._make_subclass(cls, data, data.requires_grad)
        t.persistent = persistent
        return t  # type: ignore[no-any-return]

    __dict__: Any = users_dict
    __torch_function__ = staticmethod(disabled_torch_function)  # type: ignore[assignment]


_ParameterMeta = type(Parameter)  # PyTorch's name for the class of that class
PLAIN.update((Parameter, Buffer))
prepare(Parameter)
recorder.set_parameter_class(Parameter)

_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying to "
    "load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing their "
    "attributes."
)


# What a tensor without a shape does: PyTorch's UninitializedTensorMixin._allowed_methods.
_WITHOUT_VALUES = frozenset(
    """__hash__ size copy_ is_complex is_floating_point half float double char short int long cuda cpu to get_device
_has_compatible_shallow_copy_type""".split()
)


class UninitializedTensorMixin:
    """A tensor without a shape: `materialize` gives it one, and makes it a tensor of the class `cls_to_become`."""

    cls_to_become: type

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Memory of this shape (uninitialized), in place."""
        with DisableTorchFunctionSubclass():
            self.data = torch.empty(shape, device=device, dtype=dtype or self.dtype)  # type: ignore[attr-defined]
        self.__class__ = self.cls_to_become

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """ValueError for what needs values; moves and conversions, and attributes, answer."""
        if getattr(func, "__name__", "") in _WITHOUT_VALUES or type(func).__name__ == "method-wrapper":
            with DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a `LazyModule` or explicitly manipulating "
            f"`torch.nn.parameter.{cls.__name__}` objects. When using LazyModules Call `forward` with a dummy batch to initialize the parameters before "
            "calling torch functions"
        )

    @property
    def shape(self) -> Any:
        raise RuntimeError(_NO_SHAPE)

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self), (self.requires_grad, None, self.dtype, *([self.persistent] if isinstance(self, Buffer) else []))  # type: ignore[attr-defined]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            made, arguments = self.__reduce_ex__(2)
            memo[id(self)] = made(*arguments)
        return memo[id(self)]


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape is not known yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        return _without_shape(cls, requires_grad, device, dtype)  # type: ignore[no-any-return]


class UninitializedBuffer(UninitializedTensorMixin, Buffer):
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> UninitializedBuffer:
        made = _without_shape(cls, requires_grad, device, dtype)
        made.persistent = persistent
        return made  # type: ignore[no-any-return]


def _without_shape(cls: Any, requires_grad: bool, device: Any, dtype: Any) -> Any:
    if not issubclass(cls, Overridable):
        admit(cls)  # when there is one: functions ask from then on whether their arguments answer for themselves
    with DisableTorchFunctionSubclass():
        return Tensor._make_subclass(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)


def refuse_lazy(by: str, what: str, weight: Any) -> None:
    """ValueError if a weight that is to be normalized has no shape yet."""
    if is_lazy(weight):
        raise ValueError(
            f"The module passed to `{by}` can't have uninitialized parameters. Make sure to run the dummy forward before applying {what} normalization"
        )
