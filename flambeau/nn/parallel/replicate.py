"""torch.nn.parallel.replicate: a module on each of several devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.nn.parallel.scatter_gather import on_cpu


def replicate(network: Module, devices: Sequence[Any], detach: bool = False) -> list[Module]:
    """The module once for each device: on one device they are the same."""
    return [network] * on_cpu(devices)


__all__ = ["replicate"]
