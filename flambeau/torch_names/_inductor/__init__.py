"""torch._inductor: PyTorch's code generator, of which only the settings can be named. flambeau's compiler is in flambeau/compiler."""

from __future__ import annotations

from typing import Any

from flambeau._inductor import config as config


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The modes that torch.compile accepts; none has options."""
    from flambeau.compiling import _MODES

    return {name: {} for name in _MODES} if mode is None else {}


def list_options() -> list[str]:
    """None."""
    return []


def cudagraph_mark_step_begin() -> None:
    """torch.compiler.cudagraph_mark_step_begin: there are no CUDA graphs, so nothing is to be marked."""
