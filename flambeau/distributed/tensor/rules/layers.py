"""Layers: convolutions, pooling, normalization, look-up tables, attention, dropout."""

from __future__ import annotations

from typing import Any, Final

import flambeau
from flambeau.distributed.tensor._utils import compute_local_shape_and_global_offset
from flambeau.distributed.tensor.calls import Call, Chosen, Rule
from flambeau.distributed.tensor.placement_types import Partial, Replicate, Shard
from flambeau.distributed.tensor.rules.filling import seeded
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, names

F: Final = flambeau.nn.functional


def _ndim(x: Any) -> int:
    return len(x._layout.shape)


# -- convolutions and pooling ---------------------------------------------------------------------------------------------
def _convolution(dims: int) -> Any:
    space = WHOLE * dims

    def rule(
        c: Call, input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1, **kwargs: Any
    ) -> Rule:  # fmt: skip
        batch = "" if _ndim(input) != dims + 2 else "n" if c.filled(input._layout.shape[0]) else WHOLE  # kernels take no empty tensors
        channel = "c" if groups == 1 and c.filled(weight._layout.shape[1]) else WHOLE
        out = "o" if groups == 1 and c.filled(weight._layout.shape[0]) else WHOLE
        ins = [batch + channel + space, out + channel + space, *([out] if bias is not None else [])]
        return Rule(by_letters(ins, batch + out + space, [] if bias is not None else [[0], [1]], sums=bias is None))

    return rule


def _pooling(dims: int) -> Any:
    def rule(c: Call, input: Any, *args: Any, **kwargs: Any) -> Rule:
        sizes = input._layout.shape[: _ndim(input) - dims]
        letters = "".join([letter if c.filled(n) else WHOLE for letter, n in zip(names(len(sizes)), sizes, strict=True)]) + WHOLE * dims
        return Rule(by_letters([letters], letters))

    return rule


def interpolate(c: Call, input: Any, *args: Any, **kwargs: Any) -> Rule:
    """The first two dims stay cut."""
    return _pooling(_ndim(input) - 2)(c, input)  # type: ignore[no-any-return]


# -- normalization --------------------------------------------------------------------------------------------------------
def layer_norm(c: Call, input: Any, normalized_shape: Any, *args: Any, **kwargs: Any) -> Rule:
    """The last dims are whole."""
    letters = names(_ndim(input) - len(normalized_shape)) + WHOLE * len(normalized_shape)
    return Rule(by_letters([letters, *[WHOLE * _ndim(t) for t in c.tensors[1:]]], letters), follows=True)


def group_norm(c: Call, input: Any, *args: Any, **kwargs: Any) -> Rule:
    """The batch stays cut."""
    letters = "n" + WHOLE * (_ndim(input) - 1)
    return Rule(by_letters([letters, *[WHOLE * _ndim(t) for t in c.tensors[1:]]], letters), follows=True)


