"""Layers under the names and the argument order of the torch namespace (`torch.batch_norm`, `torch.lstm`, ...).

They take what nn.functional takes, but as PyTorch's dispatcher orders it: weights before statistics, reductions as numbers, all
parameters of a recurrent network in one list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn.functional import recurrent
from flambeau.nn.functional.dropout import channels_dropped, mask_of
from flambeau.nn.functional.normalization import _group_norm, inverse_deviation, standardised, standardised_samples
from flambeau.nn.functional.vision import padded
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.named import public
from flambeau.ops.remembered import remembered_writes
from flambeau.ops.shape import unsafe_parts
from flambeau.ops.tied import tied_to
from flambeau.tensor import Tensor, normalize_dim
from flambeau.trace.mutation import into

REDUCTIONS = ("none", "mean", "sum")
_SAMPLING = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


# -- normalisation ------------------------------------------------------------------------------------------------
@remembered_writes
def batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """nn.functional.batch_norm with PyTorch's native order of arguments, of any eps, and also of one value for each channel."""
    return standardised(input, running_mean, running_var, weight, bias, training, momentum, eps)


@remembered_writes
def instance_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, use_input_stats: bool,
    momentum: float, eps: float, cudnn_enabled: bool,
) -> Tensor:  # fmt: skip
    """nn.functional.instance_norm with PyTorch's native order of arguments, also of one value for each channel."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false")
    return standardised_samples(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@public("native_batch_norm")
def native_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: bool,
    momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(the normalised input, the batch's means, 1 / its standard deviations); the last two are empty outside of training."""
    refuse_dtype("batch_norm_train", input.dtype)
    empty = input.new_empty(0)
    mean, scale = empty, empty
    if training:
        variance, mean = torch.var_mean(input.detach(), dim=[d for d in range(input.ndim) if d != 1], correction=0)
        scale = inverse_deviation(variance, eps)
    return standardised(input, running_mean, running_var, weight, bias, training, momentum, eps), mean, scale


def native_norm(input: Tensor, p: Any = 2, dim: Any = (), keepdim: bool = False, dtype: Any = None) -> Tensor:
    """torch.norm."""
    return torch.norm(input, p, None if dim == () else dim, keepdim, dtype=dtype)


