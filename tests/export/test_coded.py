"""Layers with weights of 8 and 4 bits in programs: operators of ATen in the file, codes where it is run, and what only looks like codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flambeau as ft
from flambeau.ao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, IntxWeightOnlyConfig, quantize_
from flambeau.deploy.record import record
from flambeau.export.coded import coded_linear, products

CONFIGS = {
    "int8 by rows": Int8WeightOnlyConfig(), "int8 by 32": Int8WeightOnlyConfig(32), "int4 by 32": Int4WeightOnlyConfig(32),
    "int4 by 128": Int4WeightOnlyConfig(128), "int4 by 256": Int4WeightOnlyConfig(256), "int3": IntxWeightOnlyConfig(ft.int3),
}  # fmt: skip


def _network(inputs: int, bias: bool) -> Any:
    ft.manual_seed(0)
    return ft.nn.Sequential(ft.nn.Linear(inputs, 40, bias=bias), ft.nn.ReLU(), ft.nn.Linear(40, 5)).eval()


def _exported(net: Any, inputs: int) -> Any:
    return ft.export.export(net, (ft.randn(4, inputs),), dynamic_shapes=({0: ft.export.Dim("batch", min=1, max=64)},))


def _calls(program: Any) -> list[str]:
    return [str(n.target) for n in program.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("inputs", "bias"), [(256, True), (100, False)])
def test_a_program_has_operators_of_aten_and_runs_with_codes(name: str, inputs: int, bias: bool, tmp_path: Path) -> None:
    net = _network(inputs, bias)
    quantize_(net, CONFIGS[name])
    ft.export.save(_exported(net, inputs), tmp_path / "m.pt2")
    program = ft.export.load(tmp_path / "m.pt2")
    assert all(name.startswith("aten.") for name in _calls(program))
    module = program.module()
    assert sum([n.target is coded_linear for n in module.graph.nodes]) == 2
    assert not [n for n in module.graph.nodes if str(n.target).startswith(("aten.linear", "aten.stack", "aten.mul"))]
    again = ft.export.export(module, (ft.randn(3, inputs),))  # and back to operators of aten
    assert _calls(again) == _calls(program)
    assert {n.op for n in record(program, (3,)).graph.nodes} & {"coded_matmul"}
    torch = pytest.importorskip("torch")
    theirs = torch.export.load(tmp_path / "m.pt2").module()
    for rows in (1, 3, 8, 9, 33):
        x = ft.randn(rows, inputs)
        with ft.no_grad():
            assert ft.equal(module(x), net(x))
        expected = theirs(torch.from_numpy(x.numpy())).detach().numpy()
        assert abs(module(x).detach().numpy() - expected).max() < 1e-3 * abs(expected).max()


class Near(ft.nn.Module):
    """A product whose weight is made of codes by other steps, chosen by `how`."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.codes = ft.nn.Buffer(ft.arange(8 * 64).remainder(251).view(8, 64).to(ft.int8 if how == "signed" else ft.uint8))
        self.scales, self.zeros = ft.nn.Buffer(ft.rand(8, 2) + 0.5), ft.nn.Buffer(ft.rand(8, 2) * 9)

    def forward(self, x: Any) -> Any:
        codes, group = self.codes.view(8, -1, 16 if self.how == "group" else 32), -1
        zeros, scales = self.zeros, self.scales
        if self.how == "group":
            zeros, scales = zeros.repeat_interleave(2, 1), scales.repeat_interleave(2, 1)
        if self.how == "other axis":
            zeros = zeros[:1].expand(8, 2)[:, :, None][..., 0]
        integers = codes.double().float() if self.how == "double" else codes.float()
        weight = ((integers - zeros.unsqueeze(group)) * scales.unsqueeze(group)).view(8, -1)
        return (
            (x @ weight.t())
            if self.how == "matmul"
            else (ft.nn.functional.linear(x, weight), weight)
            if self.how == "shown"
            else ft.nn.functional.linear(x, weight)
        )


@pytest.mark.parametrize(("how", "found"), [("plain", 1), ("shown", 1), ("signed", 0), ("group", 0), ("double", 0), ("matmul", 0), ("other axis", 1)])
def test_what_looks_like_codes_is_computed_the_same(how: str, found: int) -> None:
    model, x = Near(how), ft.randn(3, 64)
    program = ft.export.export(model, (x,))
    assert len(products(program.graph)[0]) == found
    made, wanted = program.module()(x), model(x)
    for a, b in zip(made if how == "shown" else [made], wanted if how == "shown" else [wanted], strict=True):
        assert ft.allclose(a, b, rtol=0.0, atol=1e-3 * float(b.abs().max()))
