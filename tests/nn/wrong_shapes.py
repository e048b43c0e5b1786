"""Calls of all functions of nn.functional with tensors of a wrong rank or size, and tuples of a wrong length, beside PyTorch.

`python -m tests.nn.wrong_shapes [TEXT]` makes those of the functions with a text in their name, and prints what differs.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import flambeau
from tests.errors.calls import Scope

# A call of each function that takes a tensor, in text. `t` makes a tensor of a shape; `ints` one of class indices.
CALLS: Final = """
adaptive_avg_pool1d(t(2, 3, 4), 2)
adaptive_avg_pool2d(t(2, 3, 4, 5), (2, 2))
adaptive_avg_pool3d(t(2, 3, 4, 5, 4), (2, 2, 2))
adaptive_max_pool1d(t(2, 3, 4), 2)
adaptive_max_pool1d(t(2, 3, 4), 2, True)
adaptive_max_pool2d(t(2, 3, 4, 5), (2, 2))
adaptive_max_pool3d(t(2, 3, 4, 5, 4), (2, 2, 2))
adaptive_max_pool1d_with_indices(t(2, 3, 4), 2)
adaptive_max_pool2d_with_indices(t(2, 3, 4, 5), (2, 2))
adaptive_max_pool3d_with_indices(t(2, 3, 4, 5, 4), (2, 2, 2))
affine_grid(t(2, 2, 3), (2, 1, 4, 5))
affine_grid(t(2, 3, 4), (2, 1, 3, 4, 5))
alpha_dropout(t(2, 3), 0.5, False)
avg_pool1d(t(2, 3, 6), (3,), (2,), (1,))
avg_pool2d(t(2, 3, 6, 5), (3, 2), (2, 1), (1, 0))
avg_pool3d(t(2, 3, 6, 5, 4), (3, 2, 2), (2, 1, 1), (1, 0, 0))
batch_norm(t(2, 3, 4), t(3), t(3), t(3), t(3), True)
batch_norm(t(2, 3, 4), t(3), t(3), t(3), t(3), False)
batch_norm(t(2, 3, 4), None, None, t(3), t(3), True)
bilinear(t(2, 3), t(2, 4), t(5, 3, 4), t(5))
binary_cross_entropy(t(2, 3), t(2, 3), t(2, 3))
binary_cross_entropy_with_logits(t(2, 3), t(2, 3), t(2, 3), pos_weight=t(3))
celu(t(2, 3))
channel_shuffle(t(2, 4, 3), 2)
conv1d(t(2, 4, 6), t(3, 4, 2), t(3), (1,), (1,), (1,))
conv2d(t(2, 4, 6, 5), t(4, 2, 2, 3), t(4), (1, 2), (1, 0), (1, 1), 2)
conv2d(t(2, 4, 6, 5), t(4, 4, 2, 3), t(4), padding='same')
conv3d(t(2, 2, 4, 5, 4), t(3, 2, 2, 3, 1), t(3), (1, 2, 1), (1, 0, 0), (1, 1, 1))
conv_tbc(t(4, 2, 3), t(2, 3, 5), t(5))
conv_transpose1d(t(2, 4, 6), t(4, 3, 2), t(3), (2,), (1,), (1,), 1, (1,))
conv_transpose2d(t(2, 4, 4, 5), t(4, 2, 2, 3), t(4), (2, 2), (1, 0), (1, 1), 2, (1, 1))
conv_transpose3d(t(2, 2, 3, 4, 3), t(2, 3, 2, 3, 1), t(3), (2, 2, 2), (1, 0, 0), (1, 1, 1), 1, (1, 1, 1))
cosine_embedding_loss(t(2, 3), t(2, 3), t(2))
cosine_similarity(t(2, 3), t(2, 3), 1)
cross_entropy(t(2, 3), ints(2), t(3))
cross_entropy(t(2, 3), t(2, 3), t(3))
cross_entropy(t(2, 3, 4), ints(2, 4), t(3), label_smoothing=0.1)
ctc_loss(t(4, 2, 3), ints(2, 2), (4, 4), (2, 2))
ctc_loss(t(4, 2, 3), ints(2, 2), ints(2) + 3, ints(2) + 1)
dropout(t(2, 3), 0.5, False)
dropout1d(t(2, 3, 4), 0.5, False)
dropout2d(t(2, 3, 4, 5), 0.5, False)
dropout3d(t(2, 3, 4, 5, 2), 0.5, False)
feature_alpha_dropout(t(2, 3, 4), 0.5, False)
elu(t(2, 3))
embedding(ints(2, 3), t(4, 5), 1)
embedding(ints(2, 3), t(4, 5), max_norm=1.0)
embedding_bag(ints(2, 3), t(4, 5), per_sample_weights=t(2, 3), mode='sum')
embedding_bag(ints(6), t(4, 5), ints(2).sort()[0] * 0)
fold(t(2, 12, 12), (4, 5), (2, 2), (1, 1), (0, 0), (1, 1))
fractional_max_pool2d(t(2, 3, 6, 7), (2, 2), (3, 3))
fractional_max_pool2d(t(2, 3, 6, 7), (2, 2), output_ratio=(0.5, 0.5))
fractional_max_pool2d(t(2, 3, 6, 7), 2, (3, 3), _random_samples=t(2, 3, 2) / 2)
fractional_max_pool3d(t(2, 3, 6, 7, 5), (2, 2, 2), (3, 3, 2))
fractional_max_pool3d(t(2, 3, 6, 7, 5), (2, 2, 2), output_ratio=(0.5, 0.5, 0.5))
gaussian_nll_loss(t(2, 3), t(2, 3), t(2, 3))
gaussian_nll_loss(t(2, 3), t(2, 3), t(2))
gelu(t(2, 3))
glu(t(2, 4), -1)
grid_sample(t(2, 3, 4, 5), t(2, 3, 3, 2), align_corners=False)
grid_sample(t(2, 3, 4, 5, 3), t(2, 3, 3, 2, 3), align_corners=False)
group_norm(t(2, 4, 3), 2, t(4), t(4))
gumbel_softmax(t(2, 3), dim=1)
hardshrink(t(2, 3))
hardsigmoid(t(2, 3))
hardswish(t(2, 3))
hardtanh(t(2, 3))
hinge_embedding_loss(t(2, 3), t(2, 3))
huber_loss(t(2, 3), t(2, 3), weight=t(2, 3))
huber_loss(t(2, 3), t(2, 3))
instance_norm(t(2, 3, 4), t(3), t(3), t(3), t(3))
instance_norm(t(2, 3, 4), t(3), t(3), t(3), t(3), False)
instance_norm(t(2, 3, 4))
interpolate(t(2, 3, 4, 5), (3, 6))
interpolate(t(2, 3, 4, 5), scale_factor=(2.0, 1.5), mode='bilinear')
interpolate(t(2, 3, 4), (3,), mode='linear')
interpolate(t(2, 3, 4, 5), (3, 6), mode='area')
interpolate(t(2, 3, 4, 5, 2), (3, 6, 2), mode='trilinear')
kl_div(t(2, 3), t(2, 3))
l1_loss(t(2, 3), t(2, 3))
l1_loss(t(2, 3), t(2, 3), weight=t(2, 3))
layer_norm(t(2, 3, 4), (3, 4), t(3, 4), t(3, 4))
leaky_relu(t(2, 3))
linear(t(2, 3), t(4, 3), t(4))
local_response_norm(t(2, 3, 4), 2)
log_softmax(t(2, 3), 1)
logsigmoid(t(2, 3))
lp_pool1d(t(2, 3, 6), 2, 2)
lp_pool2d(t(2, 3, 6, 5), 2, (2, 2), (1, 1))
lp_pool3d(t(2, 3, 6, 5, 4), 2, (2, 2, 2), (1, 1, 1))
margin_ranking_loss(t(3), t(3), t(3))
max_pool1d(t(2, 3, 6), (3,), (2,), (1,), (1,))
max_pool2d(t(2, 3, 6, 5), (3, 2), (2, 1), (1, 0), (1, 1))
max_pool3d(t(2, 3, 6, 5, 4), (3, 2, 2), (2, 1, 1), (1, 0, 0), (1, 1, 1))
max_pool1d_with_indices(t(2, 3, 6), (3,), (2,), (1,), (1,))
max_pool2d_with_indices(t(2, 3, 6, 5), (3, 2), (2, 1), (1, 0), (1, 1))
max_pool3d_with_indices(t(2, 3, 6, 5, 4), (3, 2, 2), (2, 1, 1), (1, 0, 0), (1, 1, 1))
max_unpool1d(t(2, 3, 2), ints(2, 3, 2), (2,), (2,), (0,), (4,))
max_unpool2d(t(2, 3, 2, 2), ints(2, 3, 2, 2), (2, 2), (2, 2), (0, 0), (4, 4))
max_unpool3d(t(2, 3, 2, 2, 2), ints(2, 3, 2, 2, 2), (2, 2, 2), (2, 2, 2), (0, 0, 0), (4, 4, 4))
mish(t(2, 3))
mse_loss(t(2, 3), t(2, 3))
mse_loss(t(2, 3), t(2, 3), weight=t(2, 3))
multi_head_attention_forward(t(4, 2, 6), t(5, 2, 6), t(5, 2, 6), 6, 2, t(18, 6), t(18), None, None, False, 0.0, t(6, 6), t(6), attn_mask=t(4, 5))
multi_head_attention_forward(t(4, 2, 6), t(3, 2, 6), t(3, 2, 6), 6, 2, t(18, 6), None, t(1, 1, 6), t(1, 1, 6), True, 0, t(6, 6), None, key_padding_mask=t(2, 3))
multi_margin_loss(t(2, 3), ints(2), weight=t(3))
multilabel_margin_loss(t(2, 3), ints(2, 3))
multilabel_soft_margin_loss(t(2, 3), t(2, 3), t(3))
native_channel_shuffle(t(2, 4, 3), 2)
nll_loss(t(2, 3), ints(2), t(3))
nll_loss(t(2, 3, 4), ints(2, 4), t(3))
normalize(t(2, 3), 2.0, 1)
one_hot(ints(2, 3), 4)
pad(t(2, 3, 4), (1, 1))
pad(t(2, 3, 4), (1, 1), mode='reflect')
pad(t(2, 3, 4, 5), (1, 1, 1, 1), mode='replicate')
pad(t(2, 3, 4, 5), (1, 1, 1, 1), mode='circular')
pad(t(2, 3, 4, 5, 3), (1, 1, 1, 1, 1, 1), mode='replicate')
pairwise_distance(t(2, 3), t(2, 3))
pdist(t(4, 3))
pixel_shuffle(t(2, 4, 3, 3), 2)
pixel_unshuffle(t(2, 1, 4, 6), 2)
poisson_nll_loss(t(2, 3), t(2, 3), full=True)
prelu(t(2, 3), t(3))
relu(t(2, 3))
relu6(t(2, 3))
rms_norm(t(2, 3, 4), (3, 4), t(3, 4))
rrelu(t(2, 3))
scaled_dot_product_attention(t(2, 3, 4, 6), t(2, 3, 5, 6), t(2, 3, 5, 6), t(4, 5))
selu(t(2, 3))
sigmoid(t(2, 3))
silu(t(2, 3))
smooth_l1_loss(t(2, 3), t(2, 3))
soft_margin_loss(t(2, 3), t(2, 3))
softmax(t(2, 3), 1)
softmin(t(2, 3), 1)
softplus(t(2, 3))
softshrink(t(2, 3))
softsign(t(2, 3))
tanh(t(2, 3))
tanhshrink(t(2, 3))
threshold(t(2, 3), 0.1, 1.0)
triplet_margin_loss(t(2, 3), t(2, 3), t(2, 3), swap=True)
triplet_margin_with_distance_loss(t(2, 3), t(2, 3), t(2, 3))
unfold(t(2, 3, 4, 5), (2, 2), (1, 1), (0, 0), (1, 1))
upsample(t(2, 3, 4), (3,))
upsample_bilinear(t(2, 3, 4, 5), (3, 6))
upsample_nearest(t(2, 3, 4, 5), (3, 6))
"""

# What is made of a tensor, and of a tuple or a whole number, in text; `v` is the right value.
TENSORS: Final = (
    "v.reshape(-1)[0]", "v[0]", "v[..., 0]", "v[None]", "v[..., None]", "v[None, None]", "v.reshape(-1)", "v[:1]", "v[..., :1]", "v[:0]", "v[..., :0]",
    "torch.cat([v, v[:1]])", "torch.cat([v, v[..., :1]], -1)", "v[:, :1]", "v[:, :0]", "torch.cat([v, v[:, :1]], 1)",
)  # fmt: skip
TUPLES: Final = ("()", "v[:-1]", "v[1:2]", "(*v, v[-1])", "(*v, v[-1], v[-1])", "v[0]", "v[:1] * 7", "[*v]")
NUMBERS: Final = ("(v,)", "(v, v)", "(v, v, v)", "()", "[v]")


# What PyTorch takes by mistake, or refuses in the middle of code that did not expect it; kernels of one function also disagree there.
OWN: Final = {
    "ctc_loss": ("(0,) v[..., :1]",),  # reads behind the last label
    "embedding_bag": ("v[..., :0]", "v[:, :0]"),  # with factors, rows without columns
    "fractional_max_pool2d": ("(2,) v[0]",),  # len() of one ratio, which stands for both where the module is made
    "pixel_unshuffle": ("v[:0]", "v[..., :0]", "v[:, :0]"),  # of no elements the shape stays
    # Its kernel for CPUs reads values of no samples, and masks of no elements; of one dim it is the only one that refuses the mask.
    "scaled_dot_product_attention": ("v[:0]", "v[:, :0]", "v[..., :0]", "(3,) v.reshape(-1)[0]", "(3,) v[0]", "(3,) v[..., 0]", "(3,) v.reshape(-1)"),
}  # fmt: skip


class Wrong(NamedTuple):
    """A call, which of its arguments are made wrong, and how."""

    line: str
    places: tuple[int, ...]
    how: str

    def run(self, module: Any) -> Any:
        """Make it in a package."""
        function, values = _made(module, self.line)
        for place in self.places:
            values[place] = (values[place][0], eval(self.how, {"torch": module, "v": values[place][1]}))
        return function(*[v for k, v in values if k is None], **{k: v for k, v in values if k is not None})


def _made(module: Any, line: str) -> tuple[Any, list[tuple[str | None, Any]]]:
    """The function of a line, and its arguments with their keywords."""
    node = ast.parse(line, mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    scope = Scope(module)
    scope["t"] = lambda *shape: module.linspace(0.1, 0.9, max(1, _product(shape))).reshape(shape)
    scope["ints"] = lambda *shape: module.arange(_product(shape)).reshape(shape) % 2
    given = [(None, a) for a in node.args] + [(k.arg, k.value) for k in node.keywords]
    return getattr(module.nn.functional, node.func.id), [(k, eval(ast.unparse(a), {"torch": module}, scope)) for k, a in given]


def _product(shape: tuple[int, ...]) -> int:
    n = 1
    for size in shape:
        n *= size
    return n


def wrong_calls(line: str) -> Iterator[Wrong]:
    """The right call, and all wrong ones: of one argument, and of all tensors."""
    yield Wrong(line, (), "")
    _, values = _made(flambeau, line)
    tensors = tuple(i for i, (_, v) in enumerate(values) if isinstance(v, flambeau.Tensor))
    for i, (_, v) in enumerate(values):
        hows = TENSORS if i in tensors else TUPLES if isinstance(v, tuple) else NUMBERS if type(v) is int else ()
        yield from (Wrong(line, (i,), how) for how in hows)
    if len(tensors) > 1:
        yield from (Wrong(line, tensors, how) for how in TENSORS)


class Outcome(NamedTuple):
    """The class of an error, or None; its words, or dtypes and shapes of what was returned."""

    error: type[BaseException] | None
    text: str


def outcome(wrong: Wrong, module: Any) -> Outcome | None:
    """What comes of a call; None where there is none to make (of too few dims, say)."""
    try:
        for place in wrong.places:
            eval(wrong.how, {"torch": module, "v": _made(module, wrong.line)[1][place][1]})
    except (IndexError, RuntimeError):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(None, _described(wrong.run(module), module))
        except Exception as error:
            return Outcome(type(error), str(error))


def _described(x: Any, module: Any) -> str:
    if isinstance(x, module.Tensor):
        return f"{x.dtype} {list(x.shape)}".removeprefix("torch.").removeprefix("flambeau.")
    return f"[{', '.join(_described(y, module) for y in x)}]" if isinstance(x, (tuple, list)) else repr(x)


def difference(wrong: Wrong) -> str | None:
    """In what a call differs, or None: accepted by one of the two, another type of error, or another shape."""
    import torch

    theirs, ours = outcome(wrong, torch), outcome(wrong, flambeau)
    name, made = wrong.line.partition("(")[0], f"({', '.join(map(str, wrong.places))}{',' * (len(wrong.places) == 1)}) {wrong.how}"
    if any(made.endswith(f" {own}" if own[0] != "(" else own) for own in OWN.get(name, ())):
        return None
    if theirs is None or ours is None or theirs == ours or (theirs.error and ours.error and issubclass(ours.error, theirs.error)):
        return None
    shown = [f"{o.error.__name__}: {o.text.splitlines()[0] if o.text else ''}" if o.error else o.text for o in (ours, theirs)]
    return f"{wrong.line} | {wrong.places} {wrong.how}\n    flambeau {shown[0][:200]}\n    PyTorch  {shown[1][:200]}"


def lines(text: str = "") -> list[str]:
    """The calls of the functions with a text in their name."""
    return [line for line in CALLS.strip().splitlines() if text in line.partition("(")[0]]


def main(text: str = "") -> int:
    """Print what differs; how much does."""
    made = found = 0
    for line in lines(text):
        for wrong in wrong_calls(line):
            made += 1
            if shown := difference(wrong):
                found += 1
                print(shown, flush=True)
    print(f"{found} of {made} calls differ")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
