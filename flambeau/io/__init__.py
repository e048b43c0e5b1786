"""Checkpoints: PyTorch's files without executing pickles, and safetensors."""

from flambeau.io.checkpoint import load, save

__all__ = ["load", "save"]
