"""torch.quantization: the older name of torch.ao.quantization."""

from __future__ import annotations

from typing import Any

from flambeau.ao.quantization import *  # noqa: F403


def __getattr__(name: str) -> Any:
    from flambeau.ao import quantization

    return getattr(quantization, name)
