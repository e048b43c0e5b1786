"""torch.nn.attention.bias: causal masks that scaled_dot_product_attention knows without looking at their elements."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.ops.dispatch import admit
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here


class CausalVariant(IntEnum):
    """Where the diagonal of a causal mask begins: at the upper left corner, or (counted back) at the lower right one."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask as a bool tensor (queries, keys), True where a query may look; made by the two functions below."""

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warn_here("Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!")
        diagonal = seq_len_kv - seq_len_q if variant == CausalVariant.LOWER_RIGHT else 0
        mask = torch.ones(seq_len_q, seq_len_kv, dtype=torch.bool).tril(diagonal)
        made: CausalBias = Tensor._make_subclass(cls, mask)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        pass

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as a plain tensor."""
        return self.as_subclass(Tensor)  # type: ignore[no-any-return]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return cls._attend(*args, **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    @staticmethod
    def _attend(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: CausalBias, dropout_p: float = 0.0, is_causal: bool = False,
        scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        if is_causal:
            raise ValueError("CausalBias should not be used with causal=True")
        upper = attn_mask.seq_len_q == attn_mask.seq_len_kv or attn_mask.variant == CausalVariant.UPPER_LEFT
        mask = None if upper else attn_mask._materialize()
        return F.scaled_dot_product_attention(query, key, value, mask, dropout_p, upper, scale=scale, enable_gqa=enable_gqa)


admit(CausalBias)  # classes of nn are not asked by themselves


def causal_upper_left(*size: int) -> CausalBias:
    """Query i sees keys 0 to i: `is_causal=True` as a mask. Two sizes: queries, keys."""
    return _causal(CausalVariant.UPPER_LEFT, size)


def causal_lower_right(*size: int) -> CausalBias:
    """The last query sees all keys, each before it one less. Two sizes: queries, keys."""
    return _causal(CausalVariant.LOWER_RIGHT, size)


def _causal(variant: CausalVariant, size: tuple[int, ...]) -> CausalBias:
    if len(size) != 2:
        raise AssertionError("causal_upper_left and causal_lower_right only support 2D tensors")
    return CausalBias(variant, *size)


__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]
