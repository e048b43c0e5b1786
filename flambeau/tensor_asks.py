"""What a tensor's methods ask of the folders above (see upward.py): ops/, autograd/, storage.py, printing.py, io/."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


# -- making and subclasses (ops/) -------------------------------------------------------------------------------------
@upward
def legacy_constructor(d: Any, *args: Any, any_dtype: bool = False, **kwargs: Any) -> Any:
    """What `Tensor(2, 3)` and `Tensor([1, 2])` give."""
    raise NotImplementedError


@upward
def admit(cls: type) -> None:
    """Know a new subclass of Tensor."""
    raise NotImplementedError


@upward
def part(cls: type) -> None:
    """Keep the attributes of a user's subclass apart from our own."""
    raise NotImplementedError


@upward
def torch_function(cls: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """What a subclass does with a function of which it is an argument."""
    raise NotImplementedError


@upward
def as_subclass(self: Any, cls: Any) -> Any:
    """The same memory and history as a tensor of another class."""
    raise NotImplementedError


@upward
def must_be(function: str, parameter: str, v: Any) -> None:
    """PyTorch's TypeError unless an argument is of its kind."""
    raise NotImplementedError


@upward
def problem(name: str, names: Any, values: Any, defaults: Any) -> Exception | None:
    """What is wrong with the arguments of a call."""
    raise NotImplementedError


# -- views (ops/) -----------------------------------------------------------------------------------------------------
@upward
def detach(input: Any) -> Any:
    """The same memory without history."""
    raise NotImplementedError


@upward
def conj(input: Any) -> Any:
    """The conjugate, as a view."""
    raise NotImplementedError


@upward
def neg_view(input: Any) -> Any:
    """The negative, as a view."""
    raise NotImplementedError


@upward
def from_numpy(array: Any) -> Any:
    """A tensor over an array's memory."""
    raise NotImplementedError


@upward
def as_bfloat16(capsule: Any) -> Any:
    """A DLPack capsule of int16 as one of bfloat16."""
    raise NotImplementedError


# -- gradients (autograd/) --------------------------------------------------------------------------------------------
@upward
def node_of(t: Tensor) -> Any:
    """The node of the graph that made a tensor."""
    raise NotImplementedError


@upward
def edge_of(t: Tensor) -> tuple[Any, int]:
    """That node, and which of its results the tensor is."""
    raise NotImplementedError


@upward
def backward(tensors: Any, grad_tensors: Any, retain_graph: bool, create_graph: bool, inputs: Any) -> None:
    """Accumulate gradients of tensors into the leaves that they depend on."""
    raise NotImplementedError


@upward
def forget_leaf(leaf: Tensor) -> None:
    """A tensor becomes a leaf of its own: what its memory's history knows of it goes."""
    raise NotImplementedError


@upward
def register_hook(t: Tensor, hook: Callable[[Tensor], Tensor | None]) -> Any:
    """Call `hook(gradient)` whenever the gradient of a tensor is computed."""
    raise NotImplementedError


@upward
def register_post_accumulate_grad_hook(t: Tensor, hook: Callable[[Tensor], None]) -> Any:
    """Call `hook(tensor)` after a gradient has been accumulated into a leaf."""
    raise NotImplementedError


@upward
def retain_grad(t: Tensor) -> None:
    """Keep the gradient of a non-leaf tensor."""
    raise NotImplementedError


# -- memory, text, files (storage.py, printing.py, io/, array_api/) ---------------------------------------------------
@upward
def untyped_storage(t: Tensor) -> Any:
    """The bytes that a tensor and its views share."""
    raise NotImplementedError


@upward
def typed_storage(t: Tensor, warns: bool = True) -> Any:
    """The elements that a tensor and its views share, as a TypedStorage."""
    raise NotImplementedError


@upward
def legacy_storage_class(d: Any) -> Any:
    """The class of the legacy storage of a dtype."""
    raise NotImplementedError


@upward
def set_source(t: Tensor, source: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    """Let a tensor share the memory of another one or of a storage."""
    raise NotImplementedError


@upward
def tensor_repr(t: Tensor) -> str:
    """The text of a tensor."""
    raise NotImplementedError


@upward
def reduce_tensor(t: Tensor) -> Any:
    """What pickle keeps of a tensor."""
    raise NotImplementedError


@upward
def array_namespace() -> Any:
    """The namespace of the array API standard."""
    raise NotImplementedError
