"""Operations against PyTorch: one line each; values, dtype, shape, strides, first and second gradients in float64."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.oracle import arrays, check

UNARY = (
    "abs neg exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan sigmoid erf erfc floor ceil trunc round sign square frac "
    "relu sinc isnan isinf isfinite isreal signbit logical_not sgn positive deg2rad rad2deg nan_to_num clone reciprocal"
).split()
POSITIVE = "sqrt rsqrt log log2 log10 log1p lgamma digamma acosh".split()
INSIDE = "asin acos atanh erfinv logit".split()
BINARY = (
    "add sub mul div maximum minimum fmax fmin atan2 eq ne lt le gt ge logical_and logical_or logical_xor hypot copysign "
    "remainder fmod floor_divide true_divide logaddexp logaddexp2 nextafter rsub"
).split()

WITHOUT_GRADIENT = ("nextafter", "floor_divide")  # of the binary functions, in PyTorch
X = [(3, 4)]
XY = [(3, 4), (3, 4)]


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    check(lambda m, x: getattr(m, name)(x), arrays(*X), second=name not in ("reciprocal",))


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_positive(name: str) -> None:
    check(lambda m, x: getattr(m, name)(x), arrays(*X, low=1.1, high=4.0), second=name != "digamma", grad=name != "digamma")


@pytest.mark.parametrize("name", INSIDE)
def test_unary_inside(name: str) -> None:
    check(lambda m, x: getattr(m, name)(x), arrays(*X, low=0.1, high=0.9))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    check(lambda m, x, y: getattr(m, name)(x, y), arrays(*XY), grad=name not in WITHOUT_GRADIENT)


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcast(name: str) -> None:
    check(lambda m, x, y: getattr(m, name)(x, y), arrays((3, 1, 4), (2, 4)), second=False, grad=name not in WITHOUT_GRADIENT)


EXPRESSIONS = {
    # arithmetic
    "alpha": (lambda m, x, y: m.add(x, y, alpha=2.5) - m.sub(x, y, alpha=2), XY),
    "scalars": (lambda m, x: 2 * x + 1 - x / 3 + 3 / (x + 5) - (1 - x) + (x + 3) ** 2 + (x + 3) ** -1 + (x + 3) ** 0.5, X),
    "pow": (lambda m, x, y: (x.abs() + 0.5) ** y, XY),
    "rpow": (lambda m, x: 2.5**x, X),
    "pow cases": (lambda m, x: (x**3, x**2, x**1, x**0, (x * x + 1) ** -2, (x * x + 1) ** 1.7), X),
    "div rounding": (lambda m, x, y: (m.div(x, y, rounding_mode="floor"), m.div(x, y, rounding_mode="trunc")), XY),
    "lerp": (lambda m, x, y: (m.lerp(x, y, 0.3), m.lerp(x, y, 0.8), m.lerp(x, y, m.sigmoid(x))), XY),
    "addc": (lambda m, x, y: (m.addcmul(x, x, y, value=0.5), m.addcdiv(x, y, x * x + 1, value=2.0)), XY),
    "where": (lambda m, x, y: (m.where(x > 0, x, y), m.where(x > y, 1.0, y), m.where(x > 0, x, 0.0)), XY),
    "clamp": (lambda m, x, y: (x.clamp(-1, 1), x.clamp(min=0.5), x.clamp(max=y), m.clip(x, y - 1, y + 1)), XY),
    "xlogy": (lambda m, x, y: m.xlogy(x, y.abs() + 0.1), XY),
    "heaviside": (lambda m, x, y: m.heaviside(x.detach(), y.detach()), XY),
    # reductions
    "sum": (lambda m, x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.sum(-1, keepdim=True)), X),
    "mean": (lambda m, x: (x.mean(), x.mean(0), x.mean((0, 1), keepdim=True)), X),
    "prod": (lambda m, x: (x.prod(), x.prod(1), x.prod(0, keepdim=True)), X),
    "var": (lambda m, x: (x.var(), x.std(0), x.var(1, unbiased=False), m.var_mean(x, 1), m.std_mean(x, 0, correction=0)), X),
    "extremes": (lambda m, x: (x.max(), x.min(), x.max(0), x.min(1, keepdim=True), x.amax(1), x.amin((0, 1)), m.aminmax(x)), X),
    "arg": (lambda m, x: (x.argmax(), x.argmin(0), x.argmax(1, keepdim=True)), X),
    "any all": (lambda m, x: ((x > 0).any(), (x > 0).all(1), (x > -9).all(), x.any(0), m.count_nonzero(x > 0, 1)), X),
    "norm": (lambda m, x: (x.norm(), x.norm(1, 0), x.norm(float("inf")), x.norm(3, dim=1), x.norm(dim=(0, 1), keepdim=True)), X),
    "logsumexp": (lambda m, x: (x.logsumexp(1), m.logsumexp(x, (0, 1)), x.logsumexp(0, keepdim=True)), X),
    "scans": (lambda m, x: (x.cumsum(1), x.cumprod(0), x.cummax(1), x.cummin(0), m.logcumsumexp(x, 1)), X),
    "nans": (lambda m, x: (m.nansum(x), m.nanmean(x, 1)), X),
    "median": (lambda m, x: (x.median(), x.median(1), x.kthvalue(2, 1), m.quantile(x, 0.3), m.quantile(x, 0.5, dim=1, keepdim=True)), X),
    # shape
    "views": (lambda m, x: (x.view(4, 3), x.reshape(-1), x.t(), x.T, x.permute(1, 0), x.transpose(0, 1).unsqueeze(1), x.squeeze()), X),
    "expand": (lambda m, x: (x.expand(2, 3, 4), x[:, :1].expand(-1, 5), x.broadcast_to((2, 3, 4)), x.expand_as(x)), X),
    "joins": (lambda m, x, y: (m.cat([x, y]), m.cat((x, y), 1), m.stack([x, y], 1), m.cat([x.t(), y.t()], 0)), XY),
    "splits": (lambda m, x: (x.split(2, 1), x.chunk(3, 1), x.split([1, 3], 1), m.tensor_split(x, 3, 1), x.unbind(0)), X),
    "moves": (lambda m, x: (x.flip(0), x.flip(0, 1), x.roll(1, 1), x.roll((1, 2), (0, 1)), x.roll(5), x.repeat(2, 3), x.tile(2)), X),
    "flatten": (lambda m, x: (x.view(3, 2, 2).flatten(1), x.flatten(), x.unflatten(1, (2, 2)), x.ravel(), x.movedim(0, 1)), X),
    "diagonals": (lambda m, x: (x.diagonal(), x.diagonal(1), x.diag(), m.diag(x[0]), m.diag_embed(x, 1), x.tril(), x.triu(1), x.tril(-1)), X),
    "windows": (lambda m, x: (x.unfold(1, 2, 1), x.unfold(1, 3, 2), x.as_strided((2, 2), (1, 2), 3)), X),
    "narrow": (lambda m, x: (x.narrow(1, 1, 2), x.select(1, 2), x[1], x[:, 2], x[-1, -1], x[..., 1:3], x[None, :, ::2]), X),
    "interleave": (lambda m, x: (x.repeat_interleave(2, 1), x.repeat_interleave(m.tensor([1, 0, 2]), 0)), X),
    "meshgrid": (lambda m, x: (m.meshgrid(x[0], x[:, 0], indexing="ij"), m.meshgrid(x[0], x[:, 0], indexing="xy")), X),
    # indexing
    "advanced": (lambda m, x: (x[[0, 2]], x[:, [1, 1, 0]], x[[0, 1], [2, 3]], x[m.tensor([[0, 1], [2, 0]])], x[x > 0]), X),
    "mixed": (lambda m, x: (x.view(3, 2, 2)[[0, 1], :, [1, 0]], x.view(3, 2, 2)[:, [0, 1], [1, 0]], x[m.tensor([True, False, True])]), X),
    "gather": (lambda m, x: (x.gather(1, m.tensor([[0, 1], [2, 3], [0, 0]])), m.take_along_dim(x, x.argsort(1), 1), x.take(m.tensor([5, 0]))), X),
    "scatter": (lambda m, x, y: (x.scatter(1, m.tensor([[0, 1], [2, 3], [0, 2]]), y[:, :2]), x.scatter_add(0, m.tensor([[0, 2, 1, 1]]), y[:1]),
                                 x.scatter(0, m.tensor([[1, 2]]), 3.0)), XY),
    "scatter_reduce": (lambda m, x, y: tuple(x.scatter_reduce(1, m.tensor([[0, 1, 1, 2]] * 3), y, r) for r in ("sum", "prod", "mean", "amax")), XY),
    "index ops": (lambda m, x, y: (x.index_select(1, m.tensor([3, 0])), x.index_add(0, m.tensor([0, 2, 0]), y, alpha=2),
                                   x.index_copy(0, m.tensor([2, 0, 1]), y), x.index_fill(1, m.tensor([0, 3]), 7.0)), XY),
    "masks": (lambda m, x, y: (x.masked_fill(x > 0, 5.0), x.masked_select(x > 0), x.masked_scatter(x > 0, y)), XY),
    "index_put": (lambda m, x, y: (x.index_put((m.tensor([0, 2]),), y[:2]), x.index_put((m.tensor([0, 0]), m.tensor([1, 1])), y[0, :2], accumulate=True)), XY),
    "sorting": (lambda m, x: (x.sort(1), x.sort(0, descending=True), x.topk(2, 1), x.topk(2, 0, largest=False), x.argsort(1)), X),
    "searching": (lambda m, x: (m.searchsorted(x.sort(1)[0].detach(), x.detach()), m.bucketize(x.detach(), m.tensor([-1.0, 0.0, 1.0], dtype=x.dtype))), X),
    "nonzero": (lambda m, x: ((x > 0).nonzero(), (x > 0).nonzero(as_tuple=True), m.isin(x.detach(), x[0].detach())), X),
    # products
    "products": (lambda m, x, y: (x @ y.t(), m.mm(x, y.t()), x @ y[0], x[0] @ y[0], m.outer(x[0], y[:, 0]), m.dot(x[0], y[0]), m.inner(x, y)), XY),
    "batched": (lambda m, x, y: (m.bmm(x.view(1, 3, 4), y.view(1, 4, 3)), x.view(3, 2, 2) @ y.view(3, 2, 2), x @ y.view(3, 4, 1)), XY),
    "affine": (lambda m, x, y: (m.addmm(x[:, :3], x, y.t(), beta=0.5, alpha=2.0), m.baddbmm(x.view(3, 2, 2), x.view(3, 2, 2), y.view(3, 2, 2)),
                                m.addmv(x[:, 0], x, y[0]), m.addbmm(x[:2, :2], x.view(3, 2, 2), y.view(3, 2, 2))), XY),
    "einsum": (lambda m, x, y: (m.einsum("ij,kj->ik", x, y), m.einsum("ij,ij->", x, y), m.einsum("ij->ji", x), m.einsum("i,j->ij", x[0], y[:, 0]),
                                m.einsum("bij,bjk->bik", x.view(3, 2, 2), y.view(3, 2, 2)), m.einsum("...i,...i->...", x, y)), XY),
    "tensordot": (lambda m, x, y: (m.tensordot(x, y, dims=2), m.tensordot(x, y, dims=([1], [1])), m.kron(x[:2, :2], y[:2, :2]), m.trace(x)), XY),
    "cdist": (lambda m, x, y: m.cdist(x, y), XY),
    # creation
    "creation": (lambda m: (m.zeros(2, 3), m.ones((2,)), m.full((2, 2), 7), m.full((2,), 1.5), m.eye(3), m.eye(2, 3), m.arange(5), m.arange(1, 2, 0.25),
                            m.arange(5, 0, -2), m.linspace(0, 1, 7), m.linspace(-3, 3, 4), m.logspace(0, 2, 3), m.tril_indices(3, 3), m.triu_indices(2, 3, 1)), []),  # noqa: E501
    "tensors": (lambda m: (m.tensor([[1, 2], [3, 4]]), m.tensor(2.5), m.tensor([True, False]), m.tensor([]), m.tensor([1, 2.5]), m.as_tensor([1, 2])), []),
    "likes": (lambda m, x: (m.zeros_like(x), m.ones_like(x.t()), m.full_like(x, 3), x.new_zeros(2), x.new_ones((2, 2)), x.new_full((2,), 4.0), x.new_tensor([1])), X),  # noqa: E501
    "activations": (lambda m, x: (m.softmax(x, 1), x.log_softmax(0), m.nn.functional.gelu(x), m.nn.functional.silu(x), m.nn.functional.softplus(x)), X),
    "diff": (lambda m, x: (m.diff(x), x.diff(dim=0), m.diff(x, 2)), X),
    "close": (lambda m, x, y: (m.isclose(x, y), m.allclose(x, x), m.equal(x, y)), XY),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expression(name: str) -> None:
    expression, shapes = EXPRESSIONS[name]
    check(expression, arrays(*shapes), tolerance=1e-9 if shapes else 1e-6, second=name != "cdist", strides=name != "nonzero")


@pytest.mark.parametrize("name", [n for n, (_, shapes) in EXPRESSIONS.items() if shapes and n not in ("views", "windows", "flatten")])
def test_expression_on_other_layouts(name: str) -> None:
    """The inputs transposed in memory, and as slices with an offset."""
    expression, shapes = EXPRESSIONS[name]
    inputs = arrays(*shapes)

    def moved(m, *xs):
        return expression(m, *[x.t().contiguous().t() for x in xs])

    def sliced(m, *xs):
        return expression(m, *[m.cat([x[:1], x])[1:] for x in xs])

    if name in ("batched", "affine", "einsum", "mixed"):  # they call view
        return
    check(moved, inputs, grad=False, strides=False)
    check(sliced, inputs, second=False, strides=name != "nonzero")


DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("first", DTYPES)
def test_promotion(first: str) -> None:
    """result_type of every pair: dimensioned, zero-dim and Python numbers."""
    torch = pytest.importorskip("torch")
    import flambeau as ft

    for second in [*DTYPES, "bfloat16"]:
        a, b = getattr(ft, first), getattr(ft, second)
        x, y = getattr(torch, first), getattr(torch, second)
        assert str(ft.promote_types(a, b)) == str(torch.promote_types(x, y)), (first, second)
        for shape in ((2,), ()):
            for other in ((2,), ()):
                ours = ft.result_type(ft.zeros(shape, dtype=a), ft.zeros(other, dtype=b))
                theirs = torch.result_type(torch.zeros(shape, dtype=x), torch.zeros(other, dtype=y))
                assert str(ours) == str(theirs), (first, second, shape, other)
    for number in (True, 3, 2.5, *([] if first == "float16" else [1j])):
        for shape in ((2,), ()):
            ours = ft.result_type(ft.zeros(shape, dtype=getattr(ft, first)), number)
            assert str(ours) == str(torch.result_type(torch.zeros(shape, dtype=getattr(torch, first)), number)), (first, number)


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool", "float32", "float16"])
def test_other_dtypes(dtype: str) -> None:
    inputs = arrays((3, 4), (3, 4), dtype=dtype, low=0 if dtype == "uint8" else -3, high=3)
    tolerance = {"float16": 2e-3, "float32": 1e-5}.get(dtype, 0)
    check(lambda m, x, y: (x + y, x * y, x == y, x.sum(), x.sum(0), x.max(), x + 1, x * 2.5, x / 2, x.float(), x.to(m.int32), x[1], m.cat([x, y]),
                           x.clone(), x.sort(1)[0], x.any(), (x.float() @ y.float().t())), inputs, grad=False, tolerance=tolerance)  # fmt: skip
    if dtype in ("int64", "int32", "uint8"):
        check(lambda m, x, y: (x // (y.abs() + 1), x % (y.abs() + 1), x & y, x | y, x ^ y, ~x, x << 1, x >> 1, x**2, x.abs(), x.cumsum(0), x.prod(1)),
              inputs, grad=False)  # fmt: skip


def test_empty_and_zero_dim() -> None:
    empty = [np.zeros((0, 3)), np.zeros((0, 3))]
    check(lambda m, x, y: (x + y, x.sum(), x.sum(0), x.sum(1), x.prod(), x.mean(0), m.cat([x, y]), x.t(), x.reshape(3, 0), x @ y.t(), x.any(), x.all(),
                           x.sort(0)[0], x > 0, x.cumsum(0), (x > 0).nonzero()), empty, second=False)  # fmt: skip
    zero = [np.array(1.5), np.array(-0.5)]
    check(lambda m, x, y: (x + y, x.sum(), x.sum(0), x.max(), x.max(0), x.argmax(), x.reshape(1), x.expand(3), m.stack([x, y]), x.unsqueeze(0), x * 2,
                           x.flatten(), x.sort()[0], x.cumsum(0), x.clone(), x.t()), zero)  # fmt: skip


def test_complex() -> None:
    real = arrays((3, 4), (3, 4))
    inputs = [real[0] + 1j * real[1], real[1] - 1j * real[0]]
    check(lambda m, x, y: (x + y, x * y, x / y, x.abs(), x.conj(), x.real, x.imag, -x, m.view_as_real(x), x.exp(), x.sum(), x.mean(0), x * 2, x.angle(),
                           m.complex(x.real, y.imag), x @ y.t(), x == y), inputs, second=False, tolerance=1e-9)  # fmt: skip


def test_special_values() -> None:
    odd = [np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-320, 1e308, -1e308])]
    check(lambda m, x: (x + 1, x * 0, x.exp(), x.log(), x.sqrt(), x.tanh(), x.sigmoid(), x.abs(), x.sign(), x.max(), x.min(), x.sort()[0], x.argmax(),
                        x.sum(), x.isnan(), x.isinf(), x.isfinite(), x.clamp(-1, 1), m.maximum(x, x.flip(0)), m.fmax(x, x.flip(0)), x.relu(), x.floor(),
                        x.round(), x.logsumexp(0), x.cumsum(0), x.nan_to_num(), x.erf(), x.expm1(), x.log1p(), 1 / x), odd, grad=False)  # fmt: skip
