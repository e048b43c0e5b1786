"""linear, embedding, convolutions, pooling, normalisation, attention, resampling against PyTorch."""

from __future__ import annotations

import pytest

import flambeau
import flambeau.nn.functional as F
from tests.nn.oracle import close, compare, ours, raises_as_torch, torch

TF = torch.nn.functional


def r(*shape):
    return torch.randn(*shape, requires_grad=True)


def check(name, *args, **kwargs):
    compare(getattr(F, name), getattr(TF, name), *args, **kwargs)


def test_linear():
    check("linear", r(2, 3, 5), r(4, 5), r(4))
    check("linear", r(5), r(4, 5))
    check("bilinear", r(2, 3, 5), r(2, 3, 6), r(4, 5, 6), r(4))


def test_embedding():
    check("embedding", torch.randint(0, 7, (2, 3)), r(7, 4))
    check("embedding", torch.tensor([1, 2, 2, 0]), r(7, 4), padding_idx=2)
    check("embedding", torch.tensor([1, 2, 2]), torch.randn(7, 4) * 3, max_norm=1.0)
    check("one_hot", torch.randint(0, 5, (3, 2)), 7)


@pytest.mark.parametrize("index", [[7], [-1]])
def test_embedding_index_out_of_range_is_detected(index):
    with pytest.raises(IndexError):
        F.embedding(flambeau.tensor(index), flambeau.randn(7, 4)).tolist()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag(mode):
    check("embedding_bag", torch.randint(0, 7, (2, 3)), r(7, 4), mode=mode)
    check("embedding_bag", torch.randint(0, 7, (6,)), r(7, 4), torch.tensor([0, 2, 2]), mode=mode, padding_idx=2)


def test_a_tie_in_a_bag_is_its_first_row():
    check("embedding_bag", torch.tensor([[0, 1, 2], [2, 1, 0], [3, 3, 1]]), torch.tensor([[1.0, 2], [1, 3], [1, 3], [0, 3]]), mode="max")


def test_distances():
    check("cosine_similarity", r(3, 4, 5), r(3, 4, 5))
    check("pairwise_distance", r(3, 4), r(3, 4), p=1.0, keepdim=True)
    check("normalize", r(3, 4), dim=0)


