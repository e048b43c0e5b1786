"""torch.ao.nn.intrinsic.qat: fused layers in training with rounded weights; normalisation is folded into the weight before it is rounded.

With the running deviation sigma, the weight w * gamma / sigma is rounded; what the layer gives is multiplied by sigma / gamma and normalised as ever, so
that the batch's statistics train (Krishnamoorthi, 2018, figure 8).
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.nn import qat as plain

F = torch.nn.functional


def _relu_class(name: str, base: Any) -> Any:
    def forward(self: Any, input: Any) -> Any:
        return F.relu(base.forward(self, input))

    return type(name, (base,), {"forward": forward, "__doc__": f"{base.__name__} and relu, with a rounded weight.", "__module__": __name__})


class _WithNorm:
    """A layer and the normalisation behind it (`bn`)."""

    bn: Any
    weight: Any
    bias: Any
    weight_fake_quant: Any
    _freeze_bn = False

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a fused float module with a QConfig: layer, normalisation[, relu]."""
        made = super().from_float(mod)  # type: ignore[misc]
        made.bn = mod[1]
        return made

    def forward(self, input: Any) -> Any:
        sigma = torch.sqrt(self.bn.running_var + self.bn.eps)
        factor = self.bn.weight / sigma
        weight = self.weight_fake_quant(self.weight * factor.reshape(-1, *[1] * (self.weight.ndim - 1)))
        shape = [1, -1, *[1] * (self.weight.ndim - 2)]
        zeros = torch.zeros_like(self.bias) if self.bias is not None else None
        found = self._plain(input, weight, zeros) / factor.reshape(shape)
        if self.bias is not None:
            found = found + self.bias.reshape(shape)
        return self.bn(found)

    def _plain(self, input: Any, weight: Any, bias: Any) -> Any:
        return self._conv_forward(input, weight, bias)  # type: ignore[attr-defined]

    def update_bn_stats(self) -> Any:
        """The running statistics follow the batches."""
        self._freeze_bn = False
        self.bn.train()
        return self

    def freeze_bn_stats(self) -> Any:
        """The running statistics stay, and normalise."""
        self._freeze_bn = True
        self.bn.eval()
        return self

    def train(self, mode: bool = True) -> Any:
        """Training, with the running statistics frozen where they are."""
        super().train(mode)  # type: ignore[misc]
        if mode and self._freeze_bn and hasattr(self, "bn"):
            self.bn.eval()
        return self


def _norm_class(name: str, base: Any) -> Any:
    return type(name, (_WithNorm, base), {"__doc__": f"{base.__name__} and normalisation, with a rounded weight.", "__module__": __name__})


ConvBn1d, ConvBn2d, ConvBn3d = (_norm_class(f"ConvBn{d}d", getattr(plain, f"Conv{d}d")) for d in (1, 2, 3))
ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d = (_relu_class(f"ConvBnReLU{d}d", base) for d, base in ((1, ConvBn1d), (2, ConvBn2d), (3, ConvBn3d)))
ConvReLU1d, ConvReLU2d, ConvReLU3d = (_relu_class(f"ConvReLU{d}d", getattr(plain, f"Conv{d}d")) for d in (1, 2, 3))
LinearReLU = _relu_class("LinearReLU", plain.Linear)


class LinearBn1d(_WithNorm, plain.Linear):
    """Linear and normalisation, with a rounded weight."""

    def _plain(self, input: Any, weight: Any, bias: Any) -> Any:
        return F.linear(input, weight, bias)


def update_bn_stats(mod: Any) -> None:
    """For Module.apply: running statistics follow the batches."""
    if isinstance(mod, _WithNorm):
        mod.update_bn_stats()


def freeze_bn_stats(mod: Any) -> None:
    """For Module.apply: running statistics stay as they are."""
    if isinstance(mod, _WithNorm):
        mod.freeze_bn_stats()