def batch_norm(
    func: Any, input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Over the whole batch, on however many processes it lies."""
    dims = [0, *range(2, input.ndim)]
    wide = (1, -1) + (1,) * (input.ndim - 2)
    if training or running_mean is None:
        mean = input.mean(dims)
        centred = input - mean.view(wide)
        var = (centred * centred).mean(dims)
        if running_mean is not None:
            count = input.numel() / input.shape[1]
            with flambeau.no_grad():
                whole = [Replicate()] * input.device_mesh.ndim
                running_mean.mul_(1 - momentum).add_(mean.detach().redistribute(placements=whole) * momentum)
                running_var.mul_(1 - momentum).add_(var.detach().redistribute(placements=whole) * (momentum * count / max(1.0, count - 1)))
    else:
        var, centred = running_var, input - running_mean.view(wide)
    y = centred * (var + eps).rsqrt().view(wide)
    if weight is not None:
        y = y * weight.view(wide)
    return y if bias is None else y + bias.view(wide)


# -- look-up tables -------------------------------------------------------------------------------------------------------
def embedding(c: Call, input: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, *args: Any, **kwargs: Any) -> Rule:
    """The table may be cut along either dim; along rows each process gives zeros for what it has not."""
    if max_norm is not None:
        raise NotImplementedError(f"embedding(): max_norm is not there for DTensors: {c.placed()}")
    rows = names(_ndim(input))
    ways = by_letters([rows, WHOLE + "z"], rows + "z", [[1]], sums=False)
    ways.append(((Replicate(), Shard(0)), Partial()))
    count = weight._layout.shape[0]
    padding = None if padding_idx is None else padding_idx % count

    def run(local: Any, named: Any, chosen: Chosen) -> Any:
        spec = chosen.given[1]
        if not any(p == Shard(0) for p in spec.placements):
            return c.func(*local, **named)
        (size, *_), (start, *_) = compute_local_shape_and_global_offset(spec.shape, spec.mesh, spec.placements)
        index, table = local[0], local[1]
        here = (index >= start) & (index < start + size)
        if not size:
            return table.new_zeros((*index.shape, table.shape[1])) + table.sum() * 0
        own = None if padding is None or not start <= padding < start + size else padding - start
        return F.embedding(flambeau.where(here, index - start, 0), table, own) * here.unsqueeze(-1).to(table.dtype)

    return Rule(ways, [(*input._layout.shape, weight._layout.shape[1])], run)


# -- attention ------------------------------------------------------------------------------------------------------------
def attention(
    c: Call, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Any = None,
    enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Batch and heads stay cut; the queries, too, where it does not matter which they are."""
    if dropout_p:
        return _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    heads = names(_ndim(query) - 2)
    shared = list(heads)
    for other in (key, value):
        for d in range(len(heads)):
            if other._layout.shape[d] != query._layout.shape[d] and not (enable_gqa and c.even(other._layout.shape[d]) and c.even(query._layout.shape[d])):
                shared[d] = WHOLE
    batch = "".join(shared)
    rows = WHOLE if is_causal or attn_mask is not None else "x"
    ins = [batch + rows + WHOLE, batch + WHOLE + WHOLE, batch + WHOLE + "y"]
    if attn_mask is not None and len(c.tensors) > 3:
        sizes = attn_mask._layout.shape
        lead = len(sizes) - 2
        ins.append("".join([batch[len(batch) - lead + d] if sizes[d] != 1 else WHOLE for d in range(lead)]) + WHOLE + WHOLE)
    return Rule(by_letters(ins, batch + rows + "y"))


def _with_dropout(q: Any, k: Any, v: Any, mask: Any, p: float, is_causal: bool, scale: Any, grouped: bool) -> Any:
    if grouped:
        raise NotImplementedError("scaled_dot_product_attention(): dropout_p with enable_gqa is not there for DTensors")
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        allowed = flambeau.ones(q.shape[-2], k.shape[-2], dtype=flambeau.bool).tril()
        mask = _beside(q, allowed)
    if mask is not None:
        scores = scores.masked_fill(~mask, -flambeau.inf) if mask.dtype is flambeau.bool else scores + mask
    return F.dropout(F.softmax(scores, -1), p) @ v


def _beside(x: Any, plain: Any) -> Any:
    from flambeau.distributed.tensor.api import made
    from flambeau.distributed.tensor.spec import Spec

    return made(plain, Spec(x._layout.mesh, (Replicate(),) * x._layout.mesh.ndim, tuple(plain.shape)))


# -- dropout --------------------------------------------------------------------------------------------------------------
def dropout(func: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False, **kwargs: Any) -> Any:
    """Parts have masks of their own; the whole on every process has one mask."""
    from flambeau.distributed.tensor.api import inner, made

    training = kwargs.get("train", training)
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0:
        return input
    if any(isinstance(q, Partial) for q in input._layout.placements):
        input = input.redistribute(placements=input._layout.gradient().placements)
    local = inner(input)
    mask = flambeau.empty(tuple(local.shape), dtype=input.dtype).bernoulli_(1 - p, generator=seeded(input._layout))
    mask = made(mask / (1 - p) if p < 1 else mask, input._layout)
    return input.mul_(mask) if inplace else input * mask


RULES: Final[dict[str, Any]] = {
    **{f"conv{d}d": _convolution(d) for d in (1, 2, 3)},
    **{f"{kind}_pool{d}d": _pooling(d) for kind in ("max", "avg", "adaptive_avg", "adaptive_max", "lp") for d in (1, 2, 3)},
    "interpolate": interpolate, "layer_norm": layer_norm, "rms_norm": layer_norm, "group_norm": group_norm, "instance_norm": group_norm,
    "embedding": embedding, "scaled_dot_product_attention": attention,
}  # fmt: skip
DIRECT: Final[dict[str, Any]] = {"batch_norm": batch_norm, "dropout": dropout}
