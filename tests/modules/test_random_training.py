"""Networks with dropout and other draws train to PyTorch's losses from the same seed, and leave the generator in its state."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.ops.dropout_masks import STREAMS

torch = pytest.importorskip("torch")

Make = Callable[[Any], Any]


def numbers(w: Any, *shape: int) -> Any:
    return w.tensor(np.random.default_rng(len(shape)).normal(size=shape).astype("float32"))


def mlp(w: Any) -> Any:
    nn = w.nn
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 32), nn.Dropout(0.5, inplace=True), nn.ReLU(), nn.Linear(32, 5))


def selu(w: Any) -> Any:
    nn = w.nn
    return nn.Sequential(nn.Linear(20, 32), nn.SELU(), nn.AlphaDropout(0.2), nn.Linear(32, 32), nn.FeatureAlphaDropout(0.1), nn.RReLU(), nn.Linear(32, 5))


def images(w: Any) -> Any:
    nn = w.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout2d(0.3), nn.FractionalMaxPool2d(2, output_size=4), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Dropout2d(0.25), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 5),
    )  # fmt: skip


def steps(make: Callable[[Any], Any], width: int, call: Callable[[Any, Any], Any] = lambda inner, x: inner(x)) -> Make:
    """A network whose features are the means over steps of `call(make(nn), x)`."""

    def network(w: Any) -> Any:
        class Network(w.nn.Module):  # type: ignore[name-defined, misc]
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.last, self.head = make(w.nn), w.nn.Dropout(0.2), w.nn.Linear(width, 5)

            def forward(self, x: Any) -> Any:
                return self.head(self.last(call(self.inner, x))).mean(1)

        return Network()

    return network


def recurrent(kind: str, **options: Any) -> Make:
    width = (options.get("proj_size") or 10) * (2 if options.get("bidirectional") else 1)
    return steps(lambda nn: getattr(nn, kind)(12, 10, 3, dropout=0.3, batch_first=True, **options), width, lambda inner, x: inner(x)[0])


def packed(inner: Any, x: Any) -> Any:
    rnn = import_module(type(x).__module__.split(".")[0] + ".nn.utils.rnn")
    return rnn.pad_packed_sequence(inner(rnn.pack_padded_sequence(x, [7, 5, 5, 2], batch_first=True))[0], batch_first=True)[0]


def checkpointed(w: Any) -> Any:
    again = import_module(w.__name__ + ".utils.checkpoint").checkpoint

    class Network(w.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            nn = w.nn
            self.a = nn.Sequential(nn.Linear(20, 10), nn.Dropout(0.3), nn.Linear(10, 10), nn.Dropout(0.4))
            self.b = nn.Sequential(nn.Linear(10, 10), nn.Dropout(0.3))
            self.head = nn.Linear(10, 5)

        def forward(self, x: Any) -> Any:
            return self.head(again(self.b, again(self.a, x, use_reentrant=False), use_reentrant=True))

    return Network()


def gumbel(w: Any) -> Any:
    class Network(w.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.head = w.nn.Linear(20, 10), w.nn.Linear(10, 5)

        def forward(self, x: Any) -> Any:
            x = self.a(x)
            return self.head(w.nn.functional.gumbel_softmax(x, 0.7) + w.nn.functional.gumbel_softmax(x, hard=True))

    return Network()


FLAT, PICTURES, SEQUENCES = (16, 20), (6, 3, 10, 10), (4, 7, 12)
NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "mlp": (mlp, FLAT), "selu": (selu, FLAT), "images": (images, PICTURES), "checkpoints": (checkpointed, FLAT), "gumbel": (gumbel, FLAT),
    **{
        f"encoder {batch_first} {first}": (
            steps(lambda nn, b=batch_first, f=first: nn.TransformerEncoderLayer(12, 4, 24, 0.1, batch_first=b, norm_first=f), 12), SEQUENCES)
        for batch_first in (False, True) for first in (False, True)
    },
    "transformer": (steps(lambda nn: nn.Transformer(12, 4, 1, 2, 24, 0.1, batch_first=True), 12, lambda inner, x: inner(x, x)), SEQUENCES),
    **{
        f"attention {need}": (
            steps(lambda nn: nn.MultiheadAttention(12, 2, 0.2, batch_first=True), 12, lambda inner, x, n=need: inner(x, x, x, need_weights=n)[0]),
            SEQUENCES)
        for need in (True, False)
    },
    "LSTM": (recurrent("LSTM"), SEQUENCES), "LSTM, both ways": (recurrent("LSTM", bidirectional=True), SEQUENCES),
    "LSTM, projected": (recurrent("LSTM", proj_size=6), SEQUENCES), "GRU, both ways": (recurrent("GRU", bidirectional=True), SEQUENCES),
    "RNN": (recurrent("RNN"), SEQUENCES),
    "LSTM, packed": (steps(lambda nn: nn.LSTM(12, 10, 2, dropout=0.3, batch_first=True, bidirectional=True), 20, packed), SEQUENCES),
}  # fmt: skip


def losses(w: Any, make: Make, shape: tuple[int, ...], count: int = 4) -> tuple[list[float], Any]:
    w.manual_seed(5)
    network, x = make(w), numbers(w, *shape)
    target = w.tensor(np.random.default_rng(9).integers(0, 5, shape[0]))
    optimizer = w.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    found = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = w.nn.functional.cross_entropy(network(x), target)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found, w.get_rng_state().numpy()


@pytest.mark.parametrize("name", NETWORKS)
def test_losses_are_pytorchs(name: str) -> None:
    make, shape = NETWORKS[name]
    (ours, state), (theirs, expected) = losses(flambeau, make, shape), losses(torch, make, shape)
    assert np.allclose(ours, theirs, rtol=3e-5)
    assert np.array_equal(state, expected)


@pytest.mark.parametrize("stream", STREAMS)
def test_a_resumed_run_goes_on_as_if_nothing_had_been(stream: str) -> None:
    """Save after two steps, load into a new network, and train on."""

    def step(network: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss = (network(numbers(flambeau, *FLAT)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return float(loss)

    with flambeau.random.dropout_stream(stream):
        flambeau.manual_seed(2)
        network = mlp(flambeau)
        optimizer = flambeau.optim.Adam(network.parameters())
        for _ in range(2):
            step(network, optimizer)
        import copy

        saved = copy.deepcopy((network.state_dict(), optimizer.state_dict())), flambeau.get_rng_state()
        expected = [step(network, optimizer) for _ in range(3)]
        flambeau.manual_seed(99)
        network = mlp(flambeau)
        optimizer = flambeau.optim.Adam(network.parameters())
        network.load_state_dict(saved[0][0])
        optimizer.load_state_dict(saved[0][1])
        flambeau.set_rng_state(saved[1])
        assert [step(network, optimizer) for _ in range(3)] == expected