def embedding_bag(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """nn.functional.embedding_bag with mode 0 (sum), 1 (mean) or 2 (max), as (bags, the bag of each index, its size, where the maxima are).

    Of mode 0 the sizes are zeros, as PyTorch's kernel for it does not count.
    """
    if mode not in (0, 1, 2):
        raise ValueError(f"embedding_bag: mode is 0 (sum), 1 (mean) or 2 (max), got {mode}")
    names = ("sum", "mean", "max")
    bags = F.embedding_bag(
        indices, weight, offsets, scale_grad_by_freq=scale_grad_by_freq, mode=names[mode], sparse=sparse, per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset, padding_idx=padding_idx,
    )  # fmt: skip
    starts = offsets if not include_last_offset else offsets[:-1]
    places = torch.arange(indices.shape[0], dtype=offsets.dtype)
    owner = torch.searchsorted(starts, places, right=True).to(offsets.dtype) - 1
    counted = torch.ones_like(indices, dtype=offsets.dtype) if padding_idx is None else (indices != padding_idx).to(offsets.dtype)
    sizes = torch.zeros(starts.shape[0], dtype=offsets.dtype)
    if mode:
        sizes = sizes.index_add(0, owner, counted)
    return bags, owner, sizes, sizes.clone()


def native_layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """(the normalised input, the means, 1 / the standard deviations), the last two with dimensions of size 1."""
    refuse_dtype("layer_norm", input.dtype)
    variance, mean = torch.var_mean(input.detach(), dim=list(range(input.ndim - len(normalized_shape), input.ndim)), correction=0, keepdim=True)
    return F.layer_norm(input, tuple(normalized_shape), weight, bias, eps), mean, torch.rsqrt(variance + eps)


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(the normalised input, the means, 1 / the standard deviations), the last two of shape (N, group)."""
    refuse_dtype("group_norm", input.dtype)
    variance, mean = torch.var_mean(input.reshape(N, group, C // max(group, 1) * HxW), dim=2, correction=0)
    scale = inverse_deviation(variance, eps)
    return _group_norm(input, group, weight, bias, eps), tied_to(mean, weight, bias), tied_to(scale, weight, bias)


# -- dropout ------------------------------------------------------------------------------------------------------
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(the input after dropout, which elements were kept)."""
    if train is False or not input.numel():
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    keep = mask_of(input, p)
    return input * (keep.to(input.dtype) * (1.0 / (1.0 - p) if p < 1.0 else 0.0)), keep


def _in_place(function: Any) -> Any:
    def call(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return input.copy_(function(input.clone() if input.requires_grad else input, *args, **kwargs))  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = function.__name__ + "_"
    call.__doc__ = f"`{function.__name__}` in place."
    return call


def feature_dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """Dropout of whole channels: the mask spans the first two dimensions."""
    return channels_dropped(input, p, train)


dropout_, alpha_dropout_, feature_alpha_dropout_ = _in_place(F.dropout), _in_place(F.alpha_dropout), _in_place(F.feature_alpha_dropout)
feature_dropout_ = _in_place(feature_dropout)
celu_, selu_, threshold_, rrelu_ = _in_place(F.celu), _in_place(F.selu), _in_place(F.threshold), F.rrelu_


# -- convolution, pooling, resampling -----------------------------------------------------------------------------
def convolution(
    input: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int,
) -> Tensor:  # fmt: skip
    """A convolution of 1, 2 or 3 spatial dimensions, or a transposed one."""
    dims = weight.ndim - 2
    if dims not in (1, 2, 3):
        raise RuntimeError(f"convolution: expected a weight of 3 to 5 dimensions, got shape {tuple(weight.shape)}")
    if transposed:
        function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
        return function(input, weight, bias, tuple(stride), tuple(padding), tuple(output_padding), groups, tuple(dilation))
    return (F.conv1d, F.conv2d, F.conv3d)[dims - 1](input, weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """nn.functional.pad in mode "constant", also with complex numbers."""
    if not (isinstance(value, complex) and input.dtype.is_complex):
        return F.pad(input, tuple(pad), "constant", value)
    return padded(input, tuple(int(p) for p in pad), value)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """(maxima, where they are)."""
    return F.max_pool1d(input, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True)  # type: ignore[return-value]


def max_pool3d(input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> Tensor:
    """nn.functional.max_pool3d."""
    return F.max_pool3d(input, kernel_size, stride or None, padding, dilation, ceil_mode)


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """(maxima, where they are)."""
    return F.adaptive_max_pool1d(input, output_size, return_indices=True)  # type: ignore[return-value]


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """nn.functional.grid_sample, the modes as numbers: 0 bilinear, 1 nearest, 2 bicubic; 0 zeros, 1 border, 2 reflection."""
    return F.grid_sample(input, grid, _SAMPLING[interpolation_mode], _PADDING[padding_mode], align_corners)


grid_sampler_2d = grid_sampler_3d = grid_sampler


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """nn.functional.affine_grid."""
    return F.affine_grid(theta, tuple(size), align_corners)


# -- look-up tables and losses ------------------------------------------------------------------------------------
def embedding(weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """nn.functional.embedding with the table first; padding_idx -1: none."""
    return F.embedding(indices, weight, None if padding_idx == -1 else padding_idx, None, 2.0, scale_grad_by_freq, sparse)


def embedding_renorm_(input: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows of the table `input` that `indices` name down to a norm of at most `max_norm`, in place."""
    with torch.no_grad():
        F.embedding(indices, input, None, max_norm, norm_type)
    return input


def poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int) -> Tensor:
    """nn.functional.poisson_nll_loss; reduction 0 none, 1 mean, 2 sum."""
    return F.poisson_nll_loss(input, target, log_input, full, None, eps, None, REDUCTIONS[reduction])


def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 1) -> Tensor:
    """nn.functional.hinge_embedding_loss; reduction 0 none, 1 mean, 2 sum."""
    return F.hinge_embedding_loss(input, target, margin, None, None, REDUCTIONS[reduction])


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    """nn.functional.binary_cross_entropy_with_logits; reduction 0 none, 1 mean, 2 sum."""
    return F.binary_cross_entropy_with_logits(input, target, weight, None, None, REDUCTIONS[reduction], pos_weight)


pdist = F.pdist
channel_shuffle, native_channel_shuffle, conv_tbc = F.channel_shuffle, F.native_channel_shuffle, F.conv_tbc


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The p-norm over all dims but one, which stay as dims of size 1; dim -1: over all."""
    if dim == -1:
        return v.norm(pow)
    kept = normalize_dim(dim, v.ndim)
    return v.norm(pow, dim=tuple([d for d in range(v.ndim) if d != kept]), keepdim=True)


def split_with_sizes_copy(input: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor] | None = None) -> list[Tensor] | None:
    """Copies of the parts of split; written to the tensors of `out`, if given."""
    parts = input.split(list(split_sizes), dim)
    if out is None:
        return [part.clone(memory_format=torch.contiguous_format) for part in parts]
    into(out, tuple(parts), "split_with_sizes_copy")
    return None


def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    """split by sizes, whose parts may be written to with gradients; they are as safe as those of slices."""
    return list(unsafe_parts(input, input.split(list(split_sizes), dim), dim))


# -- recurrent networks -------------------------------------------------------------------------------------------
_PADDED = "input hx params has_biases num_layers dropout train bidirectional batch_first".split()
_PACKED = "data batch_sizes hx params has_biases num_layers dropout train bidirectional".split()


def _recurrent(mode: str, states: int, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first), or packed rows:
    (data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional). `named`: those given by keyword."""
    order = _PACKED if "data" in named or "batch_sizes" in named else _PADDED
    try:
        args = (*args, *[named[name] for name in order[len(args) :]]) if named else args
    except KeyError as error:
        raise TypeError(f"{mode.lower()}() missing 1 required positional arguments: {error}") from None
    if len(args) != len(order):
        raise TypeError(f"{mode.lower()}() takes the {len(order)} arguments {', '.join(order)}, got {len(args)}")
    packed = isinstance(args[1], Tensor) and args[1].dtype is torch.int64
    if packed:
        x, batch_sizes, hx, params, biases, count, dropout, train, bidirectional = args
        sizes, batch_first = batch_sizes, False
    else:
        x, hx, params, biases, count, dropout, train, bidirectional, batch_first = args
        x = x.transpose(0, 1) if batch_first else x
        steps, batch = x.shape[:2]
        sizes, x = None, x.reshape(steps * batch, -1)
    each, rest = divmod(len(params), count * (2 if bidirectional else 1))
    if rest or each not in (2, 3, 4, 5):
        raise RuntimeError(f"{mode}: {len(params)} parameters for {count} layers{' in two directions' * bool(bidirectional)}: not as many for each")
    weights = [params[i : i + each] for i in range(0, len(params), each)]
    state = tuple(hx) if states == 2 else (hx,)
    for s in state:
        if not packed and (s.ndim != 3 or s.shape[1] != batch):
            raise RuntimeError(f"{mode}: Expected hidden size {(len(weights), batch, 'hidden size')}, got {list(s.shape)}")
    output, finals = recurrent.layers(mode, x, state, weights, sizes, biases=biases, bidirectional=bidirectional, dropout=dropout, training=train)
    if not packed:
        output = output.reshape(steps, batch, -1)
        output = output.transpose(0, 1) if batch_first else output
    return output, finals


def lstm(*args: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    """(outputs, final h, final c) of all layers: see `_recurrent` for the arguments, which are PyTorch's; hx is (h, c)."""
    output, (h, c) = _recurrent("LSTM", 2, args, named)
    return output, h, c


def gru(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """(outputs, final h) of all layers; the arguments are PyTorch's."""
    output, (h,) = _recurrent("GRU", 1, args, named)
    return output, h


def rnn_tanh(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """(outputs, final h) of all layers; the arguments are PyTorch's."""
    output, (h,) = _recurrent("RNN_TANH", 1, args, named)
    return output, h


def rnn_relu(*args: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """(outputs, final h) of all layers; the arguments are PyTorch's."""
    output, (h,) = _recurrent("RNN_RELU", 1, args, named)
    return output, h


def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(h, c) after one step."""
    h, c = recurrent.lstm_cell(input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh)
    return h, c


def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """h after one step."""
    return recurrent.gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh)


def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """h after one step."""
    return recurrent.rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, "tanh")


def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """h after one step."""
    return recurrent.rnn_cell(input, hx, w_ih, w_hh, b_ih, b_hh, "relu")
