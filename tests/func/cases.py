"""Expressions over every primitive, for the sweeps over batching and forward rules: name -> (expression of a module and tensors, shapes)."""

from __future__ import annotations

from typing import Any

from tests.ops.test_operations import BINARY, EXPRESSIONS, INSIDE, POSITIVE, UNARY, XY, X

Case = tuple[Any, list[tuple[int, ...]]]

# Of the expressions of tests/ops those whose results' sizes depend on values, or that give Python objects, have no vmap.
DEPENDS_ON_VALUES = ("advanced", "mixed", "masks", "nonzero", "close", "creation", "tensors", "interleave", "quantile")


def _named(name: str) -> Any:
    return lambda m, *xs: getattr(m, name)(*xs)


def _written(m: Any, x: Any) -> Any:
    """In-place writes through indices, masks and views."""
    y = x * 2
    y[m.tensor([0, 2])] = 0
    y[:, m.tensor([1, 3])] += x[:, :2]
    y[x > 0.5] = 5
    y.t()[1].mul_(x[:, 0])
    return y


def _functional(expression: Any) -> Any:
    return lambda m, *xs: expression(m, m.nn.functional, *xs)


IMAGES = [(2, 4, 6, 6)]
ROWS = [(3, 5)]
SQUARE = [(3, 3)]

LAYERS: dict[str, Case] = {
    "linear": (_functional(lambda m, F, x, w: F.linear(x, w, w[:, 0])), [(2, 4), (3, 4)]),
    "conv1d": (_functional(lambda m, F, x, w: F.conv1d(x, w, padding=1)), [(2, 4, 8), (6, 4, 3)]),
    "conv2d": (_functional(lambda m, F, x, w, b: F.conv2d(x, w, b, stride=2, padding=1)), [(2, 4, 7, 6), (6, 4, 3, 3), (6,)]),
    "conv2d groups": (_functional(lambda m, F, x, w: F.conv2d(x, w, groups=2, dilation=2)), [(2, 4, 7, 6), (6, 2, 3, 3)]),
    "conv_transpose2d": (_functional(lambda m, F, x, w: F.conv_transpose2d(x, w, stride=2, groups=2)), [(2, 4, 4, 3), (4, 3, 3, 3)]),
    "pools": (_functional(lambda m, F, x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, 3), F.max_pool2d(x, 3, 2, 1))), IMAGES),
    "norms": (_functional(lambda m, F, x: (F.layer_norm(x, (6,)), F.group_norm(x, 2), F.batch_norm(x, None, None, training=True),
                                           F.instance_norm(x), F.local_response_norm(x, 3))), IMAGES),
    "activations": (_functional(lambda m, F, x: (F.gelu(x), F.silu(x), F.elu(x), F.softplus(x), F.leaky_relu(x), F.hardswish(x), F.mish(x), F.selu(x),
                                                 F.log_softmax(x, 1), F.glu(x[:, :4], 1), F.hardtanh(x), F.softshrink(x), F.logsigmoid(x))), ROWS),
    "losses": (_functional(lambda m, F, x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.cross_entropy(x, m.tensor([1, 0, 4])),
                                               F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.kl_div(x, y.softmax(1)), F.huber_loss(x, y),
                                               F.nll_loss(x, m.tensor([1, 0, 4])), F.cosine_similarity(x, y))), [(3, 5), (3, 5)]),
    "attention": (_functional(lambda m, F, q, k, v: (F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True))),
                  [(2, 6, 4), (2, 6, 4), (2, 6, 3)]),
    "embedding": (_functional(lambda m, F, w: (F.embedding(m.tensor([[1, 0], [2, 2]]), w), F.one_hot(m.tensor([0, 2]), 4) * 1.0)), [(3, 4)]),
    "interpolate": (_functional(lambda m, F, x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(4, 9), mode="bilinear"), F.pad(x, (1, 2)),
                                                 F.pad(x, (1, 1, 1, 1), mode="reflect"), F.pixel_shuffle(x, 2), F.unfold(x, 3))), IMAGES),
    "normalize": (_functional(lambda m, F, x: (F.normalize(x, dim=1), F.pairwise_distance(x, x + 1), m.renorm(x, 2, 0, 1.0))), ROWS),
}  # fmt: skip

