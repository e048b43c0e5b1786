"""Names that nn.functional has beside its families: grouped products, older convolutions, hooks for subclasses, TorchScript's helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import flambeau as torch
from flambeau.nn.functional.activation import rrelu, rrelu_by
from flambeau.nn.functional.convolution import conv1d
from flambeau.nn.functional.linear import channel_shuffle
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A 1-d convolution of (time, batch, channels); weight (kernel, in, out)."""
    fits = input.ndim == weight.ndim == 3 and bias.ndim == 1 and weight.shape[1:] == (input.shape[2], bias.shape[0])
    if fits and (not weight.shape[0] or input.shape[0] + 2 * pad + 1 == weight.shape[0]):  # no windows, or of no elements: PyTorch has the bias alone
        return bias.expand(input.shape[0] + 2 * pad + 1 - weight.shape[0], input.shape[1], bias.shape[0]).clone()
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)  # type: ignore[no-any-return]


def native_channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """channel_shuffle."""
    return channel_shuffle(input, groups)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, generator: Any = None) -> Tensor:
    """rrelu in place."""
    return rrelu_by(generator, input, lower, upper, True) if training else rrelu(input, lower, upper, False, True)


def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:  # fmt: skip
    """Products of groups, whose ends along the shared or the row dimension are in `offs` (int32).

    (M, K) x (G, K, N): rows in groups -> (M, N). (G, M, K) x (K, N): columns in groups -> (M, N). (M, K) x (K, N): parts of K ->
    (G, M, N). (G, M, K) x (G, K, N) is bmm, without `offs`. Rows or columns after the last group are zeros.
    """
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    for t, name in ((mat_a, "mat_a"), (mat_b, "mat_b")):
        if t.ndim not in (2, 3):
            raise RuntimeError(f"{name} has to be 2 or 3d")
    if (offs is None) != (mat_a.ndim == 3 and mat_b.ndim == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, and none for two 3d ones")
    if offs is None:
        out = torch.bmm(mat_a, mat_b)
    else:
        ends = offs.tolist()
        spans = list(zip([0, *ends[:-1]], ends, strict=True))
        if mat_a.ndim == 2 and mat_b.ndim == 3:
            parts = [mat_a[start:end] @ mat_b[g] for g, (start, end) in enumerate(spans)]
            out = torch.cat([*parts, mat_a.new_zeros(mat_a.shape[0] - ends[-1], mat_b.shape[2])])
        elif mat_a.ndim == 3:
            parts = [mat_a[g] @ mat_b[:, start:end] for g, (start, end) in enumerate(spans)]
            out = torch.cat([*parts, mat_a.new_zeros(mat_a.shape[1], mat_b.shape[1] - ends[-1])], dim=1)
        else:
            out = torch.stack([mat_a[:, start:end] @ mat_b[start:end] for start, end in spans])
    return out if out_dtype is None else out.to(out_dtype)  # type: ignore[no-any-return]


class ScalingType(Enum):
    """How the scales of scaled_mm lie over a matrix."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(Enum):
    """In which order the scales of scaled_mm lie in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _one_scale(name: str, scale: Any, recipe: Any, swizzle: Any) -> Tensor:
    """The scale of one matrix; NotImplementedError for blocks of scales, which PyTorch's CPU build has not either."""
    scales = list(scale) if isinstance(scale, (list, tuple)) else [scale]
    recipes = list(recipe) if isinstance(recipe, (list, tuple)) else [recipe]
    plain = all(s in (None, SwizzleType.NO_SWIZZLE) for s in _all(swizzle))
    if len(scales) != 1 or recipes[0] not in (ScalingType.TensorWise, ScalingType.RowWise) or not plain:
        raise NotImplementedError(f"{name}: scales are one number a matrix (TensorWise) or one a row (RowWise), got {recipes} and swizzle {swizzle}")
    return scales[0]  # type: ignore[no-any-return]


def _all(x: Any) -> list[Any]:
    return list(x) if isinstance(x, (list, tuple)) else [x]


def scaled_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any, swizzle_a: Any = None,
    swizzle_b: Any = None, bias: Tensor | None = None, output_dtype: Any = torch.bfloat16, contraction_dim: Any = (), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """The product of two float8 matrices (n, k) and (k, m) times their scales: see `torch._scaled_mm`. Scales of blocks are a NotImplementedError."""
    first = _one_scale("scaled_mm", scale_a, scale_recipe_a, swizzle_a)
    second = _one_scale("scaled_mm", scale_b, scale_recipe_b, swizzle_b)
    kind = torch.bfloat16 if output_dtype is None else output_dtype
    return torch._scaled_mm(mat_a, mat_b, first, second, bias=bias, out_dtype=kind, use_fast_accum=use_fast_accum)  # type: ignore


def scaled_grouped_mm(
    mat_a: Tensor, mat_b: Tensor, scale_a: Any, scale_recipe_a: Any, scale_b: Any, scale_recipe_b: Any, swizzle_a: Any = None,
    swizzle_b: Any = None, bias: Tensor | None = None, offs: Tensor | None = None, output_dtype: Any = torch.bfloat16, contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """Always raises NotImplementedError, as PyTorch does on the CPU: use `scaled_mm` for each group."""
    raise NotImplementedError("scaled_grouped_mm: it is not there on the CPU; use scaled_mm for each group")


# -- subclasses (torch.overrides), loaded when they are asked for ---------------------------------------------------------
def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """torch.overrides.has_torch_function."""
    from flambeau import overrides

    return overrides.has_torch_function(relevant_args)


def has_torch_function_unary(obj: Any) -> bool:
    """has_torch_function of one argument."""
    return has_torch_function((obj,))


def has_torch_function_variadic(*relevant_args: Any) -> bool:
    """has_torch_function of several arguments."""
    return has_torch_function(relevant_args)


def handle_torch_function(public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """torch.overrides.handle_torch_function."""
    from flambeau import overrides

    return overrides.handle_torch_function(public_api, relevant_args, *args, **kwargs)


# -- what PyTorch's own modules use ---------------------------------------------------------------------------------------
def assert_int_or_pair(arg: Any, arg_name: str, message: str) -> None:
    """AssertionError unless it is an int or has two elements."""
    if not (isinstance(arg, int) or len(arg) == 2):
        raise AssertionError(message.format(arg_name))


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Callable[..., Any], if_false: Callable[..., Any], module_name: str, func_name: str
) -> Callable[..., Any]:  # fmt: skip
    """A function that calls one of two, depending on one of its arguments."""

    def fn(*args: Any, **kwargs: Any) -> Any:
        flag = kwargs[arg_name] if arg_name in kwargs else args[arg_index] if arg_index < len(args) else default
        return (if_true if flag else if_false)(*args, **kwargs)

    fn.__name__ = func_name or "fn"
    fn.__module__ = module_name or __name__
    fn.__doc__ = if_true.__doc__ or if_false.__doc__
    return fn


class _BroadcastingList:
    """A name for annotations: `BroadcastingList2[int]` is an int or two of them."""

    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1, BroadcastingList2, BroadcastingList3 = _BroadcastingList(), _BroadcastingList(), _BroadcastingList()

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "ScalingType", "SwizzleType", "Tensor", "assert_int_or_pair",
    "boolean_dispatch", "conv_tbc", "grouped_mm", "handle_torch_function", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "native_channel_shuffle", "rrelu_", "scaled_grouped_mm", "scaled_mm",
]  # fmt: skip


def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: Any, other_name: str, target_type: Any, check_other: bool = True
) -> Tensor | None:  # fmt: skip
    """A mask that is added to scores: minus infinity where one of bools is True; others as they are."""
    if mask is None:
        return None
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warn_here(f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.")
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=target_type).masked_fill(mask, float("-inf"))


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor, None of None."""
    if input is None:
        return None
    if isinstance(input, Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")
