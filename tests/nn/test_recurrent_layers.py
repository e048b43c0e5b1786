"""Recurrent layers as one primitive: lengths that are new, packed and padded, both directions; second gradients, forward derivatives, vmap, threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.nn.functional import recurrent

KINDS = [("LSTM", {}), ("GRU", {}), ("RNN", {"nonlinearity": "tanh"}), ("RNN", {"nonlinearity": "relu"}), ("GRU", {"bias": False})]
IDS = ["lstm", "gru", "tanh", "relu", "gru without bias"]


def _numbers(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def _network(m: Any, kind: str, options: dict[str, Any], **more: Any) -> Any:
    net = getattr(m.nn, kind)(3, 6, **options, **more).double()
    with m.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(m.tensor(0.4 * _numbers(i, *p.shape)))
    return net


def _run(m: Any, kind: str, options: dict[str, Any], length: int, packed: bool, net: Any) -> list[Any]:
    """Outputs, final states and all gradients of one batch of five."""
    x = m.tensor(_numbers(length, length, 5, 3), requires_grad=True)
    directions = net.num_layers * (2 if net.bidirectional else 1)
    states = [m.tensor(_numbers(50 + i, directions, 5, 6), requires_grad=True) for i in range(2 if kind == "LSTM" else 1)]
    given = x
    if packed:
        lengths = [length, length, max(1, length - 1), max(1, length // 2), 1]
        given = m.nn.utils.rnn.pack_padded_sequence(x, lengths)
    y, last = net(given, tuple(states) if kind == "LSTM" else states[0])
    y = m.nn.utils.rnn.pad_packed_sequence(y)[0] if packed else y
    finals = last if kind == "LSTM" else (last,)
    for p in net.parameters():
        p.grad = None
    (y.sin().sum() + sum((f * f).sum() for f in finals)).backward()
    return [t.detach().numpy() for t in (y, *finals)] + [t.grad.numpy() for t in (x, *states, *net.parameters())]


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize(("kind", "options"), KINDS, ids=IDS)
def test_new_lengths(kind: str, options: dict[str, Any], packed: bool) -> None:
    torch = pytest.importorskip("torch")
    for more in ({}, {"num_layers": 2, "bidirectional": True}):
        nets = [_network(m, kind, options, **more) for m in (torch, ft)]
        for length in (4, 2, 7, 1, 5):
            theirs, ours = [_run(m, kind, options, length, packed, net) for m, net in zip((torch, ft), nets, strict=True)]
            for a, b in zip(theirs, ours, strict=True):
                np.testing.assert_allclose(b, a, rtol=1e-11, atol=1e-12)


def test_new_lengths_are_not_recorded(whole: None) -> None:
    """After a few lengths the layer, its gradient and their plans serve any other."""
    net = ft.nn.LSTM(3, 4)

    def step(length: int) -> None:
        net(ft.ones(length, 2, 3))[0].sum().backward()
        for p in net.parameters():
            p.grad = None
        ft.ones(1).tolist()

    for length in range(2, 12):
        step(length)
    before = ft.stats()
    for length in range(20, 25):
        step(length)
    after = ft.stats()
    assert after["slow_path_entries"] == before["slow_path_entries"]
    assert after["class_plans"] > before["class_plans"]


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=IDS)
def test_second_gradients(kind: str, options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    found = []
    for m in (torch, ft):
        net = _network(m, kind, options)
        x = m.tensor(_numbers(1, 4, 3, 3), requires_grad=True)
        for given in (x, m.nn.utils.rnn.pack_padded_sequence(x, [4, 2, 1])):
            y = net(given)[0]
            y = y if given is x else y.data
            (slope,) = m.autograd.grad((y * y).sum(), x, create_graph=True)
            second = m.autograd.grad((slope * slope).sum(), [x, *net.parameters()])
            found.append([t.detach().numpy() for t in (slope, *second)])
    for theirs, ours in zip(found[:2], found[2:], strict=True):
        for a, b in zip(theirs, ours, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("kind", "options"), KINDS, ids=IDS)
def test_transforms(kind: str, options: dict[str, Any]) -> None:
    net = _network(ft, kind, options)
    x, direction = ft.tensor(_numbers(2, 4, 2, 3)), ft.tensor(_numbers(3, 4, 2, 3))

    def outputs(x: Any) -> Any:
        return net(x)[0]

    _, tangent = ft.func.jvp(outputs, (x,), (direction,))
    numeric = (outputs(x + 1e-6 * direction) - outputs(x - 1e-6 * direction)) / 2e-6
    ft.testing.assert_close(tangent, numeric, rtol=1e-7, atol=1e-8)
    many = ft.stack([x, direction, x * direction])
    ft.testing.assert_close(ft.func.vmap(outputs)(many), ft.stack([outputs(t) for t in many]))
    slope: Callable[[Any], Any] = ft.func.grad(lambda t: outputs(t).sin().sum())
    ft.testing.assert_close(ft.func.vmap(slope)(many), ft.stack([slope(t) for t in many]))


@pytest.mark.parametrize("sizes", [[3, 2], [2, 3, 1], [3, 2, 2], [3, 3, 0], [4, 2], [-1, 7], []], ids=str)
def test_batch_sizes_that_do_not_fit(sizes: list[int]) -> None:
    """Native code would read and write beyond the rows."""
    rows = ft.nn.utils.rnn.PackedSequence(ft.ones(6, 3), ft.tensor(sizes, dtype=ft.int64))
    with pytest.raises((RuntimeError, IndexError), match=r"batch_sizes|hidden|index"):
        ft.nn.LSTM(3, 4)(rows, (ft.zeros(1, 3, 4), ft.zeros(1, 3, 4)))
    with pytest.raises(RuntimeError, match=r"batch_sizes .* do not fit 6 packed rows and 3 sequences"):
        weights = list(ft.nn.GRU(3, 4).parameters())
        ft.gru(rows.data, rows.batch_sizes, ft.zeros(1, 3, 4), weights, True, 1, 0.0, False, False)


def test_states_that_do_not_fit() -> None:
    weights = list(ft.nn.GRU(3, 4).parameters())
    for h, text in ((ft.zeros(1, 5, 4), "Expected hidden size"), (ft.zeros(2, 4), "Expected hidden size"), (ft.zeros(1, 2, 5), "cannot be multiplied")):
        with pytest.raises(RuntimeError, match=text):
            ft.gru(ft.ones(5, 2, 3), h, weights, True, 1, 0.0, False, False, False)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_bits_do_not_depend_on_threads_or_neighbours(kind: str) -> None:
    """Sequences are given to threads in blocks of four: what a sequence gives is the same in each."""
    net = getattr(ft.nn, kind)(8, 40)
    x, lengths = ft.randn(30, 9, 8), [30, 29, 29, 20, 11, 11, 7, 2, 1]
    found = []
    threads = ft.get_num_threads()
    try:
        for count in (1, 2):
            ft.set_num_threads(count)
            for p in net.parameters():
                p.grad = None
            y, last = net(ft.nn.utils.rnn.pack_padded_sequence(x, lengths))
            y.data.sum().backward()
            found.append([y.data.tolist(), *[p.grad.tolist() for p in net.parameters()]])
    finally:
        ft.set_num_threads(threads)
    assert found[0] == found[1]
    state = [ft.zeros(9, 40)] * (2 if kind == "LSTM" else 1)
    gates = ft.randn(4 * 9, 40 * len(net.weight_hh_l0) // 40)
    bias = None if kind != "GRU" else net.bias_hh_l0
    eye = ft.eye(gates.shape[1])
    mode = {"LSTM": "lstm", "GRU": "gru", "RNN": "tanh"}[kind]

    def steps(rows: Any, states: list[Any]) -> Any:
        h, c = states[0], states[1] if len(states) == 2 else None
        return recurrent._steps(mode, rows, h, c, eye, net.weight_hh_l0, None, bias, None, False)[0]

    whole = steps(gates, state).reshape(4, 9, 40)
    for b in range(9):
        alone = steps(gates.reshape(4, 9, -1)[:, b].contiguous(), [s[b : b + 1] for s in state])
        assert alone.tolist() == whole[:, b].tolist()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_second_gradients_where_the_input_and_some_weights_have_none(kind: str, each_tier: str) -> None:
    """Gradients of gradients compute the gates again, of an input and weights that the first ones do not need."""
    torch = pytest.importorskip("torch")
    for layers, frozen in ((1, ()), (1, (0,)), (1, (1,)), (1, (0, 1)), (1, (0, 2)), (2, (0,)), (2, (0, 1, 2)), (2, (0, 4)), (2, (4, 5))):
        found = []
        for m in (ft, torch):
            net = _network(m, kind, {"num_layers": layers})
            parameters = list(net.parameters())
            for i in frozen:
                parameters[i].requires_grad_(False)
            wanted = [p for p in parameters if p.requires_grad]
            out, _ = net(m.tensor(_numbers(7, 4, 2, 3)))
            first = m.autograd.grad((out * out).sum() + out.sum(), wanted, create_graph=True)
            second = m.autograd.grad(sum([(g * g).sum() for g in first]), wanted, allow_unused=True)
            found.append([None if g is None else np.asarray(g.tolist()) for g in second])
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10, err_msg=f"{layers} layers, without {frozen}")
