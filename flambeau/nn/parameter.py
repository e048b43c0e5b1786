"""Parameter and Buffer: tensors that a Module registers when they are assigned to one of its attributes."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.foreign import refuse
from flambeau.ops.dispatch import PLAIN, Overridable, disabled_torch_function, parameter_of
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
            return made.requires_grad_(requires_grad)  # type: ignore[no-any-return]
        return Tensor._make_subclass(cls, data, requires_grad)  # type: ignore[no-any-return]

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

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

    def __init__(self, data: Tensor | None = None, *, persistent: bool = True) -> None:
        pass

    __dict__: Any = users_dict
    __torch_function__ = staticmethod(disabled_torch_function)  # type: ignore[assignment]


PLAIN.update((Parameter, Buffer))
prepare(Parameter)
recorder.set_parameter_class(Parameter)

_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in `load_state_dict` when trying to "
    "load an uninitialized parameter into an initialized one. Call `forward` to initialize the parameters before accessing their "
    "attributes."
)


class UninitializedTensorMixin:
    """A tensor without a shape: `materialize` gives it one, and makes it a tensor of the class `cls_to_become`."""

    cls_to_become: type

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Memory of this shape (uninitialized), in place."""
        self.data = torch.empty(tuple(shape), device=device, dtype=dtype or self.dtype)  # type: ignore[attr-defined]
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        raise RuntimeError(_NO_SHAPE)

    def size(self, *dim: Any) -> Any:
        raise RuntimeError(_NO_SHAPE)

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape is not known yet."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> UninitializedParameter:
        return Tensor._make_subclass(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)  # type: ignore[no-any-return]

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, dtype=self.dtype)
        return memo[id(self)]  # type: ignore[no-any-return]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return UninitializedParameter, (self.requires_grad, None, self.dtype)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> UninitializedBuffer:
        made = Tensor._make_subclass(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent
        return made  # type: ignore[no-any-return]

    __torch_function__ = staticmethod(disabled_torch_function)  # type: ignore[assignment]

    def __init__(self, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, dtype=self.dtype)
        return memo[id(self)]  # type: ignore[no-any-return]


def is_lazy(param: Any) -> bool:
    """Whether a parameter or buffer has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)
