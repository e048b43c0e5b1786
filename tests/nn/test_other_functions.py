"""nn.functional's other names, CrossMapLRN2d, attention biases and flex_attention, against PyTorch."""

from __future__ import annotations

import math
import warnings

import pytest

import flambeau
from tests.nn.oracle import close, compare, ours, torch

F, TF = flambeau.nn.functional, torch.nn.functional
BOTH = (flambeau, torch)


def test_small_functions():
    x = torch.randn(5, 2, 3, requires_grad=True)
    compare(F.conv_tbc, TF.conv_tbc, x, torch.randn(2, 3, 4, requires_grad=True), torch.randn(4, requires_grad=True), 1)
    compare(F.native_channel_shuffle, TF.native_channel_shuffle, torch.randn(2, 6, 3, 3), 3)
    assert F.rrelu_(flambeau.tensor([-1.0, 2.0])).tolist() == TF.rrelu_(torch.tensor([-1.0, 2.0])).tolist()
    compare(lambda x: F.elu_(x * 1, 1.5, 2.0, 0.5), lambda x: TF.elu_(x * 1, 1.5, 2.0, 0.5), x)
    compare(lambda x: F.avg_pool1d(x, 2, ()), lambda x: TF.avg_pool1d(x, 2, ()), x)
    for m in BOTH:
        f = m.nn.functional
        assert f.one_hot(input=m.tensor([1])).tolist() == [[0, 1]]
        assert not f.has_torch_function((m.ones(1), 3)) and not f.has_torch_function_unary(m.ones(1)) and not f.has_torch_function_variadic(1, 2)
        f.assert_int_or_pair([1, 2], "a", "{} bad")
        with pytest.raises(AssertionError, match="a bad"):
            f.assert_int_or_pair([1, 2, 3], "a", "{} bad")
        chosen = f.boolean_dispatch("flag", 1, False, lambda x, flag=False: "yes", lambda x, flag=False: "no", "m", "name")
        assert [chosen(1), chosen(1, True), chosen(1, flag=True)] == ["no", "yes", "yes"] and chosen.__name__ == "name"
        assert f.BroadcastingList2[int] is None
    a = flambeau.ones(16, 16).to(flambeau.float8_e4m3fn)
    scale = flambeau.tensor(0.5)
    tensorwise = F.ScalingType.TensorWise
    assert F.scaled_mm(a, a.t(), scale, tensorwise, scale, tensorwise).tolist() == [[4.0] * 16] * 16
    with pytest.raises(NotImplementedError, match="TensorWise"):
        F.scaled_mm(a, a.t(), scale, F.ScalingType.BlockWise1x32, scale, tensorwise)
    with pytest.raises(NotImplementedError, match="scaled_mm for each group"):
        F.scaled_grouped_mm(*[None] * 6)


