"""torch.ao.quantization.fx: the steps of quantize_fx: layers are fused, observers are put into the graph, what was observed is made integers."""

from __future__ import annotations
