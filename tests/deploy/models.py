"""Models that are built into libraries, as exported programs: the digits' network, a small GPT, and Fourier transforms."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.ao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_
from flambeau.cli.demo import DigitNet
from flambeau.cli.demo_gpt import GPT
from flambeau.export import Dim, ExportedProgram, export


def digits() -> ExportedProgram:
    """The network of `flambeau demo`, untrained, with a dynamic batch."""
    torch.manual_seed(0)
    return export(DigitNet().eval(), (torch.randn(4, 1, 8, 8),), dynamic_shapes={"x": {0: Dim("batch", min=1, max=256)}})


def gpt(batches: bool = False) -> ExportedProgram:
    """A small GPT with a dynamic length, and perhaps a dynamic batch."""
    torch.manual_seed(0)
    model = GPT().eval()
    dims = {1: Dim("length", min=1, max=40)} | ({0: Dim("batch", min=1, max=8)} if batches else {})
    return export(model, (torch.randint(0, 30, (3 if batches else 1, 17)),), dynamic_shapes={"tokens": dims})


class Spectrum(nn.Module):
    """The logarithm of the power in each frequency, and the signal without its upper half; 202 has a prime factor that is no radix."""

    def forward(self, x: Any) -> Any:
        z = torch.fft.rfft(x)
        return torch.cat([(z.abs() ** 2 + 1).log(), torch.fft.irfft(z[:, :52], n=202)], 1)


def spectrum() -> ExportedProgram:
    """Fourier transforms of signals of one length, with a dynamic batch."""
    return export(Spectrum(), (torch.randn(5, 202),), dynamic_shapes={"x": {0: Dim("batch", min=1, max=64)}})


def coded(bits: int) -> ExportedProgram:
    """Dense layers with weights of 8 or 4 bits, with a dynamic batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 40), nn.ReLU(), nn.Linear(40, 10, bias=False))
    quantize_(model, Int8WeightOnlyConfig() if bits == 8 else Int4WeightOnlyConfig(32))
    return export(model.eval(), (torch.randn(4, 100),), dynamic_shapes=({0: Dim("batch", min=1, max=32)},))