@pytest.mark.parametrize("dims", [(2, 3), (3, 2), (2, 2), (3, 3)])
def test_grouped_mm(dims):
    g, rows, k, n = 2, 8, 16, 8
    a = torch.randn(*((rows, k) if dims[0] == 2 else (g, rows, k))).bfloat16()
    b = torch.randn(*((k, n) if dims[1] == 2 else (g, k, n))).bfloat16()
    limit = {(2, 3): rows, (3, 2): n, (2, 2): k, (3, 3): 0}[dims]
    offs = None if dims == (3, 3) else torch.tensor([limit // 2, limit], dtype=torch.int32)
    compare(lambda a, b: F.grouped_mm(a, b, offs=None if offs is None else ours(offs)), lambda a, b: TF.grouped_mm(a, b, offs=offs), a, b, tolerance=2e-2)


@pytest.mark.parametrize("size", [1, 3, 4, 5, 9])
def test_cross_map_lrn(size):
    x = torch.randn(2, 6, 3, 3)  # PyTorch's gradient is not that of its values (docs/differences.md)
    compare(flambeau.nn.CrossMapLRN2d(size, 0.5, 0.7, 1.5), torch.nn.CrossMapLRN2d(size, 0.5, 0.7, 1.5), x)
    assert repr(flambeau.nn.CrossMapLRN2d(size)) == repr(torch.nn.CrossMapLRN2d(size))
    if size > 1:
        grad = ours(x.double()).requires_grad_()
        assert flambeau.autograd.gradcheck(flambeau.nn.CrossMapLRN2d(size, 0.5, 0.7, 1.5), (grad[:1, :, :2, :1],))
    with pytest.raises(ValueError, match="4D"):
        flambeau.nn.CrossMapLRN2d(3)(flambeau.ones(2))


def qkv(seed=0, shape=(2, 2, 5, 4), keys=7):
    torch.manual_seed(seed)
    return [torch.randn(*shape[:2], n, shape[3]) for n in (shape[2], keys, keys)]  # PyTorch's flex_attention has no gradients on CPUs


@pytest.mark.parametrize("name", ["causal_upper_left", "causal_lower_right"])
def test_causal_biases(name):
    def run(m):
        bias = getattr(__import__(f"{m.__name__}.nn.attention.bias", fromlist=["x"]), name)
        return lambda q, k, v: m.nn.functional.scaled_dot_product_attention(q, k, v, bias(5, 7))

    compare(run(flambeau), run(torch), *[t.requires_grad_() for t in qkv()])
    from flambeau.nn.attention import bias

    assert "True" in repr(getattr(bias, name)(2, 3)) and bias.CausalBias(bias.CausalVariant.UPPER_LEFT, 2, 2).variant == 1
    with pytest.warns(UserWarning, match="NaNs"):
        bias.causal_lower_right(3, 2)
    with pytest.raises(ValueError, match="causal=True"):
        F.scaled_dot_product_attention(*[ours(t) for t in qkv()], bias.causal_upper_left(5, 7), is_causal=True)


def flex(m):
    return __import__(f"{m.__name__}.nn.attention.flex_attention", fromlist=["x"])


SCORE_MODS = {
    "none": lambda m: None,
    "alibi": lambda m: lambda s, b, h, q, k: s + (k - q) * m.tensor([0.5, 0.25])[h],
    "softcap": lambda m: lambda s, b, h, q, k: 3 * m.tanh(s / 3),
    "causal": lambda m: lambda s, b, h, q, k: m.where(q >= k, s, -math.inf),
    "table": lambda m: lambda s, b, h, q, k: s * m.arange(20.0)[b * 2 + q] + m.tensor([[0.1] * 7, [0.2] * 7])[h, k],
    "vectors": lambda m: lambda s, b, h, q, k: s + m.dot(m.arange(14.0).reshape(7, 2)[q], m.ones(7, 2)[k]),  # needs vmap
}


@pytest.mark.parametrize("name", SCORE_MODS)
def test_flex_attention_scores(name):
    def run(m):
        return lambda q, k, v: flex(m).flex_attention(q, k, v, score_mod=SCORE_MODS[name](m), scale=0.7)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(run(flambeau), run(torch), *qkv())


def masks(m):
    document = m.tensor([0, 0, 0, 1, 1, 2, 2])
    return {
        "causal": lambda b, h, q, k: q >= k,
        "window": lambda b, h, q, k: (q - k).abs() <= 1,
        "document": lambda b, h, q, k: document[q] == document[k],
        "heads": lambda b, h, q, k: (k + h) % 2 == b,
        "some see nothing": lambda b, h, q, k: (q > 1) & (k < q),
        "both": flex(m).and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 3),
        "either": flex(m).or_masks(lambda b, h, q, k: q == k, lambda b, h, q, k: k == 0),
    }


@pytest.mark.parametrize("name", list(masks(flambeau)))
def test_flex_attention_masks(name):
    x = qkv(1, keys=5)

    def run(m):
        mask = flex(m).create_block_mask(masks(m)[name], 2, 2, 5, 5, device="cpu", BLOCK_SIZE=2)
        return lambda q, k, v: flex(m).flex_attention(q, k, v, block_mask=mask, score_mod=lambda s, b, h, i, j: s * 2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(run(flambeau), run(torch), *x)
        assert flex(flambeau).create_mask(masks(flambeau)[name], 1, 2, 5, 5).tolist() == flex(torch).create_mask(masks(torch)[name], 1, 2, 5, 5, "cpu").tolist()


def test_flex_attention_gradients():
    mask = flex(flambeau).create_block_mask(lambda b, h, q, k: q + 2 >= k, None, None, 5, 7)
    bias = torch.randn(5, 7)
    rows = torch.ones(5, 7, dtype=torch.bool).tril(2)

    def mine(q, k, v, bias):
        return flex(flambeau).flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j], block_mask=mask)

    def theirs(q, k, v, bias):
        return TF.scaled_dot_product_attention(q, k, v, torch.where(rows, bias, -math.inf))

    compare(mine, theirs, *[t.requires_grad_() for t in (*qkv(), bias)])


