"""Layers with state against PyTorch's, from the same state_dict: outputs and gradients of all parameters."""

from __future__ import annotations

import pytest

import flambeau
from flambeau.nn.utils import rnn as our_rnn
from tests.nn.oracle import close, leaves, ours, torch

their_rnn = torch.nn.utils.rnn


def pair(expression):
    theirs = eval("nn." + expression, {"nn": torch.nn})
    mine = eval("nn." + expression, {"nn": flambeau.nn})
    mine.load_state_dict({k: ours(v) for k, v in theirs.state_dict().items()})
    return mine, theirs


def check(expression, *args, tolerance=2e-5, **kwargs):
    mine, theirs = pair(expression)
    expected = theirs(*args, **kwargs)
    same = len({id(a) for a in args}) == 1 and len(args) > 1
    our_args = [ours(args[0])] * len(args) if same else ours(list(args))
    got = mine(*our_args, **ours(kwargs))
    want, have = leaves(expected, torch.Tensor), leaves(got, flambeau.Tensor)
    for g, e in zip(have, want, strict=True):
        close(g, e, tolerance)
    sum(t.sum() for t in want if t.requires_grad).backward()
    sum((t.sum() for t in have if t.requires_grad), start=flambeau.zeros(())).backward()
    for (name, p), (_, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        if q.grad is not None:
            assert p.grad is not None, name
            close(p.grad, q.grad, tolerance * 10)


RECURRENT = [
    "LSTM(3, 4, 2, bidirectional=True, proj_size=2)",
    "LSTM(3, 4, 2)",
    "GRU(3, 4, 2, bidirectional=True)",
    "RNN(3, 4, 2, nonlinearity='relu', batch_first=True)",
    "GRU(3, 4, bias=False)",
]


@pytest.mark.parametrize("expression", RECURRENT)
def test_recurrent(expression):
    check(expression, torch.randn(5, 2, 3))
    check(expression, torch.randn(5, 3))


@pytest.mark.parametrize("expression", RECURRENT)
@pytest.mark.parametrize(("enforce_sorted", "lengths"), [(True, [5, 3, 2]), (False, [2, 5, 3])])
def test_packed(expression, enforce_sorted, lengths):
    mine, theirs = pair(expression)
    x = torch.randn(5, 3, 3)
    packed = their_rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=enforce_sorted)
    our_packed = our_rnn.pack_padded_sequence(ours(x), lengths, enforce_sorted=enforce_sorted)
    close(our_packed.data, packed.data)
    (expected, state), (got, our_state) = theirs(packed), mine(our_packed)
    close(got.data, expected.data, 2e-5)
    for g, e in zip(leaves(our_state, flambeau.Tensor), leaves(state, torch.Tensor), strict=True):
        close(g, e, 2e-5)
    want, lengths_back = their_rnn.pad_packed_sequence(expected, True, -1.0, 7)
    have, our_lengths = our_rnn.pad_packed_sequence(got, True, -1.0, 7)
    close(have, want, 2e-5)
    assert our_lengths.tolist() == lengths_back.tolist()


def test_cells():
    check("LSTMCell(3, 4)", torch.randn(2, 3))
    check("GRUCell(3, 4)", torch.randn(3))
    check("RNNCell(3, 4)", torch.randn(2, 3), torch.randn(2, 4))


MASK = torch.triu(torch.ones(4, 4), 1).bool()


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(batch_first):
    expression = f"MultiheadAttention(8, 2, batch_first={batch_first})"
    x = torch.randn(4, 4, 8)
    check(expression, x, x, x)
    check(expression, torch.randn(4, 4, 8), torch.randn(4, 4, 8), torch.randn(4, 4, 8), need_weights=False)


def test_multihead_attention_masks():
    padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]).bool()
    check(
        "MultiheadAttention(8, 2, kdim=4, vdim=5, add_bias_kv=True, add_zero_attn=True)",
        torch.randn(3, 2, 8), torch.randn(5, 2, 4), torch.randn(5, 2, 5),
        key_padding_mask=padding, attn_mask=torch.rand(3, 5) > 0.7, average_attn_weights=False,
    )  # fmt: skip
    x = torch.randn(4, 2, 8)
    check("MultiheadAttention(8, 2)", x, x, x, attn_mask=MASK, is_causal=True, need_weights=False)


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_layers(norm_first):
    padding = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0]]).bool()
    check(
        f"TransformerEncoderLayer(8, 2, 16, dropout=0.0, norm_first={norm_first}, batch_first=True)",
        torch.randn(2, 4, 8), src_mask=MASK, src_key_padding_mask=padding,
    )  # fmt: skip
    check(
        f"TransformerDecoderLayer(8, 2, 16, dropout=0.0, norm_first={norm_first})",
        torch.randn(4, 2, 8), torch.randn(3, 2, 8), tgt_mask=MASK,
    )  # fmt: skip


def test_transformer():
    check("Transformer(8, 2, 1, 1, 16, dropout=0.0)", torch.randn(4, 2, 8), torch.randn(4, 2, 8), tgt_mask=MASK)


def test_convolutional_network():
    network = (
        "Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode='circular'), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5))"
    )
    check(network, torch.randn(2, 3, 7, 6))
    check("ConvTranspose2d(3, 4, 3, 2)", torch.randn(2, 3, 5, 5), output_size=(12, 11))


def test_batch_norm_statistics_and_counter():
    mine, theirs = pair("BatchNorm2d(3)")
    for _ in range(3):
        x = torch.randn(2, 3, 4, 4)
        theirs(x)
        mine(ours(x))
    for key, value in theirs.state_dict().items():
        close(mine.state_dict()[key], value)
    cumulative, theirs = pair("BatchNorm1d(3, momentum=None)")
    for _ in range(3):
        x = torch.randn(4, 3)
        theirs(x)
        cumulative(ours(x))
    close(cumulative.running_mean, theirs.running_mean)
