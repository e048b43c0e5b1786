"""torch.nested: batches of tensors whose sizes differ, without padding.

nt = torch.nested.nested_tensor([torch.randn(2, 4), torch.randn(3, 4)], layout=torch.jagged)   # shape (2, j1, 4)
torch.nn.Linear(4, 8)(nt).sum(dim=1)                                                           # shape (2, 8)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau import layouts
from flambeau.nested.padding import packed
from flambeau.nested.ragged import of_sizes, ragged
from flambeau.nested.tensor import NestedTensor, jagged, strided
from flambeau.tensor import Tensor

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor"]


def _check_layout(name: str, layout: Any) -> bool:
    """Whether the layout is jagged; RuntimeError if it is neither that nor strided."""
    if layout not in (None, layouts.strided, layouts.jagged):
        raise RuntimeError(f"{name}: Specified layout is unsupported for nested tensors: {layout}; it must be torch.strided or torch.jagged")
    return layout is layouts.jagged


def nested_tensor(
    tensor_list: Sequence[Any], *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> NestedTensor:
    """A new nested tensor, a leaf, with copies of the data in a list: tensors, or what `torch.tensor` takes.

    `layout`: torch.strided (the default; all sizes may differ) or torch.jagged (one size differs). RuntimeError for tensors that do not fit together.
    """
    if not isinstance(tensor_list, (list, tuple)):
        raise TypeError(f"nested_tensor(): Expected a list of tensors, got {type(tensor_list).__name__}")
    parts = [t.detach().to(dtype or t.dtype) if isinstance(t, Tensor) else torch.tensor(t, dtype=dtype) for t in tensor_list]
    made = as_nested_tensor(parts, layout=layout, device=device)
    values = made.values().clone() if len(parts) == 1 else made.values()
    made = jagged(values, made._ragged, made._ragged_idx) if made._ragged is not None else strided(parts, values)
    return made.requires_grad_(requires_grad)  # type: ignore[return-value]


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor:
    """A nested tensor of tensors with their history: of a list, or of a tensor's rows (dim 0). One that is nested already is given back.

    RuntimeError for tensors that do not fit together: of layout jagged they have one ragged dim, of both one number of dims.
    """
    is_jagged = _check_layout("as_nested_tensor", layout)
    if isinstance(ts, NestedTensor):
        return ts if dtype is None else ts.to(dtype)  # type: ignore[attr-defined, no-any-return]
    if not isinstance(ts, (Tensor, list, tuple)) or (isinstance(ts, (list, tuple)) and not all(isinstance(t, Tensor) for t in ts)):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors")
    if isinstance(ts, Tensor) and is_jagged:
        flat = ts.flatten(0, 1).to(dtype or ts.dtype)  # type: ignore[attr-defined]
        return jagged(flat, of_sizes([int(ts.shape[1])] * int(ts.shape[0])))
    parts = list(ts.unbind(0)) if isinstance(ts, Tensor) else list(ts)  # type: ignore[attr-defined]
    if dtype is not None:
        parts = [t.to(dtype) for t in parts]
    if len({t.ndim for t in parts}) > 1 or len({t.dtype for t in parts}) > 1:
        raise RuntimeError(
            f"All Tensors given to nested_tensor must have the same dimension and dtype: got {[tuple(t.shape) for t in parts]} of {[t.dtype for t in parts]}"
        )
    if not is_jagged:
        return strided(parts)
    if not parts:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    differ = [d for d in range(parts[0].ndim) if len({t.shape[d] for t in parts}) > 1]
    if len(differ) > 1 or not parts[0].ndim:
        shapes = [tuple(t.shape) for t in parts]
        raise RuntimeError(f"Cannot represent given tensor list as a nested tensor with the jagged layout: one dim may differ, got {shapes}")
    along = differ[0] if differ else 0
    return jagged(torch.cat(parts, dim=along), of_sizes([int(t.shape[along]) for t in parts]), along + 1)


def nested_tensor_from_jagged(
    values: Tensor, offsets: Tensor | None = None, lengths: Tensor | None = None, jagged_dim: int | None = None, min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:  # fmt: skip
    """A nested tensor over `values`, with their history: row i is values[offsets[i]:offsets[i + 1]], or of length lengths[i] from offsets[i] on.

    `offsets`: (rows + 1,), from `lengths` where it is not given. `jagged_dim`: along which dim of the result rows differ, by default 1. RuntimeError if
    neither `offsets` nor `lengths` is given.
    """
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))  # type: ignore[attr-defined]
        lengths = None
    return jagged(values, ragged(offsets, lengths), 1 if jagged_dim is None else jagged_dim)


def to_padded_tensor(input: NestedTensor, padding: float, output_size: Any = None) -> Tensor:
    """A strided tensor, `padding` where a component has no elements: see NestedTensor.to_padded_tensor."""
    if not isinstance(input, NestedTensor):
        raise RuntimeError("to_padded_tensor(): the input must be a nested tensor")
    return input.to_padded_tensor(padding, output_size)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = layouts.strided) -> NestedTensor:
    """Views of a tensor's rows: of row i the `length[i]` elements from `start[i]` on, along dim 1. `start`, `length`: ints or (rows,) tensors.

    RuntimeError for another dim. Of layout jagged the rows stay where they are in memory.
    """
    if dim != 1:
        raise RuntimeError(f"nested.narrow(): only dim=1 can be narrowed, got dim={dim}")
    rows, width = int(tensor.shape[0]), int(tensor.shape[1])
    starts, lengths = (x.to(torch.int64) if isinstance(x, Tensor) else torch.full((rows,), int(x)) for x in (start, length))
    if not _check_layout("narrow", layout):
        return strided([tensor[i, s : s + n] for i, (s, n) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True))])
    offsets = torch.cat([torch.arange(rows) * width + starts, torch.tensor([rows * width])])
    return jagged(tensor.flatten(0, 1), ragged(offsets, lengths))  # type: ignore[attr-defined]


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """Of each row the elements where `mask` is True. RuntimeError unless the mask is of layout strided, of bool and broadcasts to the tensor."""
    if mask.layout is not layouts.strided:
        raise RuntimeError(f"nested.masked_select requires a strided mask, given {mask.layout}")
    wide = mask.expand(tensor.shape)  # type: ignore[attr-defined]
    counts = wide.sum(dim=tuple(range(1, wide.ndim))).tolist()
    return jagged(tensor.masked_select(wide), of_sizes(counts))  # type: ignore[attr-defined]


def _rebuild_njt(constructor_kwargs: dict[str, Any]) -> NestedTensor:
    """What PyTorch's pickles of jagged tensors call."""
    made = nested_tensor_from_jagged(constructor_kwargs["values"], constructor_kwargs["offsets"], constructor_kwargs.get("lengths"))
    return packed(made)


from flambeau.names import answering as _answering

__getattr__ = _answering("torch.nested", globals())