def test_flex_attention_groups_and_lse():
    q, _, _ = qkv(2, shape=(2, 4, 5, 4))
    _, k, v = qkv(3, shape=(2, 2, 5, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(
            lambda q, k, v: flex(flambeau).flex_attention(q, k, v, enable_gqa=True, return_lse=True),
            lambda q, k, v: flex(torch).flex_attention(q, k, v, enable_gqa=True, return_lse=True), q, k, v,
        )  # fmt: skip
        out, aux = flex(flambeau).flex_attention(*map(ours, (k, k, v)), return_aux=flex(flambeau).AuxRequest(lse=True))
        their_out, their_aux = flex(torch).flex_attention(k, k, v, return_aux=flex(torch).AuxRequest(lse=True))
    close(out, their_out)
    close(aux.lse, their_aux.lse)
    assert aux.max_scores is None
    for m in BOTH:
        a = m.ones(1, 2, 3, 4)
        with pytest.raises(ValueError, match="same number of heads"):
            flex(m).flex_attention(a, a[:, :1], a[:, :1])
        with pytest.raises(NotImplementedError, match="4D"):
            flex(m).flex_attention(a[0], a, a)
        with pytest.raises(ValueError, match="block_mask was created"):
            flex(m).flex_attention(a, a, a, block_mask=flex(m).create_block_mask(lambda b, h, q, k: q >= k, None, None, 9, 9, device="cpu"))


def test_block_masks():
    found = []
    for m in BOTH:
        f = flex(m)
        mask = f.create_block_mask(lambda b, h, q, k: q >= k + h, 1, 2, 10, 7, device="cpu", BLOCK_SIZE=(4, 3))
        plain = f.create_block_mask(lambda b, h, q, k: q >= k, None, None, 8, 8, device="cpu", BLOCK_SIZE=4, separate_full_blocks=False)
        again = f.BlockMask.from_kv_blocks(plain.kv_num_blocks, plain.kv_indices, BLOCK_SIZE=4)
        fields = []
        for one in (mask, plain, again, mask[:, 1]):
            fields += [tuple(one.shape), one.numel(), round(one.sparsity(), 3), one.to_dense().tolist(), one.BLOCK_SIZE, one.seq_lengths]
            for t in ("kv_num_blocks", "full_kv_num_blocks", "q_num_blocks", "kv_indices", "q_indices", "full_q_indices"):
                value = getattr(one, t)
                fields.append(None if value is None else value.tolist())
        found.append(fields)
        assert "shape=(1, 2, 10, 7)" in repr(mask) and "sparsity=-28.57%" in repr(mask)
    assert found[0] == found[1]


def test_implementations_of_flash_attention():
    attention = flambeau.nn.attention
    removed = []

    class Handle:
        def remove(self):
            removed.append(1)

    assert attention.list_flash_attention_impls() == [] and attention.current_flash_attention_impl() is None
    with pytest.raises(ValueError, match="Unknown flash attention impl"):
        attention.activate_flash_attention_impl("FA9")
    attention.register_flash_attention_impl("mine", register_fn=Handle)
    try:
        attention.activate_flash_attention_impl("mine")
        assert attention.current_flash_attention_impl() == "mine"
        attention.restore_flash_attention_impl()
        assert removed == [1] and attention.current_flash_attention_impl() is None
    finally:
        del attention._implementations["mine"]
    with attention.sdpa_kernel([attention.SDPBackend.MATH]):
        assert attention._cur_sdpa_kernel_backends() == [attention.SDPBackend.MATH]
    with pytest.raises(AssertionError), attention.sdpa_kernel("math"):
        pass
    assert attention.WARN_FOR_UNFUSED_KERNELS is False


def test_linear_cross_entropy_options():
    x, w, t = flambeau.randn(3, 4), flambeau.randn(5, 4), flambeau.tensor([0, 1, 2])
    with_options = F.linear_cross_entropy(x, w, t, options=flambeau.nn.LinearCrossEntropyOptions(batch_chunk_size=2))
    assert with_options.item() == F.linear_cross_entropy(x, w, t).item()
