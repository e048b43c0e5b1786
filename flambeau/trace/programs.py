"""Tensors of a program that is being exported or traced (export/tracing.py): their calls are recorded and have no history. What traces them may transform
and differentiate what is recorded (export/differentiating.py); where it does not, it is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any


class _Active(threading.local):
    tracer: Any = None


active = _Active()  # what traces a program in this thread


def program_of(what: str, tensors: Iterable[Any]) -> Any:
    """What traces one of the tensors, which are to be differentiated or transformed, None if there is none among them; NotImplementedError if it refuses."""
    for t in tensors:
        if getattr(type(t), "stands_in_a_program", False):
            program = active.tracer
            if program is not None and program.transforms:
                return program
            raise NotImplementedError(
                f"{what} inside of a program that is being exported or traced (torch.export): a tensor of shape {tuple(t.shape)} there has no "
                "history. Transform or differentiate outside of what is traced"
            )
    return None


def program_around(what: str, tensors: Iterable[Any]) -> Any:
    """As `program_of`; also of other tensors, if the function that transforms them is being traced."""
    found = program_of(what, tensors)
    return active.tracer if found is None and active.tracer is not None and active.tracer.transforms else found
