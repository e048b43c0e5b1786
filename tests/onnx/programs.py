"""A small program for each form of an operator: `PROGRAMS[name]` is (the function over a package and its inputs, the shapes of these)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_X, _Y = (4, 6), (4, 6)
_IMAGE, _SIGNAL, _SPACE = (2, 4, 8, 8), (2, 4, 8), (2, 4, 4, 4, 4)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {}


def _enter(shapes: tuple[Any, ...], names: str, how: Callable[[Any, str], Callable[..., Any]]) -> None:
    for name in names.split():
        PROGRAMS[name] = (lambda t, *xs, f=how, n=name: f(t, n)(*xs)), shapes


_enter(
    (_X,),
    """abs acos acosh asin asinh atan atanh ceil cos cosh erf erfc exp exp2 expm1 floor frac isfinite isinf isnan log log10 log1p log2 logical_not neg
    reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc positive clone detach amax amin argmax argmin all any sum mean std var max min
    prod norm nan_to_num fliplr flipud t ravel""",
    lambda t, n: getattr(t, n) if hasattr(t, n) else getattr(t.Tensor, n),
)
_enter(
    (_X,),
    """elu celu selu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 silu softplus softshrink softsign tanhshrink glu
    dropout alpha_dropout""",
    lambda t, n: (lambda x: getattr(t.nn.functional, n)(x, training=False)) if "dropout" in n else getattr(t.nn.functional, n),
)
_enter(
    (_X, _Y),
    """add sub mul div floor_divide remainder fmod eq ne gt ge lt le maximum minimum logical_and logical_or logical_xor atan2 pow true_divide
    expand_as view_as type_as""",
    lambda t, n: getattr(t, n) if hasattr(t, n) else getattr(t.Tensor, n),
)
_enter((_X,), "bitwise_left_shift bitwise_right_shift", lambda t, n: lambda x: [
    y for dtype in (t.uint8, t.int8, t.int32, t.int64) for bits in (x.mul(200).to(dtype), (x - 1).mul(1e9).to(t.int64).to(dtype))
    for y in (getattr(t, n)(bits, 3), getattr(t, n)(bits, x.mul(6).to(dtype)))
])  # fmt: skip
_enter((_X,), "bitwise_and bitwise_or bitwise_xor", lambda t, n: lambda x: (getattr(t, n)((x * 9).int(), (x * 5).int()), getattr(t, n)(x > 1, x < 2)))


def _add(name: str, f: Callable[..., Any], *shapes: Any) -> None:
    PROGRAMS[name] = f, shapes


_add("bitwise_not", lambda t, x: (t.bitwise_not((x * 9).int()), ~(x > 1)), _X)
_add(
    "numbers",
    lambda t, x: (1 + x, 2 - x, x * 3, 1 / x, x // 2, x % 0.7, x**2, 2**x, x**-1, x**0.5, x.int() * 2, x.int() / 2, x.int() // 3, x.int() % 3),
    _X,
)
_add(
    "promotion",
    lambda t, x: (x.int() + x, x.double() * x, (x > 1) + x.int(), x.half().float(), x.int() * 1.5, x > 1, (x > 1) == (x > 2), x.long() > 1.5),
    _X,
)
_add(
    "rounding",
    lambda t, x: (
        t.div(x, 0.3, rounding_mode="floor"),
        t.div(-x, 0.3, rounding_mode="trunc"),
        t.div((x * 9).int() - 9, 4, rounding_mode="floor"),
        t.div((x * 9).int() - 9, 4, rounding_mode="trunc"),
        t.round(x, decimals=1),
    ),
    _X,
)
_add("clamp", lambda t, x: (x.clamp(0.5, 1.5), x.clamp(min=1), x.clamp(max=1), t.clamp(x, x * 0.5, x * 2), x.int().clamp(1, 2)), _X)
_add("where", lambda t, x: (t.where(x > 1, x, 0.0), t.where(x > 1, x.int(), x), x.masked_fill(x > 1, -1.0)), _X)
_add("addc", lambda t, x, y: (t.addcmul(x, y, x, value=2), t.addcdiv(x, y, x, value=0.5), t.lerp(x, y, 0.3), t.lerp(x, y, y)), _X, _Y)
_add("threshold", lambda t, x: (t.nn.functional.threshold(x, 1.0, 7.0), t.nn.functional.softplus(x, 2.0, 1.0), t.nn.functional.hardtanh(x, 0.5, 1.0)), _X)
_add("prelu", lambda t, x: t.nn.functional.prelu(x - 1, t.tensor([0.1, 0.2, 0.3, 0.4])), _IMAGE)
_add("gelu of tanh", lambda t, x: t.nn.functional.gelu(x, approximate="tanh"), _X)
_add("to", lambda t, x: (x.to(t.float64), x.long(), x.bool(), x.to(x.dtype), x.int().type_as(x), x.to(t.float16).float()), _X)
# shapes
_add("reshape", lambda t, x: (x.reshape(2, -1), x.view(-1), x.view(3, 8), x.reshape_as(x * 2), x.flatten(), x.unflatten(1, (2, 3)), x.ravel()), _X)
_add("flatten", lambda t, x: (x.flatten(1), x.flatten(0, 1), x.flatten(1, 2), x.flatten(2)), _IMAGE)
_add(
    "order",
    lambda t, x: (
        x.permute(0, 2, 3, 1),
        x.transpose(1, -1),
        x.movedim(1, -1),
        x.mT,
        x[0, 0].T,
        x[0, 0].t(),
        t.swapaxes(x, 0, 1),
        x.moveaxis((0, 1), (2, 0)),
    ),
    _IMAGE,
)
_add("squeeze", lambda t, x: (x.unsqueeze(1).squeeze(1), x.unsqueeze(-1).squeeze(), x.unsqueeze(0).squeeze((0, 1)), x[None]), _X)
_add(
    "expand",
    lambda t, x: (
        x.unsqueeze(1).expand(4, 3, 6),
        x.expand(2, -1, -1),
        x[:1].broadcast_to(4, 6),
        x.repeat(2, 1, 3),
        x.tile((2,)),
        t.broadcast_tensors(x, x[:1]),
    ),
    _X,
)
_add(
    "join",
    lambda t, x, y: (
        t.cat([x, y], 1),
        t.stack([x, y], -1),
        t.cat([x, y.int()], 0),
        t.hstack([x, y]),
        t.vstack([x, y]),
        t.dstack([x, y]),
        t.column_stack([x[0], y[0]]),
        t.hstack([x[0], y[0]]),
    ),
    _X,
    _Y,
)
_add("part", lambda t, x: (x[1:, ::2], x[0], x[-1], x[:, 2], x.narrow(1, 2, 3), x.select(1, -2), x[1:-1], x[:, -3:]), _X)
_add("split", lambda t, x: (*x.split(4, 1), *x.split([1, 5], 1), *x.chunk(3, 1), *x.unbind(0), *t.tensor_split(x, 4, 1), *x.split(2)), _X)
_add("turn", lambda t, x: (x.flip(0), x.flip((0, 1)), x.roll(2, 1), x.roll((1, -2), (0, 1)), x.roll(3)), _X)
_add("triangle", lambda t, x: (x.tril(), x.triu(1), (x > 1).tril(-1), x.diagonal(), x.diagonal(1), x.diagonal(-2, 0, 1)), _X)
_add("diagonal of a batch", lambda t, x: (x.diagonal(0, -2, -1), x.diagonal(1, 1, 3)), _IMAGE)
_add("pixels", lambda t, x: (t.pixel_shuffle(x, 2), t.pixel_unshuffle(x, 2), x.unfold(2, 3, 2), x.as_strided((2, 3), (4, 1), 5)), _IMAGE)
_add(
    "pad",
    lambda t, x: (
        t.nn.functional.pad(x, (1, 2)),
        t.nn.functional.pad(x, (1, 2, 0, 1), value=3.0),
        t.nn.functional.pad(x, (-1, 1)),
        t.nn.functional.pad(x, (1, 2), "reflect"),
        t.nn.functional.pad(x, (2, 1), "replicate"),
        t.nn.functional.pad(x, (2, 1), "circular"),
    ),
    _SIGNAL,
)
_add("pad images", lambda t, x: (t.nn.functional.pad(x, (1, 2, 2, 1), "reflect"), t.nn.functional.pad(x, (1, 2, 2, 1), "replicate")), _IMAGE)
_add("pad volumes", lambda t, x: (t.nn.functional.pad(x, (1, 2, 2, 1, 1, 1), "reflect"), t.nn.functional.pad(x, (1, 2, 2, 1, 1, 1), "replicate")), _SPACE)
_add(
    "made",
    lambda t, x: (
        t.zeros(2, 3) + x[:2, :3],
        t.ones(4, 6) * x,
        t.full((4, 6), 2.5) * x,
        t.zeros_like(x),
        t.ones_like(x),
        t.full_like(x, 3),
        x.new_zeros(2),
        x.new_ones(2, 2),
        x.new_full((3,), 2.0),
        t.arange(5),
        t.arange(1, 7, 2.0),
        t.linspace(0, 1, 5),
        t.eye(3),
        t.hann_window(5),
        t.hamming_window(6),
        t.scalar_tensor(2.0),
        t.arange(x.shape[0]) + 1,
    ),
    _X,
)
_add(
    "grids",
    lambda t, x, y: (
        *t.meshgrid(x[0], y[:, 0], indexing="ij"),
        *t.meshgrid(x[0], y[:, 0], indexing="xy"),
        x.repeat_interleave(3, 1),
        x.repeat_interleave(2),
    ),
    _X,
    _Y,
)
# indexing
_add(
    "gather",
    lambda t, x: (
        x.index_select(1, t.tensor([0, 2, 2])),
        x.gather(1, t.tensor([[0, 1], [2, 3], [4, 5], [1, 0]])),
        x[t.tensor([0, -1])],
        x[:, t.tensor([1, 2])],
        x[t.tensor([0, 1]), t.tensor([2, 3])],
        x[t.tensor([[0], [1]]), t.tensor([2, 3])],
        t.nn.functional.embedding(t.tensor([[0, 1], [3, 2]]), x),
    ),
    _X,
)
_add(
    "indices within",
    lambda t, x: (x[:, t.tensor([0, 1]), t.tensor([2, 3])], x[:, t.tensor([0, 1]), :, t.tensor([2, 3])], x[0, :, t.tensor([1, 2])]),
    _IMAGE,
)
_add(
    "scatter",
    lambda t, x: (
        x.scatter(1, t.tensor([[0, 1]] * 4), x[:, 3:5]),
        x.scatter(1, t.tensor([[0, 1]] * 4), 7.0),
        x.scatter_add(1, t.tensor([[0, 0]] * 4), x[:, :2]),
        x.scatter_reduce(1, t.tensor([[0, 0]] * 4), x[:, :2], "amax"),
        x.index_add(0, t.tensor([0, 0]), x[:2]),
        x.index_add(0, t.tensor([0, 2]), x[:2], alpha=2),
        x.index_copy(0, t.tensor([1, 3]), x[:2]),
        x.select_scatter(x[0], 0, 2),
        x.slice_scatter(x[:2], 0, 1, 3),
    ),
    _X,
)
_add(
    "put",
    lambda t, x: (
        x.index_put((t.tensor([0, 1]),), t.tensor(5.0)),
        x.index_put((t.tensor([0, 1]), t.tensor([1, 2])), x[0, :2]),
        x.index_put((t.tensor([0, 0]), t.tensor([1, 1])), x[0, :2], accumulate=True),
    ),
    _X,
)
_add("order of values", lambda t, x: (*x.topk(3, 1), *x.topk(2, 0, largest=False), *x.sort(1), *x.sort(0, descending=True), x.argsort(1)), _X)
_add("one_hot", lambda t, x: t.nn.functional.one_hot((x * 2).long().clamp(0, 4), 5), _X)


def _writes(t: Any, x: Any) -> Any:
    y = x.clone()
    y[0] = 1
    y[:, 1] = x[:, 2]
    y[1:3, 2:] += 10
    v = y.view(2, 12)
    v[1].mul_(2)
    w = y.t()
    w[3].zero_()
    y[t.tensor([0, 2])] = -1.0
    y[y > 5] = 5.0
    z = x.clone()
    a, b = z.chunk(2, 1)
    z.add_(1)
    return y, v, w, a + b, y.clone().relu_().exp_(), y.clone().fill_(3)


_add("writes", _writes, _X)
# reductions
_add(
    "sums",
    lambda t, x: (
        x.sum(1),
        x.sum((0, 1), keepdim=True),
        x.int().sum(),
        (x > 1).sum(0),
        x.mean(1, keepdim=True),
        x.prod(1),
        x.logsumexp(1),
        x.cumsum(1),
        x.int().cumsum(0),
    ),
    _X,
)
_add(
    "extremes",
    lambda t, x: (*x.max(1), *x.min(0, keepdim=True), x.amax((0, 1)), x.argmax(1), x.argmin(0, keepdim=True), (x > 1).any(1), (x > 1).all(0)),
    _X,
)
_add(
    "spread",
    lambda t, x: (
        x.var(1),
        x.std(1, correction=0),
        x.var((0, 1), keepdim=True),
        *t.var_mean(x, 1),
        *t.std_mean(x, 0, keepdim=True),
        x.std(1, unbiased=False),
    ),
    _X,
)
_add(
    "norms",
    lambda t, x: (
        x.norm(2, 1),
        x.norm(1),
        t.linalg.vector_norm(x, 3, 1),
        t.linalg.vector_norm(x, float("inf"), 0),
        t.linalg.norm(x),
        t.nn.functional.normalize(x),
    ),
    _X,
)
_add("softmax", lambda t, x: (x.softmax(1), t.nn.functional.log_softmax(x, 0), t.softmax(x.double(), 1)), _X)
# layers
_add(
    "products",
    lambda t, x, y: (
        x @ y.T,
        t.mm(x, y.t()),
        t.mv(x, y[0]),
        t.dot(x[0], y[0]),
        t.addmm(x[:, :4], x, y.t(), beta=0.5, alpha=2),
        t.outer(x[0], y[1]),
        t.einsum("ij,kj->ik", x, y),
        t.linalg.det(x[:3, :3]),
    ),
    _X,
    _Y,
)
_add(
    "batched products",
    lambda t, x: (t.bmm(x[0], x[0].mT), t.matmul(x, x.mT), t.baddbmm(x[0], x[0], x[0], beta=0.5, alpha=2), t.einsum("bchw,bcwk->bchk", x, x)),
    _IMAGE,
)
_add("linear", lambda t, x, y: (t.nn.functional.linear(x, y), t.nn.functional.linear(x, y, y[:, 0]), t.nn.functional.linear(x[None], y, y[:, 1])), _X, _Y)
_add(
    "conv1d",
    lambda t, x: (
        t.conv1d(x, x[:, :, :3]),
        t.conv1d(x, x[:, :, :3], padding="same"),
        t.conv_transpose1d(x, x[0, :, None, :3].expand(4, 2, 3), stride=2, output_padding=1),
    ),
    _SIGNAL,
)
_add(
    "conv2d",
    lambda t, x: (
        t.conv2d(x, x[:, :, :3, :3], x[:, 0, 0, 0], 2, 1),
        t.conv2d(x, x[:, :1, :3, :3].repeat(2, 1, 1, 1), groups=4, dilation=2),
        t.conv2d(x[0], x[:, :, :3, :3]),
        t.conv_transpose2d(x, x[0, :, None, :3, :3], stride=2, padding=1),
    ),
    _IMAGE,
)
_add("conv3d", lambda t, x: (t.conv3d(x, x[:, :, :3, :3, :3], padding=1), t.conv_transpose3d(x, x[0, :, None, :2, :2, :2])), _SPACE)
_add(
    "pools of signals",
    lambda t, x: (
        t.max_pool1d(x, 2),
        t.nn.functional.avg_pool1d(x, 3, 2, 1),
        t.nn.functional.adaptive_avg_pool1d(x, 4),
        t.nn.functional.max_pool1d(x, 3, 2, 1, return_indices=True),
    ),
    _SIGNAL,
)
_add(
    "pools",
    lambda t, x: (
        t.max_pool2d(x, 2),
        t.max_pool2d(x, 3, 2, 1),
        t.max_pool2d(x, 3, 2, ceil_mode=True),
        t.max_pool2d(x, 2, 1, dilation=2),
        t.nn.functional.avg_pool2d(x, 2),
        t.nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        t.nn.functional.adaptive_avg_pool2d(x, 1),
        t.nn.functional.adaptive_avg_pool2d(x, (4, 2)),
        t.nn.functional.max_pool2d(x, 2, return_indices=True),
    ),
    _IMAGE,
)
_add(
    "pools of volumes",
    lambda t, x: (
        t.max_pool3d(x, 2),
        t.nn.functional.avg_pool3d(x, 2),
        t.nn.functional.adaptive_avg_pool3d(x, 1),
        t.nn.functional.max_pool3d(x, 2, return_indices=True),
    ),
    _SPACE,
)
_add(
    "norms of batches",
    lambda t, x: (
        t.nn.functional.batch_norm(x, x[0, :, 0, 0], x[0, :, 1, 1].abs() + 1, x[0, :, 2, 2], x[1, :, 0, 0]),
        t.nn.functional.batch_norm(x, None, None, training=True),
        t.nn.functional.instance_norm(x),
        t.nn.functional.instance_norm(x, weight=x[0, :, 2, 2], bias=x[0, :, 0, 1]),
    ),
    _IMAGE,
)
_add(
    "norms of layers",
    lambda t, x: (
        t.nn.functional.layer_norm(x, (8,)),
        t.nn.functional.layer_norm(x, (8, 8), x[0, 0], x[0, 1]),
        t.nn.functional.group_norm(x, 2),
        t.nn.functional.group_norm(x, 4, x[0, :, 2, 2], x[0, :, 0, 0]),
        t.nn.functional.rms_norm(x, (8,)),
        t.nn.functional.rms_norm(x, (8,), x[0, 0, 0], 1e-4),
    ),
    _IMAGE,
)
_add(
    "attention",
    lambda t, x: (
        t.nn.functional.scaled_dot_product_attention(x, x, x),
        t.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True),
        t.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=x[0, 0] > 1),
        t.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=x[0, 0]),
        t.nn.functional.scaled_dot_product_attention(x, x[:, :2], x[:, :2], enable_gqa=True, scale=0.3),
    ),
    _IMAGE,
)
_add(
    "images",
    lambda t, x: (
        *[t.nn.functional.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "bilinear", "bicubic")],
        t.nn.functional.interpolate(x, (5, 3), mode="bilinear"),
        t.nn.functional.interpolate(x, (5, 11), mode="bicubic", align_corners=True),
        t.nn.functional.interpolate(x, (16, 4)),
    ),
    _IMAGE,
)
_add("other images", lambda t, x: (t.nn.functional.interpolate(x, scale_factor=2), t.nn.functional.interpolate(x, 5, mode="linear")), _SIGNAL)
_add("volumes", lambda t, x: (t.nn.functional.interpolate(x, scale_factor=2), t.nn.functional.interpolate(x, (5, 6, 7), mode="trilinear")), _SPACE)
_add(
    "sampling",
    lambda t, x: (
        t.nn.functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1) - 1, align_corners=False),
        t.nn.functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1) - 1, "nearest", "border", align_corners=True),
    ),
    _IMAGE,
)
_add(
    "blocks",
    lambda t, x: (t.nn.functional.unfold(x, 3, 1, 1, 2), t.nn.functional.fold(t.nn.functional.unfold(x, 2, stride=2), (8, 8), 2, stride=2)),
    _IMAGE,
)
_add(
    "losses",
    lambda t, x, y: (
        t.nn.functional.mse_loss(x, y),
        t.nn.functional.l1_loss(x, y, reduction="sum"),
        t.nn.functional.smooth_l1_loss(x, y, beta=0.5),
        t.nn.functional.huber_loss(x, y, delta=0.5),
        t.nn.functional.cross_entropy(x, t.tensor([1, 0, 5, 2])),
        t.nn.functional.nll_loss(x, t.tensor([1, 0, 5, 2]), x[0], ignore_index=0, reduction="none"),
        t.nn.functional.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        t.nn.functional.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y[0]),
    ),
    _X,
    _Y,
)


def _cells(t: Any, x: Any, y: Any) -> Any:
    w3, w4 = x.repeat(9, 2)[:18, :6] - 1, x.repeat(6, 1)[:24, :6] - 1
    return (
        t.gru_cell(x, y, w3, w3),
        *t.lstm_cell(x, (y, x), w4, w4, w4[:, 0], w4[:, 1]),
        t.rnn_tanh_cell(x, y, w3[:6], w3[:6]),
        t.rnn_relu_cell(x, y, w3[:6], w3[6:12]),
    )


_enter((_X,), "fake_quantize_per_tensor_affine", lambda t, n: lambda x: [
    y for low, high in ((0, 255), (0, 127), (-128, 127), (-127, 127), (-8, 7), (0, 15))
    for y in (getattr(t, n)(x - 1, 0.11, 5, low, high), getattr(t, n)(x - 1, x[0, :1] / 100, t.tensor([3], dtype=t.int32), low, high))
])  # fmt: skip
_enter((_X,), "fake_quantize_per_channel_affine", lambda t, n: lambda x: [
    getattr(t, n)(x - 1, x[0] / 50, t.arange(6, dtype=t.int32), 1, 0, 127), getattr(t, n)(x - 1, x[:, 0] / 50, t.zeros_like(x[:, 0]).to(t.int32), 0, -128, 127)
])  # fmt: skip
_add("_int_mm", lambda t, x: t._int_mm(x.mul(60).sub(50).to(t.int8).repeat(8, 4), x.mul(70).sub(70).to(t.int8).repeat(6, 4)), _X)


_add("cells", _cells, _X, _Y)
