"""torch.ao.nn.intrinsic: layers that are fused with what follows them: in floats, in training (`qat`), quantized (`quantized`)."""

from __future__ import annotations

from flambeau.ao.nn.intrinsic import qat, quantized
from flambeau.ao.nn.intrinsic.fused import (
    BNReLU2d,
    BNReLU3d,
    ConvBn1d,
    ConvBn2d,
    ConvBn3d,
    ConvBnReLU1d,
    ConvBnReLU2d,
    ConvBnReLU3d,
    ConvReLU1d,
    ConvReLU2d,
    ConvReLU3d,
    LinearBn1d,
    LinearReLU,
    _FusedModule,
)
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.ao.nn.intrinsic", globals())
