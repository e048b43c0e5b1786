"""How the tensors of all ranks become one."""

from __future__ import annotations

import enum
from typing import Any


class _Kinds(enum.EnumMeta):
    """ReduceOp.PREMUL_SUM with its factor is a ReduceOp, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, PremulSum) or type.__instancecheck__(cls, instance)


class ReduceOp(enum.Enum, metaclass=_Kinds):
    """How the tensors of all ranks become one."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8
    UNUSED = 9


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]  # of PyTorch's two classes the one that has the names


class PremulSum:
    """ReduceOp.PREMUL_SUM with its factor: each rank's tensor is multiplied with it first."""

    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.name = "PREMUL_SUM"

    def __eq__(self, other: object) -> bool:
        return type(other) is PremulSum and other.factor == self.factor

    def __hash__(self) -> int:
        return hash(self.factor)


def _make_nccl_premul_sum(factor: Any) -> PremulSum:
    """ReduceOp.PREMUL_SUM with this factor (a number, or a tensor of one element)."""
    return PremulSum(float(factor))


def supports_complex(reduceOp: Any) -> bool:
    """Whether an operator takes complex numbers."""
    return reduceOp not in (ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PRODUCT, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
