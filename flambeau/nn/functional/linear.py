"""Dense layers, look-up tables and distances between vectors."""

from __future__ import annotations

import math

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, functional, functional_with_out, primitives, widen
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.linear import matmul_of
from flambeau.ops.remembered import remembered
from flambeau.ops.result_strides import as_suggested
from flambeau.ops.signatures import whole


@functional_with_out
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias: input (..., in_features), weight (out_features, in_features) or (in_features,), bias (out_features)."""
    if not (input.ndim and weight.ndim):
        raise RuntimeError(f"both arguments to linear need to be at least 1D, but they are {input.ndim}D and {weight.ndim}D")
    if weight.ndim not in (1, 2):
        raise RuntimeError(f"linear: weight must have 1 or 2 dimensions, but has shape {tuple(weight.shape)}")
    if input.ndim == 0 or input.shape[-1] != weight.shape[-1]:
        rows = input.numel() // input.shape[-1] if input.ndim and input.shape[-1] else 1
        columns = input.shape[-1] if input.ndim else 1
        out = weight.shape[0] if weight.ndim == 2 else 1
        raise RuntimeError(
            f"linear: mat1 and mat2 shapes cannot be multiplied ({rows}x{columns} and {weight.shape[-1]}x{out}): input of shape "
            f"{tuple(input.shape)} has {columns} features in its last dimension, weight of shape {tuple(weight.shape)} "
            f"expects {weight.shape[-1]}"
        )
    if input.dtype != weight.dtype:
        raise RuntimeError(
            f"linear: mat1 and mat2 must have the same dtype, but got {input.dtype} (input) and {weight.dtype} (weight); cast one of them with .to(dtype)"
        )
    most = 1 if input.ndim == 1 else 2 if input.is_contiguous() else input.ndim  # dims: PyTorch adds the bias to the rows of a matrix
    if bias is not None and (bias.numel() not in (1, weight.shape[0] if weight.ndim == 2 else 1) or (weight.ndim == 2 and bias.ndim > most)):
        raise RuntimeError(f"linear: bias of shape {tuple(bias.shape)} does not fit weight of shape {tuple(weight.shape)}: it needs {weight.shape[0]} elements")
    columns_of = weight.t() if weight.ndim == 2 else weight
    if bias is None or bias.dtype is not input.dtype or (input.ndim > 2 and not input.is_contiguous()):
        y = torch.matmul(input, columns_of)
        return y if bias is None else y + bias
    # PyTorch rounds 16 bits once, when the bias is added (not of inputs of more than two dims that are not contiguous).
    return (matmul_of(input, columns_of, "linear", wide=True) + widen(bias)).to(input.dtype)


@functional
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[..., k] = x1 @ weight[k] @ x2 + bias[k]: input1 (..., I), input2 (..., J), weight (K, I, J)."""
    if input1.ndim != input2.ndim or input1.shape[:-1] != input2.shape[:-1]:
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got shapes {tuple(input1.shape)} and {tuple(input2.shape)}")
    unlike = weight.ndim == 2 and input1.ndim and input1.shape[-1] != weight.shape[1]
    if (weight.ndim < 3 or not input1.ndim) and not unlike:
        raise IndexError(
            f"bilinear(): Dimension out of range: inputs need at least 1 dimension and weight 3, got shapes {tuple(input1.shape)} and {tuple(weight.shape)}"
        )
    if weight.ndim != 3:
        raise RuntimeError(f"bilinear(): expected weight of 3 dimensions, (outputs, features of input1, features of input2), got {tuple(weight.shape)}")
    k, i, j = weight.shape
    if input1.shape[-1] != i or input2.shape[-1] != j:
        raise RuntimeError(
            f"bilinear(): input1 size does not match weight size: got {input1.shape[-1]} but expected {i}"
            if input1.shape[-1] != i
            else f"bilinear(): input2 size does not match weight size: got {input2.shape[-1]} but expected {j}"
        )
    if bias is not None and not bias.ndim:
        raise IndexError(f"bilinear(): Dimension specified as 0 but bias has no dimensions: it needs {k} elements")
    if bias is not None and (bias.shape[0] != k or bias.ndim > 1):
        raise RuntimeError(f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected {k}; bias has shape {tuple(bias.shape)}")
    batch = tuple(input1.shape[:-1])
    n = math.prod(batch)  # not -1: sizes of features may be 0
    x1 = input1.reshape(n, i)
    x2 = input2.reshape(n, j)
    left = torch.matmul(x1, weight.permute(1, 0, 2).reshape(i, k * j)).reshape(n, k, j)
    y = torch.matmul(left, x2.unsqueeze(-1)).reshape(*batch, k)
    return y if bias is None else y + bias


@functional
def _embedding(input: Tensor, weight: Tensor, padding_idx: int = -1) -> Tensor:
    if weight.ndim != 2:
        raise RuntimeError(f"'weight' must be 2-D, but has shape {tuple(weight.shape)}")
    if input.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(
            f"embedding: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
            f"but got {input.dtype} instead; cast it with .long()"
        )
    index = input.to(torch.int64)
    rows = primitives().take_rows(weight, primitives().bounded(index, weight.shape[0], 0), dim=0)
    if padding_idx < 0:
        return rows  # type: ignore[no-any-return]
    frozen = (index == padding_idx).unsqueeze(-1)
    return torch.where(frozen, rows.detach(), rows)


@functional
def _embedding_by_frequency(input: Tensor, weight: Tensor, padding_idx: int) -> Tensor:
    """The rows, whose gradients are divided by how often their index occurs: values of the rows as they are, and slopes of scaled ones."""
    index = input.to(torch.int64)
    ones = torch.ones_like(index)
    counts = primitives().put_rows(torch.zeros(weight.shape[0], dtype=torch.int64), index.reshape(-1), ones.reshape(-1), dim=0, mode="add")
    share = 1.0 / primitives().take_rows(counts, index, dim=0).to(weight.dtype)
    rows = _embedding(input, weight, padding_idx)
    return rows.detach() + (rows - rows.detach()) * share.unsqueeze(-1)


def embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of `weight` (rows, width) by index: input of any shape, result (*input.shape, width).

    `scale_grad_by_freq`: the gradient of a row is divided by how often its index occurs.
    The row `padding_idx` gets no gradient. `max_norm`: rows that are looked up are first scaled, in place, to that norm at
    most. A row index outside the table is an IndexError.
    """
    if padding_idx is None:
        padding_idx = -1
    else:
        if padding_idx.__class__ is not int:
            padding_idx = whole("embedding", "padding_idx", padding_idx)
        rows = weight.shape[0]
        if not -rows <= padding_idx < rows:
            raise AssertionError("Padding_idx must be within num_embeddings")
        if padding_idx < 0:
            padding_idx += rows
    if max_norm is not None:
        _renormalise(weight, input, max_norm, norm_type)
    if scale_grad_by_freq and weight.requires_grad and torch.is_grad_enabled():
        if sparse:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        return _embedding_by_frequency(input, weight, padding_idx)
    if sparse and weight.requires_grad and torch.is_grad_enabled():
        from flambeau.nn.functional.sparse_gradients import SparseLookUp

        return SparseLookUp.apply(input, weight, padding_idx)  # type: ignore[no-any-return]
    return _embedding(input, weight, padding_idx)


def _renormalise(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows named by `index` to `max_norm` at most (the 1e-7 is PyTorch's embedding_renorm_)."""
    if weight.ndim != 2:
        raise RuntimeError(f"embedding(): Expected 2-dimensional tensor, but got a weight of shape {tuple(weight.shape)}, whose rows have no norm to limit")
    with torch.no_grad():
        rows = torch.unique(index.reshape(-1))
        values = weight[rows]
        norms = torch.norm(values, norm_type, dim=1, keepdim=True)
        weight[rows] = torch.where(norms > max_norm, values * (max_norm / (norms + 1e-7)), values)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int64 tensor with a last dimension of `num_classes` (-1: the largest index + 1) that is 1 at the index, else 0."""
    if input.dtype != torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    num_classes = int(num_classes)  # -1 of a tensor of bytes is none
    if num_classes == 0 or num_classes < -1:
        raise RuntimeError("num_classes should be positive")
    if input.is_meta and num_classes > 0:
        return _one_hot(input, num_classes)
    if input.numel():
        lowest, highest = int(input.min().item()), int(input.max().item())
        if lowest < 0:
            raise RuntimeError("Class values must be non-negative.")
        if num_classes == -1:
            num_classes = highest + 1
        elif highest >= num_classes:
            raise RuntimeError("Class values must be smaller than num_classes.")
    elif num_classes == -1:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    return _one_hot(input, num_classes)


@functional
def _one_hot(tensor: Tensor, num_classes: int) -> Tensor:
    return (tensor.unsqueeze(-1) == torch.arange(num_classes)).to(torch.int64)


@functional
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1 . x2 / (max(|x1|, eps) * max(|x2|, eps)) along `dim`; the two broadcast."""
    dtype = torch.promote_types(x1.dtype, x2.dtype)
    if not dtype.is_floating_point:
        raise RuntimeError(f"cosine_similarity: expected common_dtype to be floating point, yet common_dtype is {dtype} (of {x1.dtype} and {x2.dtype})")
    if not eps >= 0:
        raise RuntimeError(f"cosine_similarity: eps must be non-negative, got: {eps}")
    x1, x2 = torch.broadcast_tensors(widen(x1.to(dtype)), widen(x2.to(dtype)))
    floor = eps * eps
    n1 = torch.sqrt((x1 * x1).sum(dim, keepdim=True).clamp(min=floor))
    n2 = torch.sqrt((x2 * x2).sum(dim, keepdim=True).clamp(min=floor))
    return ((x1 / n1) * (x2 / n2)).sum(dim).to(dtype)


def _norm(x: Tensor, p: float, dim: int, keepdim: bool) -> Tensor:
    return torch.norm(x, p, dim=dim, keepdim=keepdim)


@remembered
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """The p-norm of x1 - x2 + eps along the last dimension."""
    return _norm(x1 - x2 + eps, p, -1, keepdim)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances between all pairs of rows, i < j, as one vector."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist only supports 2D tensors, got: {input.ndim}D, of shape {tuple(input.shape)}")
    if not p >= 0:
        raise RuntimeError(f"pdist only supports non-negative p values, got p={p}")
    refuse_dtype("pdist", input.dtype)
    n = input.shape[0]
    first, second = torch.triu_indices(n, n, 1)
    gap = input[first] - input[second]
    if p == 0:  # of NaN it is NaN, unlike a norm
        return torch.where(gap.isnan(), gap.detach(), gap.sgn().abs()).sum(-1)
    if input.shape[-1] == 0:  # rows of nothing are equal, by any measure
        p = 1.0
    return _norm(gap, p, -1, False)


@remembered
def normalize(input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """x / max(p-norm of x along `dim`, eps)."""
    norm = torch.norm(input, p, dim=dim, keepdim=True).clamp_min(eps).expand_as(input)
    return input / norm if out is None else torch.div(input, norm, out=out)


@functional
@as_suggested()
def _channel_shuffle(input: Tensor, groups: int) -> Tensor:
    n, c, *rest = input.shape
    return input.reshape(n, groups, c // groups, *rest).transpose(1, 2).reshape(n, c, *rest)


@remembered
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """(N, C, ...): channels as (groups, C / groups), transposed: a copy. Zhang et al., 2017."""
    if input.ndim < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    c = input.shape[1]
    if c % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {c} channels and {groups} groups.")
    return _channel_shuffle(input, groups) if input.numel() else input.view(input.shape)


__all__ = [
    "bilinear", "channel_shuffle", "cosine_similarity", "embedding", "linear", "normalize",
    "one_hot", "pairwise_distance", "pdist",
]  # fmt: skip
