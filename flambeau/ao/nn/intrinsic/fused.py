"""Layers and what follows them as one module, in floats: a Sequential that is observed behind its last part."""

from __future__ import annotations

from typing import Any

from flambeau.nn import Sequential


class _FusedModule(Sequential):
    """The base of fused modules."""


def _class(name: str) -> Any:
    parts = name.replace("ReLU", " ReLU").replace("Bn", " Bn").split()
    text = f"{' and '.join(parts)}, one after the other."
    return type(name, (_FusedModule,), {"__doc__": text, "__module__": __name__})


ConvReLU1d, ConvReLU2d, ConvReLU3d = (_class(f"ConvReLU{d}d") for d in (1, 2, 3))
ConvBn1d, ConvBn2d, ConvBn3d = (_class(f"ConvBn{d}d") for d in (1, 2, 3))
ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d = (_class(f"ConvBnReLU{d}d") for d in (1, 2, 3))
BNReLU2d, BNReLU3d = (_class(f"BNReLU{d}d") for d in (2, 3))
LinearReLU, LinearBn1d = _class("LinearReLU"), _class("LinearBn1d")
