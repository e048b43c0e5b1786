"""Constructors into a given `out`: what they are told beside it must be what it is."""

from __future__ import annotations

from typing import Any

from flambeau import devices


def must_fit(name: str, out: Any, dtype: Any = None, layout: Any = None, device: Any = None) -> None:
    """PyTorch's RuntimeError if `out` has another dtype, layout or type of device than the call says."""
    if dtype not in (None, out.dtype):
        raise RuntimeError(f"{name}(): dtype {dtype} does not match dtype of out parameter ({out.dtype})")
    if layout not in (None, out.layout):
        raise RuntimeError(f"{name}(): layout {layout} does not match layout of out parameter ({out.layout})")
    if device is not None and devices.is_meta(device) is not out.is_meta:
        kind = "meta" if devices.is_meta(device) else "cpu"
        raise RuntimeError(f"{name}(): device type {kind} does not match device type of out parameter ({out.device.type})")


def given_back(out: Any, requires_grad: bool) -> Any:
    """`out` as the result: a constructor that is told so makes a leaf of it."""
    return out.requires_grad_() if requires_grad and not out.requires_grad else out
