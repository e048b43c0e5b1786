"""`grad_fn=<...>` as PyTorch prints it, for the calls that programs make: before and after the trace that they are in has ended."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau
from tests.nn.oracle import ours, torch

# Expressions of x (3, 3), v (3,), b (3, 3, 3), i (1, 3, 4, 4) and the module m; F is its nn.functional.
EXPRESSIONS = """
x + 1|x - 1|1 - x|x * 2|2 / x|x / 2|x / x|x // 1|x ** 2|x ** x|2 ** x|x % 2|x % x|-x|x @ x|x @ v|v @ v|v @ x|b @ b|b @ x|x @ b|x.mm(x)|
x.mv(v)|v.dot(v)|b.bmm(b)|m.addmm(x, x, x)|m.baddbmm(b, b, b)|m.outer(v, v)|m.einsum('ij,jk->ik', x, x)|x.t()|x.T|x.mT|
x.transpose(0, 1)|x.permute(1, 0)|x.view(9)|x.reshape(9)|x.t().reshape(9)|x.flatten()|x.squeeze()|x.squeeze(0)|x.squeeze((0, 1))|
x.unsqueeze(0)|x[None]|x[0]|x[:, 1:]|x[..., 0]|x[m.tensor([0])]|x[x > 0]|x.expand(2, 3, 3)|x.repeat(2, 1)|x.tile(2)|x.flip(0)|
x.roll(1)|x.chunk(2)[0]|x.split(1)[0]|x.split([1, 2])[0]|x.unbind()[0]|m.cat([x, x])|m.stack([x, x])|m.hstack([x, x])|
x.narrow(0, 0, 1)|x.select(0, 0)|x.index_select(0, m.tensor([0]))|x.gather(1, m.zeros(3, 1, dtype=m.int64))|
x.scatter(1, m.zeros(3, 1, dtype=m.int64), 1.0)|x.masked_fill(x > 0, 1.0)|x.diagonal()|m.diag(v)|x.tril()|x.triu()|x.clone()|
x.t().contiguous()|x.double()|x.to(m.float16)|x.unfold(0, 2, 1)|x.sum()|x.sum(0)|x.mean()|x.mean(0)|x.prod()|x.prod(0)|x.std()|
x.var(0)|x.max()|x.max(0)[0]|x.min()|x.amax(0)|x.median()|x.median(0)[0]|x.norm()|x.norm(dim=0)|x.logsumexp(0)|x.cumsum(0)|
x.cumprod(0)|x.sort()[0]|x.topk(2)[0]|x.abs()|x.sqrt()|x.exp()|x.log()|x.log1p()|x.sin()|x.cos()|x.tanh()|x.sigmoid()|x.relu()|x.erf()|
x.round()|x.clamp(0, 1)|x.clamp(min=0)|x.sign()|x.reciprocal()|x.rsqrt()|x.square()|x.softmax(0)|x.log_softmax(0)|
m.where(x > 0, x, 0.0)|m.maximum(x, x)|m.lerp(x, x, 0.5)|m.atan2(x, x)|x.trace()|m.linalg.inv(x)|m.linalg.det(x)|m.linalg.norm(x)|
m.linalg.solve(x, x)|m.linalg.svdvals(x)|m.fft.fft(x)|m.fft.rfft(x)|F.linear(x, x, v)|F.linear(x, x)|F.linear(b, x, v)|F.linear(b, x)|
F.relu(x)|F.gelu(x)|F.silu(x)|F.elu(x)|F.selu(x)|F.leaky_relu(x)|F.softplus(x)|F.hardtanh(x)|F.relu6(x)|F.glu(x[:, :2])|
F.prelu(x, v[:1])|F.logsigmoid(x)|F.mish(x)|F.hardswish(x)|F.dropout(x)|F.layer_norm(x, (3,))|
F.batch_norm(x, None, None, training=True)|F.group_norm(i, 3)|F.conv1d(b, b)|F.conv2d(i, i)|F.conv_transpose2d(i, b[..., None])|
F.max_pool1d(b, 2)|F.max_pool2d(i, 2)|F.avg_pool2d(i, 2)|F.adaptive_avg_pool2d(i, 1)|F.adaptive_avg_pool2d(i, 2)|
F.interpolate(i, scale_factor=2)|F.interpolate(i, scale_factor=2, mode='bilinear')|F.pad(x, (1, 1))|
F.pad(i, (1, 1, 1, 1), mode='reflect')|F.unfold(i, 2)|F.embedding(m.tensor([0]), x)|F.scaled_dot_product_attention(i, i, i)|
F.normalize(x)|F.cosine_similarity(x, x)|F.mse_loss(x, x.detach())|F.l1_loss(x, x.detach())|F.smooth_l1_loss(x, x.detach())|
F.huber_loss(x, x.detach())|F.cross_entropy(x, m.tensor([0, 1, 2]))|F.nll_loss(x, m.tensor([0, 1, 2]))|
F.kl_div(x, x.detach(), reduction='batchmean')|F.binary_cross_entropy(x.sigmoid(), x.detach().sigmoid())|
F.binary_cross_entropy_with_logits(x, x.detach().sigmoid())|F.pixel_shuffle(i[:, :1].expand(1, 4, 4, 4), 2)|(x * 1).add_(1)|
(x * 1).mul_(2)|(x * 1).relu_()|(x * 1).copy_(x)|m.zeros(3, 3).copy_(x)|
(lambda y: y[0].mul_(2) is None or y)(x * 1)|(lambda y: y.__setitem__(0, v) or y)(x * 1)|(lambda y: y[0].copy_(v) is None or y)(m.zeros(3, 3))|
(lambda y: (y[0].copy_(v), y[1])[1])(m.zeros(3, 3))
"""


def in_both(expression: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """The leaves by name and the expression's value: of PyTorch, of flambeau, and the latter once more after the trace has ended."""
    torch.manual_seed(0)
    made = [torch.rand(s) + 0.1 for s in ((3, 3), (3,), (3, 3, 3), (1, 3, 4, 4))]
    for module, values in ((torch, made), (flambeau, [ours(t) for t in made])):
        scope: dict[str, Any] = {"m": module, "F": module.nn.functional}
        leaves = {n: t.clone().requires_grad_() for n, t in zip("xvbi", values, strict=True)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = eval(expression, scope | leaves)
        yield leaves, result
        if module is flambeau:
            result.detach().sum().item()  # the end of the trace
            yield leaves, result


@pytest.mark.parametrize("expression", [e.strip() for e in EXPRESSIONS.replace("\n", "").split("|")])
def test_node_name(expression: str) -> None:
    names = [type(result.grad_fn).__name__ for _, result in in_both(expression)]
    assert len(names) == 3
    assert names[1:] == names[:1] * 2