LINALG: dict[str, Case] = {
    "inv": (lambda m, x: (m.linalg.inv(x + 5 * m.eye(3, dtype=x.dtype)), m.linalg.det(x)), SQUARE),
    "solve": (lambda m, x, y: (m.linalg.solve(x + 5 * m.eye(3, dtype=x.dtype), y), m.linalg.solve(x + 5 * m.eye(3, dtype=x.dtype), y[:, 0])), [(3, 3), (3, 2)]),
    "cholesky": (lambda m, x: m.linalg.cholesky(x @ x.mT + m.eye(3, dtype=x.dtype)), SQUARE),
    "eigh": (lambda m, x: m.linalg.eigvalsh(x + x.mT), SQUARE),
    "svd": (lambda m, x: m.linalg.svdvals(x), [(4, 3)]),
    "qr": (lambda m, x: m.linalg.qr(x)[1].abs(), [(4, 3)]),
    "eig": (lambda m, x: m.linalg.eigvals(x).abs().sum(), SQUARE),
    "slogdet": (lambda m, x: m.linalg.slogdet(x)[1], SQUARE),
    "matrix_exp": (lambda m, x: m.linalg.matrix_exp(x), SQUARE),
    "pinv": (lambda m, x: m.linalg.pinv(x), [(4, 3)]),
    "triangular": (lambda m, x, y: m.linalg.solve_triangular(x.triu() + 4 * m.eye(3, dtype=x.dtype), y, upper=True), [(3, 3), (3, 2)]),
    "norms": (lambda m, x: (m.linalg.norm(x), m.linalg.vector_norm(x, 3, 1), m.linalg.matrix_norm(x)), SQUARE),
    "fft": (lambda m, x: (m.fft.rfft(x).abs(), m.fft.irfft(m.fft.rfft(x), n=5), m.fft.fft2(x).real, m.fft.fft(x, dim=0).imag), [(3, 5)]),
    "complex": (lambda m, x, y: ((m.complex(x, y) * m.complex(y, x)).real, m.complex(x, y).abs(), m.complex(x, y).exp().imag, m.complex(x, y).angle(),
                                 m.view_as_real(m.complex(x, y).conj() / m.complex(y + 3, x)), m.complex(x, y).sgn().real), XY),
}  # fmt: skip

MORE: dict[str, Case] = {
    "indices": (lambda m, x: (x[m.tensor([0, 2])], x[:, m.tensor([1, 1, 0])], x[m.tensor([[0, 1], [2, 0]])], x[m.tensor([0, 1]), m.tensor([2, 3])]), X),
    "mixed indices": (lambda m, x: (x.view(3, 2, 2)[m.tensor([0, 1]), :, m.tensor([1, 0])], x.view(3, 2, 2)[:, m.tensor([0, 1]), m.tensor([1, 0])]), X),
    "repeats": (lambda m, x: (x.repeat_interleave(2, 1), x.repeat(2, 1), m.rot90(x), m.tril(x) + m.triu(x)), X),
    "special": (lambda m, x: (m.special.i0(x), m.special.expit(x), m.special.entr(x.abs()), m.special.ndtr(x), m.special.erfcx(x), m.sinc(x)), X),
    "masked": (lambda m, x, y: (x.masked_fill(x > 0, 5.0), x.masked_scatter(x > 0, y), m.where(x > y, x, y * 2)), XY),
    "order": (lambda m, x: (x.median(), x.median(1), x.kthvalue(2, 1), x.mode(1)[0], x.msort()), X),
    "cumulative": (lambda m, x: (m.trapezoid(x), m.cumulative_trapezoid(x), m.vander(x[0], 3), m.cov(x), m.corrcoef(x)), X),
    "writes": (lambda m, x: _written(m, x), X),
    "renamed views": (lambda m, x: (x.t().contiguous().view(2, 6), x.reshape(2, 6).t(), x.flatten()[2:9:3], x.swapaxes(0, 1)[1:]), X),
}  # fmt: skip


def cases() -> dict[str, Case]:
    """All of them."""
    found: dict[str, Case] = {f"{n}()": (_named(n), X) for n in UNARY}
    found |= {f"{n}()": (lambda m, x, n=n: getattr(m, n)(x.abs() + 1.1), X) for n in POSITIVE}
    found |= {f"{n}()": (lambda m, x, n=n: getattr(m, n)(x.sigmoid() * 0.8 + 0.1), X) for n in INSIDE}
    found |= {f"{n}(,)": (_named(n), XY) for n in BINARY}
    found |= {n: c for n, c in EXPRESSIONS.items() if n not in DEPENDS_ON_VALUES}
    return found | LAYERS | {f"linalg {n}": c for n, c in LINALG.items()} | MORE
