"""Schemes of quantization: PyTorch's objects that say how real numbers follow from integers (`torch.per_tensor_affine`, ...)."""

from __future__ import annotations

from flambeau.named_objects import NamedObject


class qscheme(NamedObject):
    """How real numbers follow from integers."""

    __slots__ = ()


per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")
ALL = (per_tensor_affine, per_channel_affine, per_tensor_symmetric, per_channel_symmetric, per_channel_affine_float_qparams)
