"""Models for WebGPU: the graph of a program as compute shaders in WGSL, with an ES module that runs them (docs/deploy.md, "WebGPU")."""

from __future__ import annotations

from flambeau.deploy.webgpu.building import build, plans

__all__ = ["build", "plans"]
