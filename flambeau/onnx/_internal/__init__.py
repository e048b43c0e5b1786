"""torch.onnx._internal: parts of the exporter, which is not there."""
