"""Many small products (compiler/kernels/matmul_small.py): values against float64, strides of any kind, shared operands, equal bits on any number of threads."""

from __future__ import annotations

import numpy
import pytest

import flambeau as fb
from flambeau.compiler.kernels.matmul_small import height_of

SIZES = [(40, 1, 1, 1), (40, 4, 4, 4), (17, 3, 5, 2), (33, 7, 1, 9), (20, 9, 13, 17), (16, 12, 20, 33), (16, 25, 8, 64), (19, 2, 70, 40), (16, 64, 3, 5)]


def reference(a: fb.Tensor, b: fb.Tensor) -> numpy.ndarray:
    return numpy.matmul(a.double().numpy(), b.double().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "bfloat16"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(sizes: tuple[int, int, int, int], dtype: str) -> None:
    count, m, k, n = sizes
    fb.manual_seed(count * m + n)
    kind = getattr(fb, dtype)
    a, b = ((fb.randn(count, *shape) * 5).to(kind) for shape in ((m, k), (k, n)))
    found, wanted = fb.bmm(a, b).double().numpy(), reference(a, b)
    scale = numpy.matmul(abs(a.double().numpy()), abs(b.double().numpy())) + 1e-30
    bound = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 8e-3}.get(dtype, 0.0)
    assert (abs(found - wanted) <= bound * scale).all()


def test_strides_and_shared_operands() -> None:
    fb.manual_seed(5)
    x, y = fb.randn(24, 6, 8), fb.randn(24, 8, 5)
    wanted = reference(x, y)
    assert numpy.allclose(x.transpose(1, 2).contiguous().transpose(1, 2).matmul(y), wanted, atol=1e-5)  # columns of a next to each other
    assert numpy.allclose(x @ y.transpose(1, 2).contiguous().transpose(1, 2), wanted, atol=1e-5)  # rows of b apart
    wide = fb.zeros(24, 6, 11)
    wide[:, :, 2:10] = x
    assert numpy.allclose(wide[:, :, 2:10] @ y, wanted, atol=1e-5)
    assert numpy.allclose(x.unflatten(0, (4, 6)).transpose(0, 1) @ y.unflatten(0, (4, 6)).transpose(0, 1),
                          wanted.reshape(4, 6, 6, 5).transpose(1, 0, 2, 3), atol=1e-5)  # fmt: skip
    assert numpy.allclose(x[:1] @ y, numpy.matmul(x[:1].numpy(), y.numpy()), atol=1e-5)  # one a for all
    assert numpy.allclose(x @ y[:1], numpy.matmul(x.numpy(), y[:1].numpy()), atol=1e-5)
    assert numpy.allclose(fb.baddbmm(fb.ones(24, 6, 5), x, y), wanted + 1, atol=1e-5)


def test_nothing_is_written_beside_the_results() -> None:
    out = fb.full((40, 6, 9), -1.0)
    a, b = fb.ones(40, 6, 3), fb.ones(40, 3, 7)
    out[:, :, 1:8] = a @ b
    assert out[:, :, 1:8].eq(3).all() and out[:, :, 0].eq(-1).all() and out[:, :, 8].eq(-1).all()


def test_infinities_stay_in_their_item() -> None:
    a, b = fb.ones(32, 5, 6), fb.ones(32, 6, 7)
    a[3, 2, 1] = float("inf")
    b[9, 0, 0] = float("nan")
    c = a @ b
    assert c.isfinite().sum() == 32 * 35 - 7 - 5 and c[3, 2].isinf().all() and c[9, :, 0].isnan().all()


def test_equal_bits_on_any_number_of_threads() -> None:
    fb.manual_seed(1)
    a, b = fb.randn(4000, 6, 7), fb.randn(4000, 7, 9)
    before = fb.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            fb.set_num_threads(threads)
            found.append((a @ b).numpy().tobytes())
    finally:
        fb.set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_gradients() -> None:
    fb.manual_seed(2)
    a, b = fb.randn(20, 3, 4).requires_grad_(), fb.randn(20, 4, 5).requires_grad_()
    (a @ b).square().sum().backward()
    c = 2 * reference(a.detach(), b.detach())
    assert numpy.allclose(a.grad, c @ b.detach().numpy().transpose(0, 2, 1), atol=1e-4)
    assert numpy.allclose(b.grad, a.detach().numpy().transpose(0, 2, 1) @ c, atol=1e-4)


@pytest.mark.parametrize(("m", "vectors", "registers", "height"), [(4, 1, 32, 4), (9, 1, 32, 5), (16, 2, 32, 8), (64, 4, 32, 6), (7, 3, 16, 3), (1, 4, 16, 1)])
def test_heights(m: int, vectors: int, registers: int, height: int) -> None:
    assert height_of(m, vectors, registers) == height