@pytest.mark.parametrize("stride", [1, 2, (2, 1)])
@pytest.mark.parametrize("padding", [0, 1, (1, 2)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_conv2d(stride, padding, dilation):
    check("conv2d", r(2, 4, 9, 8), r(6, 2, 3, 3), r(6), stride, padding, dilation, 2, tolerance=2e-5)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
def test_other_convolutions(stride, dilation):
    check("conv1d", r(2, 4, 9), r(6, 2, 3), r(6), stride, 1, dilation, 2, tolerance=2e-5)
    check("conv3d", r(1, 4, 6, 7, 5), r(6, 2, 3, 2, 2), r(6), stride, 1, dilation, 2, tolerance=5e-5)
    check("conv_transpose1d", r(2, 4, 9), r(4, 3, 3), r(6), stride, 1, stride - 1, 2, dilation, tolerance=2e-5)
    check("conv_transpose2d", r(2, 4, 5, 4), r(4, 3, 3, 2), r(6), stride, 1, 0, 2, dilation, tolerance=2e-5)
    check("conv_transpose3d", r(1, 4, 3, 4, 3), r(4, 3, 2, 2, 3), r(6), stride, 1, 0, 2, dilation, tolerance=5e-5)


def test_convolution_forms():
    check("conv2d", r(4, 9, 8), r(6, 4, 3, 3), tolerance=2e-5)
    check("conv2d", r(1, 4, 9, 8), r(6, 4, 2, 4), padding="same", tolerance=2e-5)
    check("conv2d", r(1, 4, 9, 8), r(6, 4, 2, 4), padding="valid", tolerance=2e-5)
    check("unfold", r(2, 3, 7, 6), (2, 3), dilation=2, padding=1, stride=2)
    check("fold", r(2, 12, 6), (4, 5), (2, 2), stride=2, padding=(0, 1))


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling(ceil_mode):
    check("max_pool2d", r(2, 3, 9, 8), 3, 2, 1, 1, ceil_mode)
    check("max_pool2d", r(2, 3, 9, 8), (3, 2), None, 0, 2, ceil_mode, True)
    check("max_pool1d", r(2, 3, 9), 3, 2, 1, 1, ceil_mode)
    check("max_pool3d", r(1, 2, 5, 7, 6), 3, 2, 1, 1, ceil_mode)
    check("avg_pool2d", r(2, 3, 9, 8), 3, 2, 1, ceil_mode)
    check("avg_pool2d", r(2, 3, 9, 8), 3, 2, 1, ceil_mode, False)
    check("avg_pool2d", r(3, 9, 8), 3, 2, 1, ceil_mode, True, 5)
    check("avg_pool1d", r(2, 3, 9), 3, 2, 1, ceil_mode, False)
    check("avg_pool3d", r(1, 2, 5, 7, 6), 3, 2, 1, ceil_mode, False)


@pytest.mark.parametrize("size", [1, 3, (3, None), (4, 7)])
def test_adaptive_pooling(size):
    check("adaptive_avg_pool2d", r(2, 3, 9, 8), size)
    check("adaptive_max_pool2d", r(2, 3, 9, 8), size, True)


def test_unpooling():
    values, indices = TF.max_pool2d(torch.randn(2, 3, 8, 8), 2, return_indices=True)
    check("max_unpool2d", values, indices, 2)


def test_normalisation():
    check("layer_norm", r(2, 3, 4), (3, 4), r(3, 4), r(3, 4))
    check("layer_norm", r(2, 3, 4), (4,))
    check("rms_norm", r(2, 3, 4), (4,), r(4))
    check("group_norm", r(2, 6, 4), 3, r(6), r(6))
    check("local_response_norm", r(2, 6, 4), 5)
    check("batch_norm", r(4, 3), None, None, r(3), r(3), True)
    check("instance_norm", r(4, 3, 5))


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics(training):
    mean, variance = torch.randn(3), torch.rand(3) + 0.1
    our_mean, our_variance = ours(mean), ours(variance)
    x, w, b = r(4, 3, 5), r(3), r(3)
    expected = TF.batch_norm(x, mean, variance, w, b, training)
    close(F.batch_norm(ours(x), our_mean, our_variance, ours(w), ours(b), training), expected)
    close(our_mean, mean)
    close(our_variance, variance)


def test_attention():
    q, k, v = r(2, 4, 5, 8), r(2, 4, 6, 8), r(2, 4, 6, 3)
    name = "scaled_dot_product_attention"
    check(name, q, k, v)
    check(name, q, k, v, torch.rand(5, 6) > 0.3)
    check(name, q, k, v, torch.randn(2, 1, 5, 6))
    check(name, q, k, v, is_causal=True)
    check(name, q, k, v, scale=0.3)
    check(name, q, r(2, 2, 6, 8), r(2, 2, 6, 3), enable_gqa=True)


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_pad(mode):
    check("pad", r(2, 3, 5, 6), (1, 2, 2, 1), mode=mode)
    check("pad", r(2, 3, 5), (1, 2), mode=mode)


def test_pad_constant():
    check("pad", r(2, 3), (1, -1, 0, 2), value=3.0)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_interpolate(mode):
    for size in ((7, 9), (3, 2), (10, 12)):
        check("interpolate", r(2, 3, 5, 6), size=size, mode=mode, tolerance=2e-5)
    if mode != "area":
        for factor in (2, 0.5, 1.7):
            check("interpolate", r(2, 3, 5, 6), scale_factor=factor, mode=mode, tolerance=2e-5)
    if mode.startswith("bi"):
        check("interpolate", r(2, 3, 5, 6), scale_factor=1.7, mode=mode, align_corners=True, tolerance=2e-5)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(padding):
    grid = (torch.rand(2, 4, 3, 2) * 2.6 - 1.3).requires_grad_()
    check("grid_sample", r(2, 3, 5, 6), grid, "bilinear", padding, False, tolerance=5e-5)
    check("affine_grid", r(2, 2, 3), (2, 3, 4, 5), align_corners=False)


def test_rearranging():
    check("pixel_shuffle", r(2, 8, 3, 4), 2)
    check("pixel_unshuffle", r(2, 2, 6, 4), 2)
    check("channel_shuffle", r(2, 6, 3, 3), 3)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout(p):
    flambeau.manual_seed(3)
    y = F.dropout(flambeau.ones(10000), p)
    values = y.tolist()
    assert all(v == 0 or abs(v - 1 / (1 - p)) < 1e-5 for v in values)
    assert abs(values.count(0.0) / 10000 - p) < 0.02
    flambeau.manual_seed(3)
    assert F.dropout(flambeau.ones(10000), p).tolist() == values
    assert F.dropout(flambeau.ones(10000), p).tolist() != values  # the next draw is another one
    x = flambeau.ones(5)
    assert F.dropout(x, p, training=False) is x
    planes = F.dropout2d(flambeau.ones(4, 8, 3, 3), p).sum((2, 3))
    assert all(v == 0 or abs(v - 9 / (1 - p)) < 1e-4 for row in planes.tolist() for v in row)


def test_dropout_gradient_uses_the_same_mask():
    x = flambeau.ones(1000, requires_grad=True)
    y = F.dropout(x, 0.3)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize(
    ("name", "args", "part"),
    [
        ("linear", (torch.randn(2, 5), torch.randn(4, 3)), "2x5 and 3x4"),
        ("conv2d", (torch.randn(1, 3, 9, 8), torch.randn(6, 4, 2, 4)), "expected input[1, 3, 9, 8] to have 4 channels"),
        ("conv2d", (torch.randn(1, 4, 2, 2), torch.randn(6, 4, 3, 3)), "Kernel size can't be greater"),
        ("conv2d", (torch.randn(4), torch.randn(6, 4, 3, 3)), "but got input of size: [4]"),
        ("max_pool2d", (torch.randn(2, 3, 9, 8), 2, 2, 2), "pad should be at most half"),
        ("layer_norm", (torch.randn(2, 3, 4), (5,)), "expected input with shape [*, 5]"),
        ("group_norm", (torch.randn(2, 6, 4), 4), "divisible by num_groups"),
        ("batch_norm", (torch.randn(1, 3), None, None, None, None, True), "more than 1 value per channel"),
    ],
)
def test_error_texts(name, args, part):
    assert part in raises_as_torch(getattr(F, name), getattr(TF, name), *args)
