"""torch.ao.nn: modules of quantized networks."""

from __future__ import annotations

from flambeau.ao.nn import intrinsic, qat, quantized
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.ao.nn", globals())
