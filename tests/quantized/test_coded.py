"""Products with coded weights, and quantize_: against float64, in both forms of the kernel."""

from __future__ import annotations

import os
from typing import Any

import pytest

import flambeau as ft
from flambeau.composed.coded import coded_linear, decoded, pack
from tests import processes

q = ft.ao.quantization
# rows of the weight, inputs, group, bits, rows of the input
CASES = [
    (8, 128, 128, 4, 1), (13, 256, 64, 4, 3), (5, 96, 32, 4, 2), (70, 512, 512, 8, 1), (9, 256, 128, 8, 2), (7, 64, 32, 8, 1), (6, 128, 64, 8, 1),
    (130, 256, 256, 4, 8), (3, 384, 384, 4, 1), (33, 128, 128, 4, 20),
    (300, 8192, 128, 4, 5), (9, 256, 256, 8, 41),
]  # fmt: skip


def _case(rows: int, count: int, group: int, bits: int, m: int) -> Any:
    g = ft.Generator().manual_seed(rows)
    integers = ft.randint(0, 2**bits, (rows, count), dtype=ft.uint8, generator=g)
    scales, zeros = ft.rand(rows, count // group, generator=g) + 0.1, ft.randint(0, 2**bits, (rows, count // group), generator=g).float()
    weight = ((integers.double().view(rows, -1, group) - zeros.double()[..., None]) * scales.double()[..., None]).view(rows, count)
    return pack(integers, group) if bits == 4 else integers, scales, zeros, weight, ft.randn(m, count, generator=g), ft.randn(rows, generator=g)


def _error(rows: int, count: int, group: int, bits: int, m: int) -> float:
    codes, scales, zeros, weight, x, bias = _case(rows, count, group, bits, m)
    found = coded_linear(x, codes, scales, zeros, bits, group, bias)
    wanted = x.double() @ weight.t() + bias.double()
    return ((found - wanted).abs() / (x.double().abs() @ weight.abs().t() + 1)).max().item()  # type: ignore[no-any-return]


@pytest.mark.parametrize("case", CASES)
def test_products(case: Any) -> None:
    # x keeps 15 bits below the greatest of its block: an error of 2^-16 of it a term.
    assert _error(*case) < 3e-5


def test_products_without_dot_instructions() -> None:
    text = "from tests.quantized.test_coded import CASES, _error\nprint(max(_error(*c) for c in CASES))"
    env = {**os.environ, "FLAMBEAU_DOT_INSTRUCTIONS": "0"}
    done = processes.python("-c", text, env=env, check=True)
    assert float(done.stdout) < 1e-6


def test_bits_do_not_depend_on_threads_or_rows() -> None:
    codes, scales, zeros, _, x, _ = _case(300, 256, 64, 4, 5)
    whole = coded_linear(x, codes, scales, zeros, 4, 64)
    before = ft.get_num_threads()
    try:
        ft.set_num_threads(1)
        alone = ft.cat([coded_linear(x[i : i + 1], codes, scales, zeros, 4, 64) for i in range(5)])
    finally:
        ft.set_num_threads(before)
    assert ft.equal(whole, alone)


def test_special_values() -> None:
    codes, scales, zeros, _, x, _ = _case(8, 256, 128, 4, 1)
    for value in (float("nan"), float("inf")):
        y = x.clone()
        y[0, 3] = value
        assert not coded_linear(y, codes, scales, zeros, 4, 128).isfinite().any()
    assert coded_linear(ft.zeros(1, 256), codes, scales, zeros, 4, 128).abs().max() == 0
    tiny = coded_linear(x * 1e-30, codes, scales, zeros, 4, 128)
    assert ft.allclose(tiny * 1e30, coded_linear(x, codes, scales, zeros, 4, 128), rtol=1e-4, atol=1e-3)


def test_gradients_vmap_and_tangents() -> None:
    codes, scales, zeros, weight, x, _ = _case(10, 64, 32, 4, 2)
    x.requires_grad_()
    coded_linear(x, codes, scales, zeros, 4, 32).sum().backward()
    assert x.grad is not None and ft.allclose(x.grad, weight.float().sum(0).expand(2, 64), atol=1e-4)
    batch = x.detach().expand(3, 2, 64) * ft.arange(1.0, 4.0).view(3, 1, 1)
    together = ft.vmap(lambda r: coded_linear(r, codes, scales, zeros, 4, 32))(batch)
    assert ft.allclose(together, ft.stack([coded_linear(r, codes, scales, zeros, 4, 32) for r in batch]), atol=1e-3)
    _, tangent = ft.func.jvp(lambda r: coded_linear(r, codes, scales, zeros, 4, 32), (x.detach(),), (ft.ones(2, 64),))
    assert ft.allclose(tangent, coded_linear(ft.ones(2, 64), codes, scales, zeros, 4, 32), atol=1e-3)


def test_errors() -> None:
    codes, scales, zeros, *_ = _case(8, 128, 128, 4, 1)
    with pytest.raises(RuntimeError, match="needs an input"):
        coded_linear(ft.ones(1, 64), codes, scales, zeros, 4, 128)
    with pytest.raises(RuntimeError, match="groups of 32, 64"):
        coded_linear(ft.ones(1, 128), codes, scales, zeros, 4, 24)
    with pytest.raises(TypeError, match="configuration"):
        q.quantize_(ft.nn.Sequential(ft.nn.Linear(4, 4)), "int4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="single dense layer"):
        q.quantize_(ft.nn.Linear(4, 4), q.Int4WeightOnlyConfig())
    with pytest.raises(ValueError, match="groups"):
        q.quantize_(ft.nn.Sequential(ft.nn.Linear(4, 4)), q.Int4WeightOnlyConfig(group_size=40))


CONFIGS = {
    "int8": (q.Int8WeightOnlyConfig(), 0.01), "int8 groups": (q.Int8WeightOnlyConfig(group_size=32), 0.01),
    "int4": (q.Int4WeightOnlyConfig(group_size=32), 0.12),
    "intx": (q.IntxWeightOnlyConfig(ft.int4, q.PerGroup(32)), 0.15), "int6": (q.IntxWeightOnlyConfig(ft.int6, q.PerAxis(0), q.MappingType.ASYMMETRIC), 0.05),
    "dynamic": (q.Int8DynamicActivationInt8WeightConfig(), 0.02), "float8": (q.Float8WeightOnlyConfig(), 0.05),
    "float8 dynamic": (q.Float8DynamicActivationFloat8WeightConfig(), 0.08),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("bias", [False, True])
def test_quantize_(name: str, bias: bool) -> None:
    config, limit = CONFIGS[name]
    ft.manual_seed(0)
    model = ft.nn.Sequential(ft.nn.Linear(100, 48, bias), ft.nn.ReLU(), ft.nn.Sequential(ft.nn.Linear(48, 20, bias)))
    x = ft.randn(3, 5, 100)
    wanted = model(x).detach()
    q.quantize_(model, config)
    found = model(x)
    assert (found - wanted).norm() < limit * wanted.norm() and not any(type(m) is ft.nn.Linear for m in model.modules())
    one = model(x[0, :1])
    assert ft.allclose(one, found[0, :1], rtol=1e-3, atol=1e-3)
    other = ft.nn.Sequential(ft.nn.Linear(100, 48, bias), ft.nn.ReLU(), ft.nn.Sequential(ft.nn.Linear(48, 20, bias)))
    q.quantize_(other, config)
    other.load_state_dict(model.state_dict())
    assert ft.equal(other(x), found)


def test_filter_and_shared_layers() -> None:
    shared = ft.nn.Linear(32, 32)
    model = ft.nn.Sequential(shared, shared, ft.nn.Linear(32, 4))
    q.quantize_(model, q.Int8WeightOnlyConfig(), filter_fn=lambda m, name: name != "2")
    assert model[0] is model[1] and type(model[0]).__name__ == "CodedLinear" and type(model[2]) is ft.nn.Linear
    assert ft.allclose(decoded(model[0].codes, model[0].scales, model[0].zeros, 8, 32), shared.weight, atol=2e-3)
