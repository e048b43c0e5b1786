"""Modules with float64 (and complex128) parameters beside PyTorch's, at the precision of double: results, gradients, and what they keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

# Module, its arguments, shapes of its inputs.
CASES: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    "BatchNorm1d": ("BatchNorm1d", (3,), {"momentum": 0.13, "eps": 1.3e-5}, ((5, 3),)),
    "BatchNorm1d cumulative": ("BatchNorm1d", (3,), {"momentum": None}, ((5, 3, 4),)),
    "BatchNorm2d": ("BatchNorm2d", (3,), {"momentum": 0.13}, ((4, 3, 5, 2),)),
    "BatchNorm3d": ("BatchNorm3d", (3,), {"affine": False}, ((4, 3, 2, 2, 2),)),
    "InstanceNorm1d": ("InstanceNorm1d", (3,), {"track_running_stats": True, "affine": True, "momentum": 0.13}, ((4, 3, 5),)),
    "InstanceNorm2d": ("InstanceNorm2d", (3,), {"track_running_stats": True, "momentum": 0.13}, ((4, 3, 5, 2),)),
    "LayerNorm": ("LayerNorm", (6,), {"eps": 1.3e-5}, ((4, 6),)),
    "RMSNorm": ("RMSNorm", (6,), {"eps": 1.3e-5}, ((4, 6),)),
    "GroupNorm": ("GroupNorm", (2, 6), {"eps": 1.3e-5}, ((4, 6, 3),)),
    "LocalResponseNorm": ("LocalResponseNorm", (3,), {"alpha": 0.013, "beta": 0.73, "k": 1.1}, ((2, 5, 3),)),
    "Linear": ("Linear", (6, 4), {}, ((5, 6),)),
    "Bilinear": ("Bilinear", (3, 4, 2), {}, ((5, 3), (5, 4))),
    "Conv1d": ("Conv1d", (3, 4, 3), {"padding": 1}, ((2, 3, 7),)),
    "Conv2d": ("Conv2d", (4, 6, 3), {"stride": 2, "groups": 2}, ((2, 4, 7, 6),)),
    "Conv3d": ("Conv3d", (2, 3, 2), {}, ((2, 2, 4, 3, 4),)),
    "ConvTranspose2d": ("ConvTranspose2d", (3, 4, 3), {"stride": 2}, ((2, 3, 4, 3),)),
    "AvgPool2d": ("AvgPool2d", (3,), {"stride": 2, "padding": 1}, ((2, 3, 7, 6),)),
    "LPPool2d": ("LPPool2d", (2.3, 2), {}, ((2, 3, 4, 4),)),
    "AdaptiveAvgPool2d": ("AdaptiveAvgPool2d", ((3, 2),), {}, ((2, 3, 7, 5),)),
    "ELU": ("ELU", (1.3,), {}, ((5, 6),)),
    "CELU": ("CELU", (1.25,), {}, ((5, 6),)),  # PyTorch divides by alpha in float32
    "SELU": ("SELU", (), {}, ((5, 6),)),
    "GELU": ("GELU", (), {}, ((5, 6),)),
    "GELU tanh": ("GELU", ("tanh",), {}, ((5, 6),)),
    "Mish": ("Mish", (), {}, ((5, 6),)),
    "SiLU": ("SiLU", (), {}, ((5, 6),)),
    "Softplus": ("Softplus", (1.3, 2.1), {}, ((5, 6),)),
    "Softshrink": ("Softshrink", (0.37,), {}, ((5, 6),)),
    "Hardshrink": ("Hardshrink", (0.37,), {}, ((5, 6),)),
    "Hardtanh": ("Hardtanh", (-0.37, 0.61), {}, ((5, 6),)),
    "Hardswish": ("Hardswish", (), {}, ((5, 6),)),
    "LeakyReLU": ("LeakyReLU", (0.13,), {}, ((5, 6),)),
    "PReLU": ("PReLU", (6, 0.13), {}, ((5, 6),)),
    "RReLU": ("RReLU", (0.2, 0.2), {}, ((5, 6),)),
    "Threshold": ("Threshold", (0.13, 0.37), {}, ((5, 6),)),
    "LogSigmoid": ("LogSigmoid", (), {}, ((5, 6),)),
    "Tanhshrink": ("Tanhshrink", (), {}, ((5, 6),)),
    "Softmax": ("Softmax", (1,), {}, ((5, 6),)),
    "LogSoftmax": ("LogSoftmax", (1,), {}, ((5, 6),)),
    "GLU": ("GLU", (), {}, ((5, 6),)),
    "LSTM": ("LSTM", (3, 4), {}, ((5, 2, 3),)),
    "GRU": ("GRU", (3, 4), {}, ((5, 2, 3),)),
    "RNN": ("RNN", (3, 4), {}, ((5, 2, 3),)),
    "MultiheadAttention": ("MultiheadAttention", (4, 2), {}, ((5, 2, 4), (5, 2, 4), (5, 2, 4))),
    "TransformerEncoderLayer": ("TransformerEncoderLayer", (4, 2, 8, 0.0), {}, ((5, 2, 4),)),
    "CosineSimilarity": ("CosineSimilarity", (1, 1.3e-8), {}, ((5, 6), (5, 6))),
    "PairwiseDistance": ("PairwiseDistance", (2.3, 1.3e-6), {}, ((5, 6), (5, 6))),
    "Upsample bilinear": ("Upsample", (), {"scale_factor": 1.7, "mode": "bilinear"}, ((2, 3, 4, 5),)),
    "Upsample bicubic": ("Upsample", (), {"scale_factor": 1.7, "mode": "bicubic"}, ((2, 3, 4, 5),)),
    "MSELoss": ("MSELoss", (), {}, ((5, 6), (5, 6))),
    "L1Loss": ("L1Loss", (), {}, ((5, 6), (5, 6))),
    "HuberLoss": ("HuberLoss", (), {"delta": 0.37}, ((5, 6), (5, 6))),
    "SmoothL1Loss": ("SmoothL1Loss", (), {"beta": 0.37}, ((5, 6), (5, 6))),
    "SoftMarginLoss": ("SoftMarginLoss", (), {}, ((5, 6), (5, 6))),
    "KLDivLoss": ("KLDivLoss", (), {"log_target": True, "reduction": "batchmean"}, ((5, 6), (5, 6))),
    "PoissonNLLLoss": ("PoissonNLLLoss", (), {"full": True, "eps": 1.3e-8}, ((5, 6), (5, 6))),
    "CrossEntropyLoss": ("CrossEntropyLoss", (), {"label_smoothing": 0.13}, ((5, 6), (5, 6))),
    "BCEWithLogitsLoss": ("BCEWithLogitsLoss", (), {}, ((5, 6), (5, 6))),
    "HingeEmbeddingLoss": ("HingeEmbeddingLoss", (0.37,), {}, ((5, 6), (5, 6))),
    "CosineEmbeddingLoss": ("CosineEmbeddingLoss", (0.13,), {}, ((5, 6), (5, 6), (5,))),
    "MarginRankingLoss": ("MarginRankingLoss", (0.13,), {}, ((5,), (5,), (5,))),
    "TripletMarginLoss": ("TripletMarginLoss", (0.37, 2.3, 1.3e-6), {}, ((5, 6), (5, 6), (5, 6))),
}
COMPLEX = ("Linear", "Conv1d", "Conv2d", "ConvTranspose2d", "Tanhshrink")


def answers(module: Any, case: str, dtype: str) -> list[np.ndarray]:
    name, args, kwargs, shapes = CASES[case]
    layer = getattr(module.nn, name)(*args, **kwargs).to(getattr(module, dtype))
    generator = np.random.default_rng(5)

    def values(shape: tuple[int, ...]) -> Any:
        found = generator.standard_normal(shape) + (1j * generator.standard_normal(shape) if "complex" in dtype else 0)
        return module.tensor(found, dtype=getattr(module, dtype))

    with module.no_grad():
        for p in layer.parameters():
            p.copy_(values(tuple(p.shape)) * 0.7)
    inputs = [values(shape) for shape in shapes]
    if name == "CosineEmbeddingLoss" or name in ("MarginRankingLoss", "HingeEmbeddingLoss"):
        inputs[-1] = inputs[-1].sign()
    given = [x.requires_grad_(not (name.endswith("Loss") and i == len(inputs) - 1)) for i, x in enumerate(inputs)]
    results: list[Any] = []
    for _ in range(2):
        results = layer(*given)
    flat = [t for part in (results if isinstance(results, tuple) else (results,)) for t in (part if isinstance(part, tuple) else (part,))]
    sum((t.abs() * 1.3 + (t.real if t.is_complex() else t) ** 2).sum() for t in flat if t is not None).backward()
    kept = [*flat, *[x.grad for x in given if x.requires_grad], *[p.grad for p in layer.parameters()], *layer.buffers()]
    return [np.asarray(t.detach().numpy()) for t in kept if t is not None]


@pytest.mark.parametrize("case", [(name, "float64") for name in CASES] + [(name, "complex128") for name in COMPLEX], ids="-".join)
def test_modules_compute_in_doubles(case: tuple[str, str]) -> None:
    ours, theirs = (answers(module, *case) for module in (ft, torch))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=2e-14 * max(1.0, float(np.abs(b).max())))
