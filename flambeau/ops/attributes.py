"""Attributes and methods of tensors that are about other devices, other kinds of tensors and older versions: they answer, or say what to use."""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau.devices import check
from flambeau.ops.shape import unsafe_parts
from flambeau.queries import memory_format, preserve_format
from flambeau.trace.once import warn_here

# Functions of PyTorch before 1.9 -> what took their place.
_REMOVED = {
    "eig": "torch.linalg.eig, which returns complex tensors", "lstsq": "torch.linalg.lstsq, whose arguments are reversed",
    "solve": "torch.linalg.solve, whose arguments are reversed", "symeig": "torch.linalg.eigh, or torch.linalg.eigvalsh for the eigenvalues",
}  # fmt: skip
_QUANTIZED = "int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme".split()


def is_distributed(self: Any) -> bool:
    """False."""
    return False


def is_inference(self: Any) -> bool:
    """False: tensors made under inference_mode are ordinary tensors."""
    return False


def is_nonzero(self: Any) -> bool:
    """Whether the one element is not zero."""
    return bool(self)


def dim_order(self: Any, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dims from the outermost in memory to the innermost: (0, 1, 2, 3) row-major, (0, 2, 3, 1) channels-last.

    RuntimeError with `ambiguity_check` where several orders describe the same memory; if it is a list of memory formats, unless the tensor
    has exactly one of them. TypeError if it is neither.
    """
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    strides, shape = self.stride(), tuple(self.shape)
    order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
    ambiguous = len(set(strides)) < len(strides) or 1 in shape
    if ambiguity_check and ambiguous and sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
        raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    return order


def module_load(self: Any, other: Any, assign: bool = False) -> Any:
    """What load_state_dict puts in the place of this tensor: itself with the other's values, or the other."""
    if assign:
        return other.detach()
    return self.copy_(other).detach()


def record_stream(self: Any, s: Any) -> None:
    """Accepted: there are no streams."""


def reinforce(self: Any, reward: Any) -> NoReturn:
    """NotImplementedError, as in PyTorch."""
    raise NotImplementedError(
        "Trying to call `reinforce()` on a tensor: the method is removed. Use torch.distributions instead: "
        "loss = -Categorical(probs).log_prob(action) * reward; loss.backward()"
    )


def resize(self: Any, *sizes: Any) -> Any:
    """A copy of another shape with the same number of elements."""
    warn_here("non-inplace resize is deprecated")
    return self.clone().reshape(*sizes)


def resize_as(self: Any, tensor: Any) -> Any:
    """A copy with the shape of another tensor, which has as many elements."""
    warn_here("non-inplace resize_as is deprecated")
    return self.clone().reshape(tensor.shape)


def to_mkldnn(self: Any, dtype: Any = None) -> NoReturn:
    """RuntimeError: oneDNN is not used; kernels choose their own layouts."""
    raise RuntimeError("Tensor.to_mkldnn: oneDNN is not used here; kernels choose the layouts of memory by themselves, leave the tensor as it is")


def to_padded_tensor(self: Any, padding: float, output_size: Any = None) -> NoReturn:
    """NotImplementedError, as for PyTorch's strided tensors: only nested ones have it."""
    raise NotImplementedError("Tensor.to_padded_tensor: only nested tensors have it, which are not there yet; see torch.nn.utils.rnn.pad_sequence")


def dequantize(self: Any) -> Any:
    """The tensor itself as float32: it is not quantized."""
    return self.float()


def unsafe_split_with_sizes(self: Any, split_sizes: Any, dim: int = 0) -> Any:
    """split_with_sizes, whose parts may be written to with gradients."""
    return unsafe_parts(self, self.split_with_sizes(split_sizes, dim), dim)


def map2_(self: Any, x: Any, y: Any, callable: Any) -> Any:
    """Replace each element by what a Python function makes of it and of two other tensors'. Slow: for checks only."""
    from flambeau.ops.more import map_all

    return map_all(self, (x, y), callable)


def index(self: Any, positions: Any, dims: Any) -> NoReturn:
    """TypeError, as PyTorch's needs dims of functorch's own kind."""
    raise TypeError("Tensor.index works on first-class dimensions (functorch.dim), which are not there; use tensor[...]")


def _make_wrapper_subclass(*args: Any, **kwargs: Any) -> Any:
    """A tensor of a class with `__torch_dispatch__` (ops/below.py)."""
    from flambeau.ops.below import make_wrapper_subclass

    return make_wrapper_subclass(*args, **kwargs)


def _device(kind: str) -> Any:
    def move(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = preserve_format) -> NoReturn:
        check(kind)
        raise AssertionError(f"Torch not compiled with {kind.upper()} enabled")

    move.__name__ = move.__qualname__ = kind
    move.__doc__ = f"RuntimeError: there is no {kind} device."
    return move


def _removed(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"This function was deprecated since version 1.9 and is now removed. `torch.{name}`: use {_REMOVED[name]}.")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"RuntimeError: removed; use {_REMOVED[name]}."
    return method


eig, lstsq, solve, symeig = map(_removed, ("eig", "lstsq", "solve", "symeig"))


def _quantized(name: str) -> Any:
    def method(self: Any) -> NoReturn:
        raise NotImplementedError(f"Tensor.{name}: only quantized tensors have it, this one is {self.dtype}; make one by torch.quantize_per_tensor")

    method.__name__ = method.__qualname__ = name
    method.__doc__ = "NotImplementedError: only quantized tensors have it."
    return method


def install(cls: Any) -> None:
    """Put the attributes on the Tensor class."""
    for method in (
        is_distributed, is_inference, is_nonzero, dim_order, module_load, record_stream, reinforce, resize, resize_as, to_mkldnn, to_padded_tensor,
        dequantize, unsafe_split_with_sizes, map2_, index,
    ):  # fmt: skip
        setattr(cls, method.__name__, method)
    for kind in ("ipu", "mtia", "xpu"):
        setattr(cls, kind, _device(kind))
    for method in (eig, lstsq, solve, symeig):
        setattr(cls, method.__name__, method)
    for name in _QUANTIZED:
        setattr(cls, name, _quantized(name))
    for name in "is_ipu is_maia is_mtia is_xla is_vulkan is_mkldnn volatile".split():
        setattr(cls, name, False)
    cls._cdata = property(id, doc="A number that no other living tensor has: PyTorch's address of its object, by which packages tell tensors apart.")
    cls._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)
    cls.is_cpu = True
    cls.name = None
