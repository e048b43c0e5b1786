"""Calls whose result dtype under autocast is compared with PyTorch's: name -> function of (torch, argument maker)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Call = Callable[[Any, Any], Any]


def _products() -> dict[str, Call]:
    return {
        "matmul": lambda t, r: t.matmul(r(3, 4), r(4, 5)),
        "operator @": lambda t, r: r(2, 3, 4) @ r(4, 5),
        "matmul vectors": lambda t, r: t.matmul(r(4), r(4)),
        "mm": lambda t, r: t.mm(r(3, 4), r(4, 5)),
        "bmm": lambda t, r: t.bmm(r(2, 3, 4), r(2, 4, 5)),
        "addmm": lambda t, r: t.addmm(r(3, 5), r(3, 4), r(4, 5)),
        "addbmm": lambda t, r: t.addbmm(r(3, 5), r(2, 3, 4), r(2, 4, 5)),
        "baddbmm": lambda t, r: t.baddbmm(r(2, 3, 5), r(2, 3, 4), r(2, 4, 5)),
        "mv": lambda t, r: t.mv(r(3, 4), r(4)),
        "addmv": lambda t, r: t.addmv(r(3), r(3, 4), r(4)),
        "dot": lambda t, r: t.dot(r(4), r(4)),
        "vdot": lambda t, r: t.vdot(r(4), r(4)),
        "outer": lambda t, r: t.outer(r(4), r(5)),
        "addr": lambda t, r: t.addr(r(4, 5), r(4), r(5)),
        "inner": lambda t, r: t.inner(r(3, 4), r(5, 4)),
        "kron": lambda t, r: t.kron(r(2, 2), r(2, 2)),
        "tensordot": lambda t, r: t.tensordot(r(3, 4), r(4, 5), 1),
        "einsum": lambda t, r: t.einsum("ij,jk->ik", r(3, 4), r(4, 5)),
        "einsum batched": lambda t, r: t.einsum("bij,bjk->bik", r(2, 3, 4), r(2, 4, 5)),
        "linear": lambda t, r: t.nn.functional.linear(r(3, 4), r(5, 4), r(5)),
        "bilinear": lambda t, r: t.nn.functional.bilinear(r(3, 4), r(3, 5), r(6, 4, 5)),
        "prelu": lambda t, r: t.nn.functional.prelu(r(3, 4), r(1)),
        "attention": lambda t, r: t.nn.functional.scaled_dot_product_attention(r(1, 2, 3, 4), r(1, 2, 3, 4), r(1, 2, 3, 4)),
        "conv1d": lambda t, r: t.nn.functional.conv1d(r(1, 2, 6), r(3, 2, 3), r(3)),
        "conv2d": lambda t, r: t.nn.functional.conv2d(r(1, 2, 6, 6), r(3, 2, 3, 3), r(3)),
        "conv2d same": lambda t, r: t.nn.functional.conv2d(r(1, 2, 6, 6), r(3, 2, 3, 3), padding="same"),
        "conv3d": lambda t, r: t.nn.functional.conv3d(r(1, 2, 4, 4, 4), r(3, 2, 3, 3, 3)),
        "conv_transpose1d": lambda t, r: t.nn.functional.conv_transpose1d(r(1, 2, 6), r(2, 3, 3)),
        "conv_transpose2d": lambda t, r: t.nn.functional.conv_transpose2d(r(1, 2, 6, 6), r(2, 3, 3, 3)),
        "conv_transpose3d": lambda t, r: t.nn.functional.conv_transpose3d(r(1, 2, 3, 3, 3), r(2, 3, 2, 2, 2)),
    }


def _losses() -> dict[str, Call]:
    def two(name: str, **options: Any) -> Call:
        return lambda t, r: getattr(t.nn.functional, name)(r(3, 4), r(3, 4), **options)

    return {
        "mse_loss": two("mse_loss"),
        "l1_loss": two("l1_loss"),
        "smooth_l1_loss": two("smooth_l1_loss"),
        "huber_loss": two("huber_loss"),
        "kl_div": two("kl_div", reduction="batchmean"),
        "poisson_nll_loss": two("poisson_nll_loss"),
        "soft_margin_loss": two("soft_margin_loss"),
        "hinge_embedding_loss": two("hinge_embedding_loss"),
        "binary_cross_entropy": lambda t, r: t.nn.functional.binary_cross_entropy(r(3, 4).sigmoid(), r(3, 4).sigmoid()),
        "binary_cross_entropy_with_logits": two("binary_cross_entropy_with_logits"),
        "cross_entropy": lambda t, r: t.nn.functional.cross_entropy(r(3, 4), t.tensor([0, 1, 2])),
        "nll_loss": lambda t, r: t.nn.functional.nll_loss(r(3, 4), t.tensor([0, 1, 2])),
        "multi_margin_loss": lambda t, r: t.nn.functional.multi_margin_loss(r(3, 4), t.tensor([0, 1, 2])),
        "multilabel_margin_loss": lambda t, r: t.nn.functional.multilabel_margin_loss(r(1, 4), t.tensor([[0, 1, -1, 2]])),
        "multilabel_soft_margin_loss": two("multilabel_soft_margin_loss"),
        "margin_ranking_loss": lambda t, r: t.nn.functional.margin_ranking_loss(r(3), r(3), r(3).sign()),
        "cosine_embedding_loss": lambda t, r: t.nn.functional.cosine_embedding_loss(r(3, 4), r(3, 4), t.tensor([1, -1, 1])),
        "triplet_margin_loss": lambda t, r: t.nn.functional.triplet_margin_loss(r(3, 4), r(3, 4), r(3, 4)),
        "gaussian_nll_loss": lambda t, r: t.nn.functional.gaussian_nll_loss(r(3, 4), r(3, 4), r(3, 4).exp()),
        "ctc_loss": lambda t, r: t.nn.functional.ctc_loss(r(5, 1, 4).log_softmax(-1), t.tensor([[1, 2]]), t.tensor([5]), t.tensor([2])),
    }


def _images() -> dict[str, Call]:
    def one(name: str, *shape: int, args: tuple[Any, ...] = (), **options: Any) -> Call:
        return lambda t, r: getattr(t.nn.functional, name)(r(*shape), *args, **options)

    found = {
        "avg_pool1d": one("avg_pool1d", 1, 2, 4, args=(2,)),
        "avg_pool2d": one("avg_pool2d", 1, 2, 4, 4, args=(2,)),
        "avg_pool3d": one("avg_pool3d", 1, 2, 4, 4, 4, args=(2,)),
        "max_pool1d": one("max_pool1d", 1, 2, 4, args=(2,)),
        "max_pool2d": one("max_pool2d", 1, 2, 4, 4, args=(2,)),
        "max_pool3d": one("max_pool3d", 1, 2, 4, 4, 4, args=(2,)),
        "adaptive_avg_pool2d": one("adaptive_avg_pool2d", 1, 2, 4, 4, args=(2,)),
        "adaptive_avg_pool3d": one("adaptive_avg_pool3d", 1, 2, 4, 4, 4, args=(2,)),
        "adaptive_max_pool2d": one("adaptive_max_pool2d", 1, 2, 4, 4, args=(2,)),
        "interpolate": one("interpolate", 1, 2, 4, 4, scale_factor=2),
        "interpolate bilinear": one("interpolate", 1, 2, 4, 4, scale_factor=2, mode="bilinear"),
        "unfold": one("unfold", 1, 2, 4, 4, args=(2,)),
        "pixel_shuffle": one("pixel_shuffle", 1, 4, 2, 2, args=(2,)),
        "grid_sample": lambda t, r: t.nn.functional.grid_sample(r(1, 2, 4, 4), r(1, 3, 3, 2), align_corners=False),
    }
    for mode in ("constant", "reflect", "replicate", "circular"):
        for dims in (1, 2, 3):
            found[f"pad {mode} {dims}d"] = one("pad", 1, 2, *[4] * dims, args=((1, 1) * dims,), mode=mode)
    return found


def _others() -> dict[str, Call]:
    f = "nn.functional."
    found: dict[str, Call] = {
        "prod": lambda t, r: r(3, 4).prod(),
        "prod dim": lambda t, r: t.prod(r(3, 4), 1),
        "quantile": lambda t, r: t.quantile(r(3, 4), 0.5),
        "nanquantile": lambda t, r: t.nanquantile(r(3, 4), 0.5, dim=1),
        "trace": lambda t, r: t.trace(r(3, 3)),
        "cdist": lambda t, r: t.cdist(r(3, 4), r(2, 4)),
        "view_as_complex": lambda t, r: t.view_as_complex(r(3, 2)),
        "polar": lambda t, r: t.polar(r(3).abs(), r(3)),
        "cat": lambda t, r: t.cat([r(2, 3), r(2, 3)]),
        "cat of two dtypes": lambda t, r: t.cat([r(2, 3).to(t.bfloat16), r(2, 3).to(t.float32)]),
        "stack": lambda t, r: t.stack([r(2, 3), r(2, 3)]),
        "stack of two dtypes": lambda t, r: t.stack([r(2, 3).to(t.bfloat16), r(2, 3).to(t.float32)]),
        "hstack": lambda t, r: t.hstack([r(2, 3), r(2, 3)]),
        "index_copy": lambda t, r: t.index_copy(r(3, 4), 0, t.tensor([0, 2]), r(2, 4)),
        "add": lambda t, r: r(3) + r(3),
        "mul of two dtypes": lambda t, r: r(3).to(t.bfloat16) * r(3).to(t.float32),
        "sum": lambda t, r: r(3, 4).sum(),
        "mean": lambda t, r: r(3, 4).mean(1),
        "var": lambda t, r: r(3, 4).var(),
        "norm": lambda t, r: r(3, 4).norm(),
        "cumsum": lambda t, r: r(3, 4).cumsum(0),
        "exp": lambda t, r: r(3).exp(),
        "pow": lambda t, r: r(3).abs() ** 2.5,
        "logsumexp": lambda t, r: t.logsumexp(r(3, 4), 1),
        "where": lambda t, r: t.where(r(3) > 0, r(3), 0.0),
        "cosine_similarity": lambda t, r: t.nn.functional.cosine_similarity(r(3, 4), r(3, 4)),
        "normalize": lambda t, r: t.nn.functional.normalize(r(3, 4)),
        "pairwise_distance": lambda t, r: t.nn.functional.pairwise_distance(r(3, 4), r(3, 4)),
        "embedding": lambda t, r: t.nn.functional.embedding(t.tensor([0, 1]), r(3, 4)),
        "layer_norm": lambda t, r: t.nn.functional.layer_norm(r(3, 4), (4,), r(4), r(4)),
        "group_norm": lambda t, r: t.nn.functional.group_norm(r(2, 4, 3), 2, r(4), r(4)),
        "rms_norm": lambda t, r: t.nn.functional.rms_norm(r(3, 4), (4,)),
        "batch_norm": lambda t, r: t.nn.functional.batch_norm(r(3, 4), t.zeros(4), t.ones(4)),
    }
    for name in "relu gelu silu elu selu leaky_relu softplus tanh sigmoid hardswish mish logsigmoid".split():
        found[f + name] = lambda t, r, name=name: getattr(t.nn.functional, name)(r(3, 4))
    for name in "softmax log_softmax".split():
        found[f + name] = lambda t, r, name=name: getattr(t.nn.functional, name)(r(3, 4), dim=-1)
    return found


def _linalg() -> dict[str, Call]:
    def spd(t: Any, r: Any) -> Any:
        a = r(3, 3).to(t.float32)
        eye = t.eye(3)
        return ((a * 0.1).abs() + 4 * eye + (a * 0.1).abs().t()).to(r(1).dtype)

    found: dict[str, Call] = {
        "linalg.solve": lambda t, r: t.linalg.solve(spd(t, r), r(3, 2)),
        "linalg.vecdot": lambda t, r: t.linalg.vecdot(r(3, 4), r(3, 4)),
        "linalg.multi_dot": lambda t, r: t.linalg.multi_dot([r(3, 4), r(4, 5), r(5, 2)]),
        "chain_matmul": lambda t, r: t.chain_matmul(r(3, 4), r(4, 5)),
        "linalg.norm": lambda t, r: t.linalg.norm(r(3, 4)),
        "linalg.lstsq": lambda t, r: t.linalg.lstsq(spd(t, r), r(3, 2)).solution,
    }
    for name in "inv cholesky eigvalsh svdvals det matrix_rank cond pinv".split():
        found[f"linalg.{name}"] = lambda t, r, name=name: getattr(t.linalg, name)(spd(t, r))
    for name in "eigh qr svd slogdet".split():
        found[f"linalg.{name}"] = lambda t, r, name=name: getattr(t.linalg, name)(spd(t, r))
    for name in "inverse pinverse cholesky svd qr logdet".split():
        found[name] = lambda t, r, name=name: getattr(t, name)(spd(t, r))
    for name in "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 hfft2 ihfft2 fftn ifftn rfftn irfftn".split():
        found[f"fft.{name}"] = lambda t, r, name=name: getattr(t.fft, name)(r(4, 4))
    return found


def _recurrent() -> dict[str, Call]:
    found: dict[str, Call] = {}
    for name, states in (("LSTM", 2), ("GRU", 1), ("RNN", 1)):

        def layer(t: Any, r: Any, name: str = name) -> Any:
            y, state = getattr(t.nn, name)(4, 5, 1)(r(3, 2, 4))
            return (y, *state) if isinstance(state, tuple) else (y, state)

        def cell(t: Any, r: Any, name: str = name, states: int = states) -> Any:
            h = tuple(r(2, 5) for _ in range(states))
            return getattr(t.nn, name + "Cell")(4, 5)(r(2, 4), h if states == 2 else h[0])

        found[f"nn.{name}"] = layer
        found[f"nn.{name}Cell"] = cell
    found["nn.MultiheadAttention"] = lambda t, r: t.nn.MultiheadAttention(4, 2)(r(3, 2, 4), r(3, 2, 4), r(3, 2, 4))
    found["nn.MultiheadAttention without weights"] = lambda t, r: t.nn.MultiheadAttention(4, 2)(r(3, 2, 4), r(3, 2, 4), r(3, 2, 4), need_weights=False)[0]
    found["nn.TransformerEncoderLayer"] = lambda t, r: t.nn.TransformerEncoderLayer(4, 2, 8, 0.0)(r(3, 2, 4))
    return found


CALLS: dict[str, Call] = {**_products(), **_losses(), **_images(), **_others(), **_linalg(), **_recurrent()}
