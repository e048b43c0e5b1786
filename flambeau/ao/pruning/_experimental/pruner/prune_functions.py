"""Rows that are masked out taken away: from a layer, from what stands per channel behind it, and the columns from the next layer.

What a pruned channel gives is a constant: its bias, and what normalisations and activations make of that. With `prune_bias` the channel
goes with it, as if it were zero; else the next layer's bias takes over what the constant would have added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.ao.pruning._experimental.pruner.parametrization import BiasHook, FakeStructuredSparsity
from flambeau.nn.modules.batchnorm import _BatchNorm
from flambeau.nn.utils import parametrize
from flambeau.tensor import Tensor

_POOLS = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d,
)  # fmt: skip
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
# What gives a channel's constant as it is.
SAME = (*_POOLS, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.Identity, nn.Flatten)


def row_mask(module: Any, name: str = "weight") -> Tensor:
    """The mask of a tensor's rows."""
    for entry in module.parametrizations[name]:
        if isinstance(entry, FakeStructuredSparsity):
            return entry.mask
    raise ValueError(f"{module} has no mask of the rows of {name}")


def _plain(module: Any, name: str = "weight") -> Tensor:
    """A tensor without its mask."""
    return module.parametrizations[name].original if parametrize.is_parametrized(module, name) else getattr(module, name)


def _set(module: Any, name: str, value: Tensor) -> None:
    """Give a module another tensor under a name, as a parameter, below its mask where it has one."""
    if parametrize.is_parametrized(module, name):
        module.parametrizations[name].original = nn.Parameter(value)
    else:
        setattr(module, name, nn.Parameter(value))


def _keep_rows(layer: Any, keep: Tensor) -> None:
    """Take the mask away, and the rows that it had at zero unless `keep` has them."""
    with torch.no_grad():
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
        layer.weight = nn.Parameter(layer.weight[keep])
        bias = layer.bias if layer.bias is not None else getattr(layer, "_bias", None)
        layer.bias = None if bias is None else nn.Parameter(bias[keep])
    for key in [key for key, hook in layer._forward_hooks.items() if isinstance(hook, BiasHook)]:
        del layer._forward_hooks[key]
    if hasattr(layer, "_bias"):
        del layer._bias
    setattr(layer, "out_features" if hasattr(layer, "out_features") else "out_channels", int(layer.weight.shape[0]))


def _keep_columns(layer: Any, keep: Tensor, constants: Tensor | None) -> None:
    """Take columns away from the layer behind, whose bias takes over what these inputs, being constant, add."""
    with torch.no_grad():
        weight = _plain(layer)
        if constants is not None:
            added = weight[:, ~keep].flatten(2).sum(-1) @ constants if weight.dim() > 2 else weight[:, ~keep] @ constants
            masked = getattr(layer, "_bias", None)
            bias = layer.bias if layer.bias is not None else masked
            layer.bias = nn.Parameter(added if bias is None else bias + added)
        _set(layer, "weight", weight[:, keep])
    setattr(layer, "in_features" if hasattr(layer, "in_features") else "in_channels", int(_plain(layer).shape[1]))


def _keep_channels(between: Any, keep: Tensor) -> None:
    """What stands per channel between two layers: normalisations and PReLU."""
    if isinstance(between, _BatchNorm):
        for name in ("weight", "bias"):
            if getattr(between, name) is not None:
                setattr(between, name, nn.Parameter(getattr(between, name).detach()[keep]))
        for name in ("running_mean", "running_var"):
            if getattr(between, name) is not None:
                setattr(between, name, getattr(between, name)[keep])
        between.num_features = int(keep.sum())
    elif isinstance(between, nn.PReLU) and between.num_parameters > 1:
        between.weight = nn.Parameter(between.weight.detach()[keep])
        between.num_parameters = int(keep.sum())


