"""Tensors of a program that is being exported or traced (export/tracing.py): what cannot be done to them, as their calls are recorded and have no history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def refuse_programs(what: str, tensors: Iterable[Any]) -> None:
    """NotImplementedError if one of the tensors, which are to be differentiated or transformed, stands in a program."""
    for t in tensors:
        if getattr(type(t), "stands_in_a_program", False):
            raise NotImplementedError(
                f"{what} inside of a program that is being exported or traced (torch.export, make_fx): a tensor of shape {tuple(t.shape)} there has no "
                "history. Transform or differentiate outside of what is traced"
            )
