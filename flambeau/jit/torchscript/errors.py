"""The errors of reading TorchScript: what was met and where; and the places that are added to errors while a program runs."""

from __future__ import annotations

from typing import NoReturn


class Refused(RuntimeError):
    """An archive that is damaged, hostile or uses what is not read."""


def refuse(what: str) -> NoReturn:
    """End the reading of an archive."""
    raise Refused(f"torch.jit.load: {what}")