def _through(between: Any, values: Tensor, gone: Tensor, dropped: bool) -> Tensor:
    """What becomes of the constants of the pruned channels."""
    if isinstance(between, _BatchNorm):
        if dropped or between.running_mean is None:  # by the batch's own mean a constant becomes the shift
            values = torch.zeros_like(values)
        else:
            values = (values - between.running_mean[gone]) / torch.sqrt(between.running_var[gone] + between.eps)
        if between.weight is not None and not dropped:
            values = values * between.weight[gone] + between.bias[gone]
        return values
    if isinstance(between, SAME):
        return values
    if isinstance(between, nn.PReLU) and between.num_parameters > 1:
        return torch.where(values > 0, values, values * between.weight[gone])
    return between(values)  # type: ignore[no-any-return]


def _pads_zeros(layer: Any) -> bool:
    """Whether a layer sees other numbers than a channel's constant at the borders."""
    padding = getattr(layer, "padding", 0)
    if isinstance(layer, _POOLS):
        return "Avg" in type(layer).__name__ and padding not in (0, (0,), (0, 0), (0, 0, 0)) and getattr(layer, "count_include_pad", False)
    return padding not in (0, "valid", (0,), (0, 0), (0, 0, 0)) and getattr(layer, "padding_mode", "zeros") == "zeros"


def prune_chain(first: Any, between: Sequence[Any], last: Any) -> None:
    """Take away the rows of `first` that are masked out, and what belongs to them in `between` (None: nothing) and in `last` (None: the output).

    Where `last` puts zeros around its input and the pruned channels are other constants than 0 there, nothing can take over for them: they
    stay, with zeros as weights.
    """
    steps = [step for step in between if step is not None]
    keep = row_mask(first).clone()
    gone = ~keep
    dropped = bool(getattr(first, "prune_bias", True))
    with torch.no_grad():
        bias = getattr(first, "_bias", None)
        values = torch.zeros_like(_plain(first).flatten(1)[:, 0])[gone] if dropped or bias is None else bias[gone]
        training = [(step, step.training) for step in steps if isinstance(step, nn.Module)]
        for step in steps:
            if isinstance(step, nn.Module):
                step.eval()
            values = _through(step, values, gone, dropped)
        for step, was in training:
            step.train(was)
    padded = last is not None and any(map(_pads_zeros, [*steps, last]))
    if padded and bool((values != 0).any()) and not (dropped and bias is None):
        with torch.no_grad():
            own = torch.zeros(len(keep)) if dropped or bias is None else bias
            present = first.bias if first.bias is not None else own if bias is None else bias
            first.bias = nn.Parameter(torch.where(keep, present, own))
        _keep_rows(first, torch.ones_like(keep))
        return
    _keep_rows(first, keep)
    for step in steps:
        _keep_channels(step, keep)
    if last is None:
        return
    scale = _plain(last).shape[1] // len(keep)
    columns = keep.repeat_interleave(scale)
    _keep_columns(last, columns, None if dropped or padded else values.repeat_interleave(scale))


# PyTorch's functions, by which patterns of one's own are made.


def prune_linear(linear: nn.Linear) -> None:
    """The last layer."""
    prune_chain(linear, (), None)


def prune_linear_linear(linear1: nn.Linear, linear2: nn.Linear) -> None:
    """Two layers."""
    prune_chain(linear1, (), linear2)


def prune_linear_activation_linear(linear1: nn.Linear, activation: Callable[[Tensor], Tensor] | None, linear2: nn.Linear) -> None:
    """Two layers with an activation between them."""
    prune_chain(linear1, (activation,), linear2)


def prune_conv2d(conv2d: nn.Conv2d) -> None:
    """The last convolution."""
    prune_chain(conv2d, (), None)


def prune_conv2d_conv2d(conv2d_1: nn.Conv2d, conv2d_2: nn.Conv2d) -> None:
    """Two convolutions."""
    prune_chain(conv2d_1, (), conv2d_2)


def prune_conv2d_activation_conv2d(conv2d_1: nn.Conv2d, activation: Callable[[Tensor], Tensor] | None, conv2d_2: nn.Conv2d) -> None:
    """Two convolutions with an activation between them."""
    prune_chain(conv2d_1, (activation,), conv2d_2)


