"""Products with coded weights beside float64: few rows, and many, which the matrix unit multiplies where there is one."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.composed.coded import coded_linear, decoded, pack
from flambeau.runtime.target import Target

ROWS = (1, 2, 31, 32, 33, 47, 64, 100)
CASES = [(48, 256, 4, 128), (16, 128, 4, 64), (64, 512, 4, 256), (32, 384, 8, 128), (160, 192, 8, 64), (32, 1024, 4, 1024), (48, 256, 4, 32), (37, 256, 4, 128)]


def _weights(n: int, k: int, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes, scales and zero points of random numbers, with zero points between the codes, too."""
    integers = torch.randint(0, 1 << bits, (n, k)).to(torch.uint8)
    codes = pack(integers, group) if bits == 4 else integers
    return codes, torch.rand(n, k // group) * 0.1 + 0.01, torch.rand(n, k // group) * (2**bits - 1)


@pytest.mark.parametrize(("n", "k", "bits", "group"), CASES)
def test_beside_float64(n: int, k: int, bits: int, group: int) -> None:
    torch.manual_seed(0)
    codes, scales, zeros = _weights(n, k, bits, group)
    weight = decoded(codes, scales, zeros, bits, group).double()
    for rows in ROWS:  # in turn, so that plans over symbols are asked, too
        x = torch.randn(rows, k) * torch.logspace(-3, 3, rows)[:, None]
        x[rows // 2] = 0
        found = coded_linear(x, codes, scales, zeros, bits, group).double()
        exact, size = x.double() @ weight.t(), x.double().abs() @ weight.abs().t()
        assert ((found - exact).abs() <= 3e-5 * size).all(), rows


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_rows_that_are_no_numbers_spoil_themselves_alone(bad: float) -> None:
    torch.manual_seed(0)
    codes, scales, zeros = _weights(32, 256, 4, 128)
    x = torch.randn(40, 256)
    wanted = coded_linear(x, codes, scales, zeros, 4, 128)
    x[[5, 33], [7, 200]] = bad
    found = coded_linear(x, codes, scales, zeros, 4, 128)
    good = [i for i in range(40) if i not in (5, 33)]
    assert torch.equal(found[good], wanted[good])
    assert not found[[5, 33]].isfinite().any()


def test_the_same_bits_on_any_number_of_threads() -> None:
    torch.manual_seed(0)
    codes, scales, zeros = _weights(1024, 1024, 4, 128)
    x, before, found = torch.randn(96, 1024), torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            found.append(coded_linear(x, codes, scales, zeros, 4, 128))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def test_rows_of_x_do_not_depend_on_those_beside_them() -> None:
    torch.manual_seed(0)
    codes, scales, zeros = _weights(64, 512, 4, 128)
    x = torch.randn(100, 512)
    whole = coded_linear(x, codes, scales, zeros, 4, 128)
    for count in (32, 50, 99):
        assert torch.equal(coded_linear(x[:count], codes, scales, zeros, 4, 128), whole[:count])


def test_bfloat16() -> None:
    torch.manual_seed(0)
    codes, scales, zeros = _weights(64, 512, 4, 128)
    x = torch.randn(200, 512).bfloat16()
    exact = x.double() @ decoded(codes, scales, zeros, 4, 128).double().t()
    found = coded_linear(x, codes, scales, zeros, 4, 128)
    assert found.dtype is torch.bfloat16
    assert ((found.double() - exact).abs() <= 0.01 * exact.abs() + 0.02 * exact.abs().mean()).all()


def test_where_there_is_a_matrix_unit_it_is_used() -> None:
    if "int8" not in Target.host().matrix_dtypes:
        pytest.skip("there is no matrix unit here")
    from flambeau.compiler import pipeline
    from flambeau.compiler.graph import Graph, Node, Value
    from flambeau.dtypes import float32, uint8

    graph = Graph()
    shapes = [((64, 256), float32), ((32, 128), uint8), ((32, 2), float32), ((32, 2), float32)]
    given = []
    for shape, dtype in shapes:
        flat = graph.add_value(Value((shape[0] * shape[1],), dtype, (1,)))
        graph.inputs.append(flat)
        given.append(graph.add_value(Value(shape, dtype, (shape[1], 1), 0, flat)))
        graph.nodes.append(Node("view", (flat,), (given[-1],)))
    out = graph.add_value(Value((64, 32), float32, (32, 1)))
    graph.nodes.append(Node("coded_matmul", tuple(given), (out,), (("code_bits", 4), ("group", 128))))
    graph.outputs = [out]
    (kernel,) = pipeline.compile_graph(graph).kernels
    assert kernel.key.endswith(":tiles")
