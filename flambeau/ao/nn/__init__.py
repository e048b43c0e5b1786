"""torch.ao.nn: modules of quantized networks."""

from __future__ import annotations

from flambeau.ao.nn import intrinsic, qat, quantized
