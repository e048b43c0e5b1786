"""Dropout and its kin draw PyTorch's own masks: values, gradients and the generator's state after, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.ops.dropout_masks import STREAMS

torch = pytest.importorskip("torch")

Call = Callable[[Any, Any], Any]


def numbers(w: Any, *shape: int, dtype: str = "float32", seed: int = 3) -> Any:
    """Normal numbers as a tensor of either library."""
    return w.tensor(np.random.default_rng(seed).normal(size=shape)).to(getattr(w, dtype))


def with_gradient(function: Callable[[Any], Any], x: Any) -> Any:
    x = x.clone().requires_grad_()
    y = function(x)
    (y * y).sum().backward()
    return y, x.grad


def of_attention(**given: Any) -> Call:
    options = {"q": (2, 3, 6, 8), "k": (2, 3, 9, 8), "p": 0.3, "gqa": False, "causal": False} | given

    def call(w: Any, F: Any) -> Any:
        operands = [numbers(w, *options[n], seed=s).requires_grad_() for n, s in (("q", 1), ("k", 2), ("k", 3))]
        y = F.scaled_dot_product_attention(*operands, dropout_p=options["p"], is_causal=options["causal"], enable_gqa=options["gqa"])
        (y * y).sum().backward()
        return (y, *[t.grad for t in operands])

    return call


def under_vmap(function: Callable[[Any, Any], Any], shape: tuple[int, ...], randomness: str) -> Call:
    return lambda w, F: w.func.vmap(lambda x: function(F, x), randomness=randomness)(numbers(w, *shape))


EXACT: dict[str, Call] = {
    **{
        f"{name} {dtype} {p}": lambda w, F, name=name, dtype=dtype, p=p: with_gradient(
            lambda x: getattr(F, name)(x, p, True), numbers(w, 7, 9, 3, dtype=dtype)
        )
        for name in ("dropout", "dropout1d", "alpha_dropout", "feature_alpha_dropout")
        for dtype, p in (("float32", 0.1), ("float32", 0.15), ("float64", 0.37), ("float16", 0.5), ("bfloat16", 0.1), ("float32", 1.0), ("float32", 0.0))
    },
    "dropout transposed": lambda w, F: F.dropout(numbers(w, 7, 9).t(), 0.3),
    "dropout channels last": lambda w, F: F.dropout(numbers(w, 2, 3, 4, 5).to(memory_format=w.channels_last), 0.3),
    "dropout with gaps": lambda w, F: F.dropout(numbers(w, 8, 9)[:, ::2], 0.3),
    "dropout expanded": lambda w, F: F.dropout(numbers(w, 8, 1).expand(8, 9), 0.3),
    "dropout of infinities": lambda w, F: F.dropout(numbers(w, 80) * float("inf"), 0.3),
    "dropout of none": lambda w, F: F.dropout(numbers(w, 0, 3), 0.3),
    "dropout in place": lambda w, F: F.dropout(numbers(w, 80), 0.3, True, True),
    "dropout in place, 16 bits": lambda w, F: F.dropout(numbers(w, 80, dtype="bfloat16"), 0.3, True, True),
    "dropout1d unbatched": lambda w, F: F.dropout1d(numbers(w, 9, 4), 0.3),
    "dropout1d unbatched in place": lambda w, F: F.dropout1d(numbers(w, 9, 4), 0.3, True, True),
    "dropout2d": lambda w, F: F.dropout2d(numbers(w, 2, 9, 4, 5), 0.3),
    "dropout2d channels last": lambda w, F: F.dropout2d(numbers(w, 2, 9, 4, 5).to(memory_format=w.channels_last), 0.3),
    "dropout3d": lambda w, F: F.dropout3d(numbers(w, 2, 9, 4, 5, 2), 0.3),
    "dropout3d unbatched": lambda w, F: F.dropout3d(numbers(w, 9, 4, 5, 2), 0.3),
    "torch.dropout": lambda w, F: w.dropout(numbers(w, 80), 0.3, True),
    "torch.feature_dropout": lambda w, F: w.feature_dropout(numbers(w, 5, 9, 2), 0.3, True),
    **{
        name: lambda w, F, name=name: getattr(w, name)(numbers(w, 5, 9, 2), 0.3, True)
        for name in ("dropout_", "alpha_dropout_", "feature_alpha_dropout_", "feature_dropout_")
    },
    **{
        f"native_dropout {dtype} {p}": lambda w, F, dtype=dtype, p=p: w.native_dropout(numbers(w, 9, 9, dtype=dtype), p, True)
        for dtype, p in (("float32", 0.15), ("float64", 0.3), ("bfloat16", 0.3), ("float32", 0.0), ("float32", 1.0))
    },
    **{f"rrelu {d}": lambda w, F, d=d: F.rrelu(numbers(w, 9, 8, dtype=d), training=True) for d in ("float32", "float64", "bfloat16")},
    "rrelu gradient": lambda w, F: with_gradient(lambda x: F.rrelu(x, 0.1, 0.3, True), numbers(w, 6, 7)),
    "rrelu transposed": lambda w, F: F.rrelu(numbers(w, 9, 8).t(), training=True),
    "rrelu in place": lambda w, F: F.rrelu(numbers(w, 9, 8), training=True, inplace=True),
    **{
        name: lambda w, F, name=name: getattr(w, name)(numbers(w, 9, 8), 0.1, 0.3, True, generator=w.Generator().manual_seed(3))
        for name in ("rrelu", "rrelu_")
    },
    **{f"vmap {r}": under_vmap(lambda F, x: F.dropout(x, 0.3), (4, 9), r) for r in ("different", "same")},
    **{f"vmap dropout2d {r}": under_vmap(lambda F, x: F.dropout2d(x, 0.3), (4, 2, 9, 2, 2), r) for r in ("different", "same")},
    "jvp": lambda w, F: w.func.jvp(lambda x: F.dropout(x, 0.3), (numbers(w, 4, 9),), (numbers(w, 4, 9, seed=4),)),
    "autocast": lambda w, F: _autocast(w, F),
}  # fmt: skip
CLOSE: dict[str, Call] = {
    "attention": of_attention(), "all of it": of_attention(p=1.0), "causal": of_attention(causal=True), "3-d": of_attention(q=(3, 6, 8), k=(3, 9, 8)),
    "2-d": of_attention(q=(6, 8), k=(9, 8)), "few queries": of_attention(q=(2, 3, 2, 8)), "broadcast heads": of_attention(k=(2, 1, 9, 8)),
    "grouped": of_attention(q=(2, 6, 6, 8), k=(2, 3, 9, 8), gqa=True), "few grouped": of_attention(q=(2, 6, 2, 8), k=(2, 3, 9, 8), gqa=True),
    "large": of_attention(q=(1, 2, 130, 32), k=(1, 2, 140, 32)),
    **{
        f"attention, vmap {r}": under_vmap(lambda F, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3), (4, 2, 3, 6, 8), r)
        for r in ("different", "same")
    },
    **{
        f"multi-head, weights {need}": lambda w, F, need=need: w.nn.MultiheadAttention(8, 2, dropout=0.3)(
            numbers(w, 5, 3, 8), numbers(w, 7, 3, 8), numbers(w, 7, 3, 8), need_weights=need)[0]
        for need in (True, False)
    },
    "gumbel": lambda w, F: F.gumbel_softmax(numbers(w, 5, 7)),
    "gumbel transposed": lambda w, F: F.gumbel_softmax(numbers(w, 5, 7).t(), 0.5, dim=0),
    "fractional pool": lambda w, F: F.fractional_max_pool2d(numbers(w, 2, 3, 9, 9), 2, output_size=5),
    "fractional pool, volumes": lambda w, F: F.fractional_max_pool3d(numbers(w, 2, 3, 9, 9, 9), 2, output_size=5),
}  # fmt: skip


def _autocast(w: Any, F: Any) -> Any:
    with w.autocast("cpu", dtype=w.bfloat16):
        return F.dropout(numbers(w, 6, 7) @ numbers(w, 7, 8), 0.3)


def answers(w: Any, F: Any, call: Call) -> tuple[list[Any], Any]:
    w.manual_seed(11)
    for _ in range(2):  # the second time on a learned path, with other numbers
        results = call(w, F)
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [r.detach().to(w.float64).numpy() for r in results], w.get_rng_state().numpy()


@pytest.mark.parametrize("name", [*EXACT, *CLOSE])
def test_numbers_and_state_are_pytorchs(name: str) -> None:
    call = EXACT.get(name) or CLOSE[name]
    (ours, state), (theirs, expected) = (answers(w, w.nn.functional, call) for w in (flambeau, torch))
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a, b, equal_nan=True) if name in EXACT else np.allclose(a, b, rtol=1e-4, atol=1e-5)
        if name in EXACT:
            assert np.array_equal(np.signbit(a), np.signbit(b))  # also of zeros
    assert np.array_equal(state, expected)


@pytest.fixture
def counted() -> Iterator[None]:
    with flambeau.random.dropout_stream("philox"):
        yield


def masks(p: float = 0.3) -> list[Any]:
    """What three operations with dropout draw."""
    F = flambeau.nn.functional
    q = flambeau.ones(2, 6, 8)
    drawn = [F.dropout(flambeau.ones(50), p), F.dropout2d(flambeau.ones(3, 9, 2, 2), p), F.scaled_dot_product_attention(q, q, q, dropout_p=p)]
    return [x.numpy().copy() for x in drawn]


STATES: dict[str, Callable[[], Callable[[], Any]]] = {
    "get_rng_state": lambda: (lambda s: lambda: flambeau.set_rng_state(s))(flambeau.get_rng_state()),
    "generator": lambda: (lambda s: lambda: flambeau.default_generator.set_state(s))(flambeau.default_generator.get_state()),
    "clone": lambda: (lambda s: lambda: flambeau.default_generator.set_state(s.get_state()))(flambeau.default_generator.clone_state()),
    "pickle": lambda: (lambda s: lambda: flambeau.default_generator.set_state(s.get_state()))(_pickled(flambeau.default_generator)),
}


def _pickled(x: Any) -> Any:
    import pickle

    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("how", STATES)
def test_what_is_called_the_state_holds_all_of_it(how: str, stream: str) -> None:
    with flambeau.random.dropout_stream(stream):
        flambeau.manual_seed(5)
        masks()
        flambeau.randn(3)  # leaves a normal number behind
        restore = STATES[how]()
        first = [*masks(), flambeau.randn(5).numpy()]
        restore()
        assert all(np.array_equal(a, b) for a, b in zip(first, [*masks(), flambeau.randn(5).numpy()], strict=True))
        assert not np.array_equal(first[0], masks()[0])


@pytest.mark.parametrize("stream", STREAMS)
def test_a_fork_leaves_no_trace(stream: str) -> None:
    with flambeau.random.dropout_stream(stream):
        flambeau.manual_seed(5)
        with flambeau.random.fork_rng():
            first = masks()
        assert all(np.array_equal(a, b) for a, b in zip(first, masks(), strict=True))


def test_counted_masks_follow_from_seed_and_count(counted: None) -> None:
    flambeau.manual_seed(7)
    x = flambeau.ones(1000, requires_grad=True)
    y = flambeau.nn.functional.dropout(x, 0.25)
    y.sum().backward()
    state = flambeau.get_rng_state()
    assert np.array_equal(y.detach().numpy(), x.grad.numpy())
    assert 0.2 < float((y == 0).float().mean()) < 0.3
    uniform = _philox(7, 0, 1000)
    assert np.array_equal(y.detach().numpy() != 0, uniform >= np.float32(0.25))
    flambeau.manual_seed(7)
    assert np.array_equal(state.numpy()[24:5016], flambeau.get_rng_state().numpy()[24:5016])  # nothing was taken from the other stream


def _philox(seed: int, offset: int, count: int) -> Any:
    from tests.reference import philox

    return philox(seed, offset, (count,))


def test_states_go_to_pytorch_and_back(counted: None) -> None:
    """What the counter-based stream adds to a state changes nothing there; PyTorch's states load here."""
    flambeau.manual_seed(3)
    masks()
    torch.set_rng_state(torch.from_numpy(flambeau.get_rng_state().numpy().copy()))
    assert np.array_equal(flambeau.rand(9).numpy(), torch.rand(9).numpy())
    torch.randn(3)
    state = torch.get_rng_state()
    flambeau.set_rng_state(flambeau.from_numpy(state.numpy().copy()))
    assert np.allclose(flambeau.randn(2).numpy(), torch.randn(2).numpy(), rtol=1e-6)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "transposed": lambda w: w.ones(3, 4).t(), "with gaps": lambda w: w.ones(3, 8)[:, ::2], "with gaps, transposed": lambda w: w.ones(3, 8)[:, ::2].t(),
    "of rows, transposed": lambda w: w.ones(6, 4)[::2].t(), "permuted": lambda w: w.ones(3, 4, 10)[..., ::2].permute(2, 0, 1),
    "expanded": lambda w: w.ones(3, 1).expand(3, 4), "expanded, transposed": lambda w: w.ones(3, 1).expand(3, 4).t(),
    "expanded in the middle": lambda w: w.ones(2, 1, 3).expand(2, 4, 3).permute(2, 0, 1), "a part": lambda w: w.ones(3, 4, 10)[:, 1:, 3:].transpose(0, 2),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_masks_are_drawn_in_the_order_of_the_addresses(layout: str) -> None:
    """Of a tensor like the input: permuted, without its gaps."""
    for call in (lambda w, x: w.nn.functional.dropout(x, 0.5), lambda w, x: w.nn.functional.alpha_dropout(x, 0.5, True), lambda w, x: w.rand_like(x)):
        found = []
        for w in (flambeau, torch):
            w.manual_seed(0)
            y = call(w, LAYOUTS[layout](w))
            found.append((y.stride(), y.tolist()))
        assert found[0][0] == found[1][0]
        np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-6)


def test_unknown_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="mt19937"):
        flambeau.random.dropout_stream("pcg")


def test_masks_do_not_depend_on_threads() -> None:
    found = []
    before = flambeau.get_num_threads()
    try:
        for threads in (1, 2, 3):
            flambeau.set_num_threads(threads)
            flambeau.manual_seed(1)
            x = flambeau.ones(300, 500, requires_grad=True)
            y = flambeau.nn.functional.dropout((flambeau.nn.functional.dropout(x, 0.2) * 2).sin(), 0.3)
            y.sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
    finally:
        flambeau.set_num_threads(before)
    for y, g in found[1:]:
        assert np.array_equal(y, found[0][0])
        assert np.array_equal(g, found[0][1])
