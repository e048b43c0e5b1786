"""torch.onnx._internal.exporter: the exporter, which is not there."""
