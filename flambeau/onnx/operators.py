"""torch.onnx.operators: functions that an exporter would write as one operator."""

from __future__ import annotations

from typing import Any

from flambeau.inner_names import _shape_as_tensor


def shape_as_tensor(x: Any) -> Any:
    """The shape as an int64 vector."""
    return _shape_as_tensor(x)


def reshape_from_tensor_shape(x: Any, shape: Any) -> Any:
    """A view with the shape that a vector says."""
    return x.reshape(shape.tolist())
