"""torch.masked.MaskedTensor: a tensor with a mask that says which of its elements are there (True) and which are not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau as torch
from flambeau.ops.dispatch import DisableTorchFunctionSubclass, admit
from flambeau.ops.pointwise_names import POINTWISE, plain_name, writes
from flambeau.tensor import Tensor

# Functions that move elements: the mask moves with them.
_MOVING: Final = frozenset(
    """view reshape t transpose swapaxes permute movedim unsqueeze squeeze expand expand_as getitem select narrow flatten unflatten ravel cat concat stack
    split chunk unbind flip roll repeat tile index_select gather take_along_dim diagonal unfold view_as reshape_as broadcast_to hstack vstack
    tensor_split""".split()
)
_REDUCING: Final = frozenset("sum mean prod amin amax argmin argmax std var norm median logsumexp".split())
_ALONG: Final = frozenset("softmax log_softmax softmin cumsum cumprod".split())  # of whose results the mask is the operand's
_KEEPING: Final = POINTWISE | _REDUCING | _ALONG | {"detach", "all", "any"}
_PLAIN: Final = frozenset(
    "__get__ __set__ __len__ is_floating_point is_complex element_size register_hook retain_grad size dim stride numel is_contiguous".split()
)


def _data(t: Any) -> Any:
    if not isinstance(t, MaskedTensor):
        return t
    with DisableTorchFunctionSubclass():
        return t.as_subclass(Tensor)


class MaskedTensor(Tensor):
    """`MaskedTensor(data, mask)`: elements of `data` where `mask` (bool, of the same shape) is True; the others are not there.

    Functions of each element keep the mask, reductions leave out what is not there, and two operands must have equal masks. TypeError for other things
    than a tensor and a bool mask, ValueError for shapes that differ. `get_data()`, `get_mask()` and `to_tensor(value)` lead back to plain tensors.
    """

    _mask: Tensor

    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> Any:
        if not isinstance(data, Tensor) or isinstance(data, MaskedTensor):
            raise TypeError("data must be a Tensor")
        if not isinstance(mask, Tensor) or isinstance(mask, MaskedTensor):
            raise TypeError("mask must be a Tensor")
        if mask.dtype is not torch.bool:
            raise TypeError(f"mask must have dtype bool, got {mask.dtype}")
        if tuple(data.shape) != tuple(mask.shape):
            raise ValueError(f"data.size() must equal mask.size(), got {tuple(data.shape)} and {tuple(mask.shape)}")
        made = _made(data, mask)
        return made.requires_grad_() if requires_grad else made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call(func, args, kwargs or {})

    def get_data(self) -> Tensor:
        """The elements as a plain tensor, those that are not there too, with their history."""
        return _data(self)  # type: ignore[no-any-return]

    def get_mask(self) -> Tensor:
        """Which elements are there."""
        return self._mask

    def to_tensor(self, value: float) -> Tensor:
        """A plain tensor, with `value` where there is no element."""
        return _data(self).masked_fill(~self._mask, value)  # type: ignore[no-any-return]

    def to_dense(self) -> MaskedTensor:
        """Itself: it is strided."""
        return self

    @property
    def grad(self) -> Any:
        """The accumulated gradient of a leaf, with the same mask."""
        with DisableTorchFunctionSubclass():
            found = Tensor.grad.__get__(self)  # type: ignore[attr-defined]
        return None if found is None else _made(_data(found), self._mask)

    @grad.setter
    def grad(self, value: Any) -> None:
        with DisableTorchFunctionSubclass():
            Tensor.grad.__set__(self, _data(value))  # type: ignore[attr-defined]

    def backward(self, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Gradients of what this was computed from."""
        _data(self).backward(_data(gradient), retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)

    def tolist(self) -> Any:
        """RuntimeError: use to_tensor(value)."""
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got MaskedTensor: use to_tensor(value).tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError: use to_tensor(value)."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses: use to_tensor(value).numpy()")

    def __deepcopy__(self, memo: Any) -> Any:
        with DisableTorchFunctionSubclass():
            return MaskedTensor(_data(self).detach().clone(), self._mask.clone(), self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return MaskedTensor, (_data(self).detach(), self._mask, self.requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        data, mask = _data(self).detach(), self._mask
        if not data.ndim:
            return f"MaskedTensor({_number(data.item()) if mask.item() else '--'}, {mask.item()})"
        return "MaskedTensor(\n" + _indented(_rows(data.tolist(), mask.tolist())) + "\n)"


admit(MaskedTensor)


def _number(x: Any) -> str:
    return f"{x:8.4f}" if isinstance(x, float) else str(x)


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))


