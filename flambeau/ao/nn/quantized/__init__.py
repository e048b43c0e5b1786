"""torch.ao.nn.quantized: modules that take and give quantized tensors."""

from __future__ import annotations

from flambeau.ao.nn.quantized import dynamic
from flambeau.ao.nn.quantized.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from flambeau.ao.nn.quantized.linear import Linear, LinearPackedParams
from flambeau.ao.nn.quantized.pointwise import (
    ELU,
    BatchNorm2d,
    BatchNorm3d,
    DeQuantize,
    Dropout,
    Embedding,
    EmbeddingBag,
    FloatFunctional,
    FXFloatFunctional,
    GroupNorm,
    Hardswish,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LeakyReLU,
    MaxPool2d,
    PReLU,
    QFunctional,
    Quantize,
    ReLU6,
    Sigmoid,
    Softmax,
)
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.ao.nn.quantized", globals())
