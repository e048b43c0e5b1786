"""Errors of torch.export: what the program does that a graph cannot do, or that does not hold for all sizes."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any


class UserErrorType(Enum):
    """What kind of error the user's program has."""

    DYNAMIC_CONTROL_FLOW = "dynamic control flow"
    ANTI_PATTERN = "anti pattern"
    STANDARD_LIBRARY = "standard library"
    CONSTRAINT_VIOLATION = "constraint violation"
    DYNAMIC_DIM = "dynamic dim"
    INVALID_INPUT = "invalid input"
    INVALID_OUTPUT = "invalid output"
    UNSUPPORTED_ALIASED_MUTATED_DYNAMIC_INPUTS = "unsupported aliased mutated dynamic inputs"


class UserError(RuntimeError):
    """PyTorch's error of torch.export for what the program, or the call of export, has to change."""

    def __init__(self, error_type: UserErrorType, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type
        self.msg = message


class GuardOnDataDependentSymNode(RuntimeError):
    """The program asks for the value of a tensor, which is not known while it is exported."""


def data_dependent(name: str, args: Sequence[Any]) -> GuardOnDataDependentSymNode:
    """The error of a call whose result depends on values."""
    shape = next((f" of a tensor of shape {[int.__int__(n) for n in a.shape]}" for a in args if hasattr(a, "shape")), "")
    return GuardOnDataDependentSymNode(
        f"torch.export: the program calls {name}(){shape}, whose result depends on values, and a graph has none. Compute with tensors instead "
        "(torch.where in place of `if`), or take it out of what is exported"
    )