def _rows(data: Any, mask: Any) -> str:
    if not data or not isinstance(data[0], list):
        texts = [_number(x) for x in data]
        width = max([len(text) if m else 8 for text, m in zip(texts, mask, strict=True)], default=0)
        return "[" + ", ".join([text if m else "--".rjust(width) for text, m in zip(texts, mask, strict=True)]) + "]"
    return "[\n" + ",\n".join(_indented(_rows(d, m)) for d, m in zip(data, mask, strict=True)) + "\n]"


def _made(data: Tensor, mask: Tensor) -> MaskedTensor:
    with DisableTorchFunctionSubclass():
        made: MaskedTensor = data.as_subclass(MaskedTensor)
    made._mask = mask
    return made


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A new MaskedTensor, a leaf, with copies of the data and the mask; TypeError and ValueError as MaskedTensor."""
    plain = isinstance(data, Tensor) and not isinstance(data, MaskedTensor)
    return MaskedTensor(data.detach().clone() if plain else data, mask.clone() if isinstance(mask, Tensor) else mask, requires_grad)  # type: ignore


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A MaskedTensor over the data, with their history; TypeError and ValueError as MaskedTensor."""
    return MaskedTensor(data, mask)  # type: ignore[no-any-return]


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether an object is a MaskedTensor."""
    return isinstance(obj, MaskedTensor)


# -- functions ------------------------------------------------------------------------------------------------------------
def _masks(name: str, args: Sequence[Any]) -> Tensor:
    """The mask that all masked operands have."""
    masks = [a._mask for a in args if isinstance(a, MaskedTensor)]
    for m in masks[1:]:
        if m is not masks[0] and not torch.equal(m, masks[0]):
            raise ValueError(f"{name}(): Input masks must match: the operands' elements that are there differ; use to_tensor(value) on them first")
    return masks[0]


def _map(x: Any, function: Callable[[MaskedTensor], Any]) -> Any:
    if isinstance(x, MaskedTensor):
        return function(x)
    return type(x)([_map(y, function) for y in x]) if isinstance(x, (list, tuple)) else x


def _call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    name = getattr(func, "__name__", "")
    plain = plain_name(name)
    if name in _PLAIN:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if plain in ("requires_grad", "backward"):
        with DisableTorchFunctionSubclass():
            func(*args, **kwargs)
        return args[0]
    data, named = [_map(a, _data) for a in args], {k: _map(a, _data) for k, a in kwargs.items()}
    if plain in _MOVING:
        found = func(*data, **named)
        moved = func(*[_map(a, MaskedTensor.get_mask) for a in args], **{k: _map(a, MaskedTensor.get_mask) for k, a in kwargs.items()})
        return _made(found, moved) if isinstance(found, Tensor) else tuple([_made(d, m) for d, m in zip(found, moved, strict=True)])
    if plain == "where":
        condition, first, second = (*data, *named.values())
        masks = [x._mask if isinstance(x, MaskedTensor) else torch.tensor(True) for x in (*args, *kwargs.values())[1:]]
        return _made(func(condition, first, second), torch.where(condition, *masks))
    if plain not in _KEEPING:
        raise TypeError(f"{name}(): no implementation found for MaskedTensor; use get_data(), or to_tensor(value)")
    mask = _masks(plain, (*args, *kwargs.values()))
    if plain == "detach" or plain in POINTWISE:
        result = func(*data, **named)
        return args[0] if writes(name) else _made(result, mask)
    if plain in _ALONG:
        return _made(getattr(torch.masked, plain)(*data, mask=mask, **named), mask)
    if plain in _REDUCING:
        return _reduce(plain, mask, *data, **named)
    result = func(torch.where(mask, data[0].to(torch.bool), plain == "all"), *data[1:], **named)
    return _made(result, mask.any(*data[1:], **named))


def _reduce(name: str, mask: Tensor, input: Tensor, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> MaskedTensor:
    if name == "norm":
        kwargs["ord"] = kwargs.pop("p", 2.0)
    result = getattr(torch.masked, name)(input, *([kwargs.pop("ord")] if name == "norm" else []), dim=dim, keepdim=keepdim, mask=mask, **kwargs)
    return _made(result, mask.any() if dim is None and not keepdim else mask.any(tuple(range(mask.ndim)) if dim is None else dim, keepdim))
