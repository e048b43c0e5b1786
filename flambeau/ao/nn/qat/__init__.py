"""torch.ao.nn.qat: layers whose weights are rounded to codes in training."""

from __future__ import annotations

from typing import Any

import flambeau as torch

F = torch.nn.functional
_OPTIONS = ("in_features", "out_features")


class _Rounded:
    """What the layers share: `weight_fake_quant`, and how they are made of a float layer and become one again."""

    _FLOAT_MODULE: Any

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of a float layer with a QConfig, with its parameters; a fused one gives its first part."""
        source = mod if hasattr(mod, "weight") else mod[0]
        made = cls.__new__(cls)
        torch.nn.Module.__init__(made)  # type: ignore[arg-type]
        made.__dict__.update({k: v for k, v in source.__dict__.items() if k not in made.__dict__})
        made.weight, made.bias = source.weight, source.bias  # type: ignore[attr-defined]
        made.qconfig = mod.qconfig  # type: ignore[attr-defined]
        made.weight_fake_quant = mod.qconfig.weight()  # type: ignore[attr-defined]
        made.train(mod.training)  # type: ignore[attr-defined]
        return made

    def to_float(self) -> Any:
        """The float layer with these parameters."""
        made = self._FLOAT_MODULE.__new__(self._FLOAT_MODULE)
        torch.nn.Module.__init__(made)
        made.__dict__.update({k: v for k, v in self.__dict__.items() if k not in made.__dict__ and k != "qconfig"})
        made.weight, made.bias = self.weight, self.bias  # type: ignore[attr-defined]
        return made


class Linear(_Rounded, torch.nn.Linear):
    """A dense layer whose weight is rounded to codes."""

    _FLOAT_MODULE = torch.nn.Linear

    def __init__(self, in_features: int, out_features: int, bias: bool = True, qconfig: Any = None, device: Any = None, dtype: Any = None) -> None:
        torch.nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    def forward(self, input: Any) -> Any:
        return F.linear(input, self.weight_fake_quant(self.weight), self.bias)


def _conv(dims: int) -> Any:
    kind: Any = getattr(torch.nn, f"Conv{dims}d")

    def forward(self: Any, input: Any) -> Any:
        return self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias)

    def init(self: Any, *args: Any, qconfig: Any = None, **kwargs: Any) -> None:
        kind.__init__(self, *args, **kwargs)
        if not qconfig:
            raise AssertionError("qconfig must be provided for QAT module")
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight()

    text = f"A convolution of {dims} dims whose weight is rounded to codes."
    return type(f"Conv{dims}d", (_Rounded, kind), {"forward": forward, "__init__": init, "_FLOAT_MODULE": kind, "__doc__": text, "__module__": __name__})


Conv1d, Conv2d, Conv3d = (_conv(d) for d in (1, 2, 3))

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.ao.nn.qat", globals())
