"""NestedTensor: a batch of tensors whose sizes differ, over one tensor of values.

The object is itself the tensor of values for autograd, optimizers and copies (`values()` is an alias of it); what it says of its shape, and what functions
make of it, is the batch. Layout `jagged`: one dim is ragged, the values are the rows one after another along it. Layout `strided`: any sizes may
differ, the values are the elements of all components in one dim.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import flambeau as torch
from flambeau import layouts
from flambeau.nested.ragged import Ragged, RaggedSize, ragged
from flambeau.ops.dispatch import DisableTorchFunctionSubclass, admit
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

_VALUES = Tensor.shape.__get__  # type: ignore[attr-defined]


def inner(t: Tensor) -> Tensor:
    """The values of a nested tensor, with their history."""
    with DisableTorchFunctionSubclass():
        return t.as_subclass(Tensor)


class NestedTensor(Tensor):
    """A batch of tensors whose sizes differ: see torch.nested.nested_tensor."""

    _ragged: Ragged | None  # of layout jagged
    _ragged_idx: int  # which dim of the batch it is
    _sizes: tuple[tuple[int, ...], ...]  # of the components, of layout strided

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from flambeau.nested.functions import call

        return call(func, args, kwargs or {})

    # -- what it says of itself -----------------------------------------------------------------------------------
    @property
    def _layout_of(self) -> Any:
        return layouts.strided if self._ragged is None else layouts.jagged

    @property
    def layout(self) -> Any:
        """torch.jagged or torch.strided."""
        return self._layout_of

    is_nested = True

    @property
    def shape(self) -> Any:  # type: ignore[override]
        """(rows, ...), with a symbol j for the ragged size; RuntimeError of layout strided, whose components have sizes of their own."""
        if self._ragged is None:
            raise RuntimeError("NestedTensorImpl doesn't support sizes: components of layout strided may differ in each dim; use size(dim) or unbind()")
        with DisableTorchFunctionSubclass():
            sizes: list[Any] = list(_VALUES(self))
        sizes[self._ragged_idx - 1] = self._ragged.size
        return Size((self._ragged.rows, *sizes))

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one size of it. RuntimeError where the components of layout strided differ."""
        if dim is None or self._ragged is not None:
            return self.shape if dim is None else self.shape[dim]
        ndim = self.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got {dim})")
        if dim % ndim == 0:
            return len(self._sizes)
        found = {s[dim % ndim - 1] for s in self._sizes}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return found.pop()

    @property
    def ndim(self) -> int:
        """The number of dims, that of the batch included."""
        if self._ragged is None:
            return 1 + (len(self._sizes[0]) if self._sizes else 0)
        with DisableTorchFunctionSubclass():
            return 1 + len(_VALUES(self))

    def dim(self) -> int:
        """`ndim`."""
        return self.ndim

    def stride(self, dim: int | None = None) -> Any:
        """Of the values; that of the batch is what a row would take."""
        if self._ragged is None:
            raise RuntimeError("NestedTensorImpl doesn't support strides: use unbind()")
        steps = tuple(self.values().stride())
        strides = (self._ragged.size * steps[self._ragged_idx - 1], *steps)
        return strides if dim is None else strides[dim]

    def numel(self) -> int:
        """How many elements there are in all components."""
        if self._ragged is None:
            return sum(prod(s) for s in self._sizes)
        return sum(self._ragged.sizes()) * prod([n for i, n in enumerate(self.values().shape) if i != self._ragged_idx - 1])

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the rows lie one after another, in order."""
        return self._ragged is None or (self._ragged.lengths is None and self._ragged_idx == 1 and self.values().is_contiguous())

    def __len__(self) -> int:
        return len(self._sizes) if self._ragged is None else self._ragged.rows

    def __iter__(self) -> Iterator[Tensor]:
        return iter(self.unbind())

    def __reduce_ex__(self, protocol: Any) -> Any:
        parts = (self._sizes,) if self._ragged is None else (self._ragged.offsets, self._ragged.lengths, self._ragged_idx)
        return _rebuild_njt, (self.values().detach(), self._ragged is not None, parts, self.requires_grad)

    def __deepcopy__(self, memo: Any) -> Any:
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment")
        copied = like(self, self.values().detach().clone())
        return copied.requires_grad_(self.requires_grad)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        values = self.values()
        grad = f", grad_fn={values.grad_fn}" if not self.is_leaf else ", requires_grad=True" if values.requires_grad else ""
        if self._ragged is not None:
            return f"NestedTensor(size={tuple(self.shape)}, offsets={self._ragged.offsets}{grad}, contiguous={self.is_contiguous()})"
        rows = ["  " + repr(t.detach()).replace("\n", "\n  ") for t in self.unbind()]
        return "nested_tensor([\n" + ",\n".join(rows) + "\n]" + grad + ")"

    # -- parts ----------------------------------------------------------------------------------------------------
    def values(self) -> Tensor:
        """All rows along one dim, with their history: the same memory."""
        return inner(self)

    _values = property(inner)

    def offsets(self) -> Tensor:
        """(rows + 1,): where each row starts in the values, and the end. RuntimeError of layout strided."""
        return self._jagged("offsets").offsets

    def lengths(self) -> Tensor | None:
        """(rows,): how long each row is; None where rows end where the next begin. RuntimeError of layout strided."""
        return self._jagged("lengths").lengths

    def _jagged(self, name: str) -> Ragged:
        if self._ragged is None:
            raise RuntimeError(f"{name}(): only nested tensors of layout torch.jagged have {name}, this one is torch.strided")
        return self._ragged

    def _nested_tensor_size(self) -> Tensor:
        """(components, dims): the sizes of each component."""
        return torch.tensor([list(t.shape) for t in self.unbind()], dtype=torch.int64)

    def unbind(self, dim: int = 0) -> tuple[Tensor, ...]:
        """The components, as views of the values. RuntimeError for another dim than 0."""
        if dim != 0:
            raise RuntimeError(f"unbind(): only supported for NestedTensor on dim=0, got dim={dim}")
        values = self.values()
        if self._ragged is None:
            parts = torch.split(values, [prod(s) for s in self._sizes])
            return tuple([p.view(s) for p, s in zip(parts, self._sizes, strict=True)])
        along = self._ragged_idx - 1
        if self._ragged.lengths is None:
            return tuple(torch.split(values, self._ragged.sizes(), dim=along))
        return tuple([values.narrow(along, s, n) for s, n in zip(self._ragged.starts(), self._ragged.sizes(), strict=True)])

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """(rows, longest, ...): a strided tensor, `padding` where a row has no elements. `output_size`: of the result, at least that size."""
        from flambeau.nested.padding import to_padded

        return to_padded(self, padding, output_size)

    def tolist(self) -> Any:
        """RuntimeError: use unbind()."""
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got NestedTensor: use [t.tolist() for t in nt.unbind()]")

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError: use unbind()."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses: use [t.numpy() for t in nt.unbind()]")

    # -- gradients ------------------------------------------------------------------------------------------------
    @property
    def grad(self) -> Any:
        """The accumulated gradient of a leaf: nested as it is."""
        with DisableTorchFunctionSubclass():
            found = Tensor.grad.__get__(self)  # type: ignore[attr-defined]
        return None if found is None else like(self, found)

    @grad.setter
    def grad(self, value: Any) -> None:
        with DisableTorchFunctionSubclass():
            Tensor.grad.__set__(self, value if value is None else inner(value))  # type: ignore[attr-defined]

    def backward(self, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None) -> None:
        """Gradients of what this was computed from; `gradient` is nested as this is."""
        given = None if gradient is None else inner(gradient)
        self.values().backward(given, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)


admit(NestedTensor)


def _made(values: Tensor, structure: Ragged | None, ragged_idx: int, sizes: tuple[tuple[int, ...], ...]) -> NestedTensor:
    with DisableTorchFunctionSubclass():
        made = values.as_subclass(NestedTensor)
    made._ragged, made._ragged_idx, made._sizes = structure, ragged_idx, sizes
    return made


def jagged(values: Tensor, structure: Ragged, ragged_idx: int = 1) -> NestedTensor:
    """A nested tensor of layout jagged over values with their history."""
    return _made(values, structure, ragged_idx, ())


def strided(components: list[Tensor], flat: Tensor | None = None) -> NestedTensor:
    """A nested tensor of layout strided of some components, with their history."""
    if flat is None:
        flat = torch.cat([t.reshape(-1) for t in components]) if components else torch.empty(0)
    return _made(flat, None, 0, tuple([tuple(t.shape) for t in components]))


def like(t: NestedTensor, values: Tensor) -> NestedTensor:
    """Other values in the same places."""
    return _made(values, t._ragged, t._ragged_idx, t._sizes)


def _rebuild_njt(values: Tensor, is_jagged: bool, parts: tuple[Any, ...], requires_grad: bool) -> NestedTensor:
    """What pickles of nested tensors call."""
    made = jagged(values, ragged(parts[0], parts[1]), parts[2]) if is_jagged else _made(values, None, 0, parts[0])
    with DisableTorchFunctionSubclass():
        made.requires_grad_(requires_grad)
    return made


__all__ = ["NestedTensor", "RaggedSize", "inner", "jagged", "like", "strided"]