def prune_conv2d_pool_activation_conv2d(c1: nn.Conv2d, pool: nn.Module, activation: Callable[[Tensor], Tensor] | None, c2: nn.Conv2d) -> None:
    """Two convolutions with pooling, then an activation."""
    prune_chain(c1, (pool if isinstance(pool, nn.Module) else None, activation), c2)


def prune_conv2d_activation_pool_conv2d(c1: nn.Conv2d, activation: Callable[[Tensor], Tensor] | None, pool: nn.Module, c2: nn.Conv2d) -> None:
    """Two convolutions with an activation, then pooling."""
    prune_chain(c1, (activation, pool if isinstance(pool, nn.Module) else None), c2)


def prune_conv2d_pool_flatten_linear(conv2d: nn.Conv2d, pool: nn.Module, flatten: Callable[[Tensor], Tensor] | None, linear: nn.Linear) -> None:
    """A convolution, pooling, and a dense layer over all places."""
    channels, inputs = len(row_mask(conv2d)), _plain(linear).shape[1]
    if inputs % channels:
        raise AssertionError(f"Flattening from dimensions {channels} to {inputs} not supported")
    prune_chain(conv2d, (), linear)


def prune_lstm_output_linear(lstm: nn.LSTM, getitem: Any, linear: nn.Linear) -> None:
    """An LSTM and a dense layer over its outputs."""
    prune_lstm_output_layernorm_linear(lstm, getitem, None, linear)


def _lstm_columns(lstm: Any, name: str, keep: Tensor) -> None:
    with torch.no_grad():
        _set(lstm, name, _plain(lstm, name)[:, keep])


def prune_lstm_output_layernorm_linear(lstm: Any, getitem: Any, layernorm: Any, linear: Any) -> None:
    """An LSTM, perhaps a normalisation, and a dense layer.

    Rows of each gate go as its mask says. As in PyTorch the columns of the states go by the mask of the gate itself, and what sees the
    outputs by the output gate's: the outputs are those of the masked layer if all gates have the same mask.
    """
    if lstm.bidirectional or lstm.proj_size:
        raise NotImplementedError("prune: LSTMs of two directions or with projections cannot be pruned")
    size = lstm.hidden_size
    for i in range(lstm.num_layers):
        names = [f"weight_ih_l{i}", f"weight_hh_l{i}"]
        masks = [row_mask(lstm, name).split(size) if parametrize.is_parametrized(lstm, name) else None for name in names]
        counts = [4 * [size] if mask is None else [int(m.sum()) for m in mask] for mask in masks]
        if len({*counts[0], *counts[1]}) != 1:
            raise RuntimeError(f"prune: the masks of {names[0]} and {names[1]} must keep as many rows of each gate: they keep {counts[0]} and {counts[1]}")
        for name, mask, rows in zip(names, masks, ("ih", "hh"), strict=True):
            if mask is None:
                continue
            with torch.no_grad():
                parametrize.remove_parametrizations(lstm, name, leave_parametrized=True)
                gates = [w[m] for w, m in zip(getattr(lstm, name).split(size), mask, strict=True)]
                if rows == "hh":
                    gates = [w[:, m] for w, m in zip(gates, mask, strict=True)]
                setattr(lstm, name, nn.Parameter(torch.cat(gates)))
                if lstm.bias:
                    setattr(lstm, f"bias_{rows}_l{i}", nn.Parameter(getattr(lstm, f"bias_{rows}_l{i}")[torch.cat(mask)]))
        if masks[1] is None:
            continue
        out = masks[1][3]
        if i + 1 < lstm.num_layers:
            _lstm_columns(lstm, f"weight_ih_l{i + 1}", out)
            continue
        lstm.hidden_size = int(out.sum())
        _keep_columns(linear, out, None)
        if layernorm is not None:
            layernorm.normalized_shape = (linear.in_features,)
            for name in ("weight", "bias"):
                if getattr(layernorm, name) is not None:
                    setattr(layernorm, name, nn.Parameter(getattr(layernorm, name).detach()[out]))
