"""What quantization costs: a network for digits, a small GPT, and weights whose codes are chosen by the layer's inputs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import flambeau as ft

q = ft.ao.quantization


def _digits() -> tuple[Any, Any]:
    """Images of 8 x 8 that belong to ten noisy patterns, and their numbers."""
    g = ft.Generator().manual_seed(0)
    patterns = ft.randn(10, 1, 8, 8, generator=g)
    labels = ft.randint(0, 10, (2000,), generator=g)
    return patterns[labels] + 0.6 * ft.randn(2000, 1, 8, 8, generator=g), labels


def _trained_network() -> tuple[Any, Any, Any]:
    images, labels = _digits()
    ft.manual_seed(0)
    net = ft.nn.Sequential(
        ft.nn.Conv2d(1, 16, 3), ft.nn.ReLU(), ft.nn.MaxPool2d(2), ft.nn.Flatten(), ft.nn.Linear(144, 64), ft.nn.ReLU(), ft.nn.Linear(64, 10)
    )  # fmt: skip
    optimizer = ft.optim.Adam(net.parameters(), lr=2e-3)
    for step in range(60):
        at = slice(100 * (step % 10), 100 * (step % 10) + 100)
        loss = ft.nn.functional.cross_entropy(net(images[at]), labels[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval(), images[1000:], labels[1000:]


def test_a_network_for_digits_keeps_its_accuracy() -> None:
    net, images, labels = _trained_network()

    def accuracy(model: Any) -> float:
        with ft.no_grad():
            return (model(images).argmax(1) == labels).double().mean().item()  # type: ignore[no-any-return]

    before = accuracy(net)
    assert before > 0.9
    wrapped = q.QuantWrapper(copy.deepcopy(net))
    q.fuse_modules(wrapped.module, [["0", "1"], ["4", "5"]], inplace=True)
    wrapped.qconfig = q.get_default_qconfig("x86")
    prepared = q.prepare(wrapped)
    prepared(images[:500])
    made = {"static": q.convert(prepared), "dynamic": q.quantize_dynamic(net)}
    for name, config in {"int8": q.Int8WeightOnlyConfig(), "int4": q.Int4WeightOnlyConfig(group_size=32)}.items():
        made[name] = copy.deepcopy(net)
        q.quantize_(made[name], config)
    for name, model in made.items():
        assert accuracy(model) > before - 0.002 - 1e-9, (name, accuracy(model), before)


class _GPT(ft.nn.Module):
    """Two blocks of attention over characters."""

    def __init__(self, vocabulary: int, width: int = 64, length: int = 32) -> None:
        super().__init__()
        self.embed, self.place = ft.nn.Embedding(vocabulary, width), ft.nn.Embedding(length, width)
        self.blocks = ft.nn.ModuleList([ft.nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True) for _ in range(2)])
        self.head = ft.nn.Linear(width, vocabulary)

    def forward(self, x: Any) -> Any:
        h = self.embed(x) + self.place(ft.arange(x.shape[1]))
        mask = ft.nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        for block in self.blocks:
            h = block(h, src_mask=mask, is_causal=True)
        return self.head(h)


def test_a_small_gpt_keeps_its_perplexity() -> None:
    text = "the quick brown fox jumps over the lazy dog while seven wizards boxed. " * 40
    letters = sorted(set(text))
    data = ft.tensor([letters.index(c) for c in text])
    rows = data[: len(data) // 32 * 32].view(-1, 32)
    ft.manual_seed(0)
    model = _GPT(len(letters))
    optimizer = ft.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(m: Any, x: Any) -> Any:
        return ft.nn.functional.cross_entropy(m(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    for step in range(24):
        loss = loss_of(model, rows[16 * (step % 5) : 16 * (step % 5) + 16])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with ft.no_grad():
        before = loss_of(model, rows).exp().item()
        assert before < 15  # of 28 letters: it has learned something
        configs = (q.Int8WeightOnlyConfig(), 0.01), (q.Int8DynamicActivationInt8WeightConfig(), 0.01), (q.Int4WeightOnlyConfig(group_size=32), 0.03)
        for config, limit in configs:
            made = copy.deepcopy(model)
            q.quantize_(made, config)
            assert abs(loss_of(made, rows).exp().item() / before - 1) < limit, config


@pytest.mark.parametrize("bits", [3, 4])
def test_codes_chosen_by_inputs(bits: int) -> None:
    """GPTQ and AWQ give smaller errors of a layer's results than the nearest codes."""
    g = ft.Generator().manual_seed(1)
    linear = ft.nn.Linear(64, 32)
    mix = ft.randn(12, 64, generator=g)  # inputs of few directions, and features of very different sizes
    x = (ft.randn(400, 12, generator=g) @ mix + 0.2 * ft.randn(400, 64, generator=g)) * ft.logspace(1, -1, 64)
    wanted = linear(x)

    def error(layer: Any) -> float:
        return float((layer(x) - wanted).norm() / wanted.norm())

    plain = q.IntxWeightOnlyConfig(getattr(ft, f"int{bits}"), q.PerGroup(32), q.MappingType.ASYMMETRIC).layer(linear)
    assert error(q.gptq_linear(linear, x, bits, 32)) < 0.7 * error(plain)
    assert error(q.awq_linear(linear, x, bits, 32)) < 0.98 * error(plain)
    with pytest.raises(RuntimeError, match="whole groups"):
        q.gptq(linear.weight, x, bits, 48)
    with pytest.raises(RuntimeError, match="last dim"):
        q.awq(linear.weight, ft.ones(3, 5), bits, 32)


def test_codes_of_a_table() -> None:
    g = ft.Generator().manual_seed(2)
    linear = ft.nn.Linear(96, 40)
    x = ft.randn(5, 96, generator=g)
    wanted = linear(x)
    for kind, limit in (("nf4", 0.12), ("fp4", 0.2)):
        made = q.Linear4bit.from_float(linear, kind)
        assert (made(x) - wanted).norm() < limit * wanted.norm()
        table = ft.tensor(q.table_codes.TABLES[kind])
        codes, absmax = q.quantize_4bit(linear.weight.detach(), kind)
        ratio = linear.weight.detach().view(-1, 64) / absmax[:, None]
        nearest = (ratio[..., None] - table).abs().amin(-1) * absmax[:, None]  # no number of the table is nearer
        assert ft.allclose((q.dequantize_4bit(codes, absmax, kind).view(-1, 64) - linear.weight.detach().view(-1, 64)).abs(), nearest, atol=1e-6)
    big = x.clone()
    big[:, 7] = 50.0
    eight = q.Linear8bit.from_float(linear)
    assert (eight(big) - linear(big)).norm() < 0.01 * linear(big).norm()
    without = q.Linear8bit.from_float(linear, threshold=0.0)
    assert (without(big) - linear(big)).norm() > 2 * (eight(big) - linear(big)).norm()
    y = x.clone().requires_grad_()
    q.Linear4bit.from_float(linear)(y).sum().backward()
    assert y.grad is not None and y.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="quant_type"):
        q.Linear4bit(4, 4, quant_type="nf5")
