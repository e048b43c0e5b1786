"""torch.backends.quantized: engines for quantized operators: none, as there are no quantized tensors yet."""

from __future__ import annotations

engine = "none"
supported_engines: list[str] = ["none"]
