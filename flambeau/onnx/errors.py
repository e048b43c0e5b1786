"""torch.onnx.errors: what the exporter raises."""

from __future__ import annotations


class OnnxExporterWarning(UserWarning):
    """What the exporter warns of."""


class OnnxExporterError(RuntimeError):
    """What the exporter raises."""


class UnsupportedOperatorError(OnnxExporterError, NotImplementedError):
    """An operator that has no form in ONNX here; the message names it."""
