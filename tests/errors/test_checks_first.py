"""What PyTorch looks at before it looks for a kernel: sizes before dtypes, or dtypes and layouts before sizes. The type of the exception tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
BIG = 2**62
SIZES = ((0, 2**70), (0, 0, BIG, BIG), (0, 0, 5, 2**70), (BIG, BIG, 0), (4, 0, BIG), (0, BIG, 4), (BIG, 4, 0), (0, BIG))
NUMBERS = (1, 0, -2, 1.5, True, 2j, float("nan"), float("inf"))


def _inputs(m: Any) -> list[Any]:
    whole = m.ones(2, 3)
    return [whole.long(), whole.bool(), m.eye(3).to_sparse(), whole, whole + 1j, m.ones(0), m.ones(()), m.ones(3), m.ones(4, 3)]


def _targets(m: Any) -> list[Any]:
    one = m.ones(1).long()
    return [m.ones(15).long(), m.ones(2).long(), m.eye(3).to_sparse(), one[0], one, m.ones(4, 3), m.ones(2, 3)]


def _sizes(m: Any) -> list[Callable[[], Any]]:
    makers = [m.empty, m.zeros, m.ones, m.rand, lambda s: m.full(s, 1.0)]
    lazy = [m.nn.LazyConv1d, m.nn.LazyConv2d, m.nn.LazyConvTranspose3d]
    return [*[lambda f=f, s=s: f(s) for f in makers for s in SIZES], *[lambda f=f, k=k: f(5, k) for f in lazy for k in (BIG, 2**70, 3)]]


def _losses(m: Any) -> list[Callable[[], Any]]:
    f = m.nn.functional
    of_two = (f.nll_loss, f.cross_entropy, f.binary_cross_entropy, f.binary_cross_entropy_with_logits, f.multi_margin_loss, f.multilabel_margin_loss)
    return [lambda g=g, x=x, t=t: g(x, t) for g in of_two for x in _inputs(m) for t in _targets(m)]


def _dtypes_of_losses(m: Any) -> list[Callable[[], Any]]:
    f = m.nn.functional
    kinds = ("float32", "float64", "float16", "bfloat16", "int64", "bool", "complex64")
    losses = (
        f.binary_cross_entropy, f.binary_cross_entropy_with_logits, f.mse_loss, f.soft_margin_loss, f.kl_div, f.l1_loss, f.hinge_embedding_loss,
        f.poisson_nll_loss, f.smooth_l1_loss, f.huber_loss,
    )  # fmt: skip
    return [lambda g=g, a=a, b=b: g(m.full((2,), 0.5).to(getattr(m, a)), m.ones(2).to(getattr(m, b))) for g in losses for a in kinds for b in kinds]


def _numbers_as_targets(m: Any) -> list[Callable[[], Any]]:
    f = m.nn.functional
    inputs = [m.tensor([0.5, -1.0, 2.0]).to(getattr(m, d)) for d in ("float32", "float64", "int64", "complex64")]
    return [
        *[lambda x=x, t=t: f.gaussian_nll_loss(x, t, m.ones(3)) for x in inputs for t in NUMBERS],
        *[lambda x=x, t=t: f.multilabel_soft_margin_loss(x, t) for x in inputs for t in NUMBERS], lambda: f.gaussian_nll_loss(m.ones(3), 2**70, m.ones(3)),
        *[lambda v=v: f.gaussian_nll_loss(m.ones(3), m.ones(3), v) for v in (m.ones(2, 2), m.ones(2, 2) + 1j, m.ones(3).long(), m.eye(3).to_sparse())],
        lambda: f.multilabel_soft_margin_loss(m.ones(()), m.ones(())), lambda: f.tanhshrink(m.eye(3).to_sparse() * 2).to_dense(),
    ]  # fmt: skip


def _pools(m: Any) -> list[Callable[[], Any]]:
    f = m.nn.functional
    inputs = [m.ones([2] * n).to(getattr(m, d)) for d in ("float32", "bool", "complex64", "int64") for n in range(1, 6)]
    pools = (f.avg_pool1d, f.avg_pool2d, f.avg_pool3d, f.max_pool1d, f.max_pool2d, f.max_pool3d)
    sparse = [lambda g=g: g(m.eye(3).to_sparse(), 2) for g in (*pools, f.adaptive_avg_pool3d, f.adaptive_max_pool3d)]
    return [*[lambda g=g, x=x: g(x, 2) for g in pools for x in inputs], *[lambda x=x: f.lp_pool2d(x, 2, 2) for x in inputs], *sparse]


def _ctc(m: Any) -> list[Callable[[], Any]]:
    p, one = m.ones(4, 1, 3), m.ones(3).long()
    lengths = (([4, 4], [3, 3]), ([4], [1]))
    return [
        lambda x=x, t=t, n=n: m.nn.functional.ctc_loss(x, t, *n)
        for x in (p, p.long(), p.half(), p + 1j, m.eye(3).to_sparse(), m.ones(4)) for t in (one[None], m.eye(3).to_sparse(), m.ones(1, 40).long())
        for n in lengths
    ]  # fmt: skip


def _modules(m: Any) -> list[Callable[[], Any]]:
    x, n = m.ones(3), m.nn
    kinds = ("float32", "float64", "int64", "bool", "float16", "complex64")
    layer = {"d_model": 4, "nhead": 2, "dim_feedforward": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    return [
        *[lambda a=a: n.Bilinear(a, 2, 3) for a in (0, -1, True, m.ones(2, 3), m.ones(2, 3) + 1j, 2)], lambda: n.RNN(2, True), lambda: n.RNN(2, 3),
        *[lambda d=d, w=w: n.functional.prelu(x.to(getattr(m, d)), m.ones(1).to(getattr(m, w))) for d in kinds for w in ("float32", "float64", "int64")],
        *[lambda v=v: n.Transformer(**layer, norm_first=v) for v in (True, m.ones(2), m.ones(()))],
    ]  # fmt: skip


# (ours, PyTorch's) of losses that are wrong twice: an input without a kernel, and a target of a dtype that is not the right one.
TWICE: dict[Any, set[tuple[str, str]]] = {
    _losses: {("NotImplementedError", "RuntimeError"), ("IndexError", "RuntimeError")}, _dtypes_of_losses: {("RuntimeError", "NotImplementedError")},
}  # fmt: skip


def _outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        result = call()
    except Exception as error:
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins"), None
    if not hasattr(result, "tolist"):
        return "made", None
    return f"{str(result.dtype).rpartition('.')[2]} {tuple(result.shape)}", result.tolist() if result.numel() and "float" in str(result.dtype) else None


FORMS = (_sizes, _losses, _dtypes_of_losses, _numbers_as_targets, _pools, _ctc, _modules)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS, ids=[f.__name__ for f in FORMS])
def test_type_of_the_exception(form: Callable[[Any], list[Callable[[], Any]]]) -> None:
    differing = []
    for i, (ours, theirs) in enumerate(zip(form(ft), form(torch), strict=True)):
        (mine, value), (other, wanted) = _outcome(ours), _outcome(theirs)
        if mine != other and (mine, other) not in TWICE.get(form, ()):
            differing.append((i, mine, other))
        elif wanted is not None:
            np.testing.assert_allclose(value, wanted, rtol=1e-2 if form is _dtypes_of_losses else 1e-5, err_msg=str(i))
    assert not differing
