"""Programs that train, save, load, copy and draw, beside PyTorch: `python -m tests.engine.training_programs [SEED] [--count N]`.

Where generated_programs.py makes programs of tensors' operations, these are of what a training run is made of: a small network in float64,
an optimizer with a schedule, steps, modes, state dicts, files, deep copies, the random state, loaders, frozen parameters, in random order.
After each event its numbers are compared, and at the end all of the state. Without a seed: 100 programs of today's.
"""

from __future__ import annotations

import copy
import io
import math
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import flambeau
from tests import daily

Event = tuple[str, Any]
# Same numbers, up to rounding that a few steps have made larger.
TOLERANCE = 1e-6
# Of a state: what is of another dtype there after it was loaded, or a tensor (docs/differences.md). What LBFGS writes its steps to ("al") is left out.
_NUMBERS = frozenset(("eta", "mu", "mu_product", "t", "H_diag"))
OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop", "LBFGS")


def network(m: Any, draw: random.Random) -> Any:
    """A network of 4 inputs and 3 outputs."""
    nn = m.nn
    normal = {"momentum": draw.choice([None, 0.1, 0.3]), "affine": draw.random() < 0.7, "track_running_stats": draw.random() < 0.8}
    dropped = draw.choice([0.0, 0.3])
    makers: list[Callable[[], list[Any]]] = [
        lambda: [nn.Linear(4, 6), nn.BatchNorm1d(6, **normal), nn.ReLU(), nn.Dropout(dropped), nn.Linear(6, 3)],
        lambda: [nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.AlphaDropout(0.2), nn.Linear(6, 3, bias=False)],
        lambda: [nn.Unflatten(1, (2, 2)), nn.Conv1d(2, 4, 1), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(8, 3)],
        lambda: [nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), nn.Tanh(), nn.PReLU(), nn.Linear(5, 3)],
        lambda: [nn.Linear(4, 5), nn.SELU(), nn.Linear(5, 3), nn.Softplus()],
        lambda: [
            nn.Unflatten(1, (2, 2)),
            nn.Dropout1d(0.3),
            nn.Flatten(),
            nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)),
            nn.SiLU(),
            nn.Linear(5, 3),
        ],
    ]
    m.set_default_dtype(m.float64)  # not double() of float32 numbers: what a norm's constructor rounds is seen ever after
    try:
        return nn.Sequential(*draw.choice(makers)())
    finally:
        m.set_default_dtype(m.float32)


def optimizer(m: Any, net: Any, draw: random.Random) -> Any:
    """An optimizer of all parameters, in one group or two."""
    name = draw.choice(OPTIMIZERS)
    rate = draw.choice([0.1, 0.01])
    parameters = list(net.parameters())
    if name == "LBFGS":
        return m.optim.LBFGS(parameters, lr=rate, max_iter=3, line_search_fn=draw.choice([None, "strong_wolfe"]))
    decay, yes, momentum = draw.choice([0, 0.01]), draw.random() < 0.5, draw.choice([0, 0.9])
    options: dict[str, Any] = {
        "SGD": {"momentum": momentum, "weight_decay": decay, "nesterov": yes and momentum > 0}, "RMSprop": {"centered": yes, "momentum": momentum},
        "Adam": {"amsgrad": yes, "weight_decay": decay}, "AdamW": {"amsgrad": yes}, "NAdam": {"decoupled_weight_decay": yes, "weight_decay": decay},
        "RAdam": {"decoupled_weight_decay": yes, "weight_decay": decay},
    }.get(name, {})  # fmt: skip
    # Nesterov's momentum for each by itself: PyTorch's foreach adds it to the gradients, which the next step may add to.
    each = [False] if options.get("nesterov") else [None, True, False]
    options = options | {"foreach": draw.choice(each), "maximize": draw.random() < 0.1}
    groups = [{"params": parameters[:1], "lr": rate / 2}, {"params": parameters[1:]}] if draw.random() < 0.5 else parameters
    return getattr(m.optim, name)(groups, lr=rate, **options)


def schedule(m: Any, steps: Any, draw: random.Random) -> Any:
    """A schedule of an optimizer's rates."""
    made = m.optim.lr_scheduler
    makers: list[Callable[[], Any]] = [
        lambda: made.StepLR(steps, 2, 0.5),
        lambda: made.MultiStepLR(steps, [1, 3], 0.3),
        lambda: made.ExponentialLR(steps, 0.9),
        lambda: made.CosineAnnealingLR(steps, 4),
        lambda: made.OneCycleLR(steps, 0.1, total_steps=30, cycle_momentum=False),
        lambda: made.CyclicLR(steps, 0.01, 0.1, step_size_up=2, cycle_momentum=False),
        lambda: made.LinearLR(steps, 0.5, total_iters=4),
        lambda: made.PolynomialLR(steps, 5, 2.0),
        lambda: made.CosineAnnealingWarmRestarts(steps, 2, 2),
        lambda: made.ConstantLR(steps, 0.5, 3),
        lambda: made.LambdaLR(steps, lambda epoch: 0.9**epoch),
        lambda: made.ReduceLROnPlateau(steps, patience=1),
        lambda: made.SequentialLR(steps, [made.ConstantLR(steps, 0.1, 2), made.ExponentialLR(steps, 0.9)], [2]),
        lambda: made.ChainedScheduler([made.ConstantLR(steps, 0.5, 2), made.ExponentialLR(steps, 0.9)], optimizer=steps),
    ]
    return draw.choice(makers)()


class Program:
    """A seed's program in one library. `nudge`: its data are larger by so many units in the last place or so."""

    def __init__(self, m: Any, seed: int, nudge: int) -> None:
        self.m, self.draw, self.nudge, self.seed = m, random.Random(seed), nudge, seed
        m.manual_seed(seed)
        self.net = network(m, self.draw)
        self.steps = optimizer(m, self.net, self.draw)
        self.schedule = schedule(m, self.steps, self.draw) if type(self.steps).__name__ != "LBFGS" else None
        self.saved: Any = None

    def data(self, rows: int, columns: int) -> Any:
        """Numbers within 1 of 0."""
        numbers = [self.draw.uniform(-1, 1) * (1 + self.nudge * 2.0**-50) for _ in range(rows * columns)]
        return self.m.tensor(numbers, dtype=self.m.float64).reshape(rows, columns)

    def train(self) -> Any:
        x, y, draw, steps = self.data(5, 4), self.data(5, 3), self.draw, self.steps
        adds, clips, to_none = draw.random() < 0.2, draw.random() < 0.2, draw.random() < 0.7

        def closure() -> Any:
            if not adds:
                steps.zero_grad(set_to_none=to_none)
            loss = ((self.net(x) - y) ** 2).mean()
            loss.backward()
            return loss

        norm = None
        if type(steps).__name__ == "LBFGS":
            loss = steps.step(closure)
        else:
            loss = closure()
            norm = self.m.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5).item() if clips else None
            steps.step()
        if self.schedule is not None:
            self.schedule.step(*([loss.item()] if type(self.schedule).__name__ == "ReduceLROnPlateau" else []))
        return loss.item(), norm, [g["lr"] for g in steps.param_groups]

    def mode(self) -> Any:
        self.net.train(not self.net.training)

    def evaluate(self) -> Any:
        with self.m.no_grad():
            return self.net(self.data(3, 4))

    def save(self) -> Any:
        of_schedule = self.schedule.state_dict() if self.schedule is not None and type(self.schedule).__name__ != "LambdaLR" else None
        self.saved = *copy.deepcopy((self.net.state_dict(), self.steps.state_dict(), of_schedule)), self.m.get_rng_state()
        return self.saved[:2]

    def load(self) -> Any:
        if self.saved is not None:
            self.net.load_state_dict(self.saved[0])
            self.steps.load_state_dict(copy.deepcopy(self.saved[1]))  # the optimizer takes over its tensors, and goes on counting in them
            if self.saved[2] is not None:
                self.schedule.load_state_dict(self.saved[2])
            self.m.set_rng_state(self.saved[3])

    def file(self) -> Any:
        file = io.BytesIO()
        self.m.save({"net": self.net.state_dict(), "steps": self.steps.state_dict()}, file)
        file.seek(0)
        found = self.m.load(file, weights_only=True)
        self.net.load_state_dict(found["net"])
        self.steps.load_state_dict(found["steps"])
        return found

    def copied(self) -> Any:
        other = copy.deepcopy(self.net)
        return list(other.state_dict().values()), [p.requires_grad for p in other.parameters()]

    def numbers(self) -> Any:
        with self.m.random.fork_rng():
            inside = self.m.nn.functional.dropout(self.m.ones(6), 0.5)
        return inside, self.m.rand(3), self.m.randperm(5), self.m.randn(2)

    def loader(self) -> Any:
        utils, draw = self.m.utils.data, self.draw
        own = self.m.Generator().manual_seed(self.seed)
        given = own if draw.random() < 0.5 else None
        batches = utils.DataLoader(utils.TensorDataset(self.m.arange(10)), batch_size=3, shuffle=True, generator=given, drop_last=draw.random() < 0.5)
        return [batch[0] for batch in batches], utils.random_split(range(7), [3, 4], generator=own)[0].indices

    def freeze(self) -> Any:
        for p in self.net.parameters():
            if self.draw.random() < 0.3:
                p.requires_grad_(not p.requires_grad)
        if not any(p.requires_grad for p in self.net.parameters()):
            next(self.net.parameters()).requires_grad_()

    def run(self) -> Iterator[Event]:
        """What is seen, event by event; an error ends it."""
        events = [self.mode, self.evaluate, self.save, self.load, self.file, self.copied, self.numbers, self.loader, self.freeze]
        for _ in range(self.draw.randrange(4, 12)):
            event = self.train if self.draw.random() < 0.5 else self.draw.choice(events)
            try:
                seen = event()
            except Exception as error:
                yield event.__name__, (type(error).__name__, str(error))
                return
            yield event.__name__, _plain(seen)
        rates = [g["lr"] for g in self.steps.param_groups]
        yield "end", _plain([self.net.state_dict(), self.steps.state_dict(), self.m.get_rng_state(), rates])


def _plain(x: Any) -> Any:
    """Tensors, dicts and sequences as what Python compares."""
    if hasattr(x, "tolist"):
        return str(x.dtype).rpartition(".")[2], tuple(x.shape), x.tolist()
    if isinstance(x, dict):
        return [(str(key), float(value) if key in _NUMBERS else _plain(value)) for key, value in x.items() if key != "al"]
    if isinstance(x, (list, tuple)):
        return [float(value) if hasattr(value, "ndim") and not value.ndim and value.is_floating_point() else _plain(value) for value in x]
    return x if isinstance(x, (int, float, str, type(None))) else type(x).__name__


def distance(a: Any, b: Any) -> float:
    """The greatest distance of two numbers at the same place, in parts of their size; infinite where anything else differs."""
    if isinstance(a, (list, tuple)):
        if not isinstance(b, (list, tuple)) or len(a) != len(b):
            return math.inf
        return max(map(distance, a, b), default=0.0)
    if type(a) is not type(b):
        return math.inf
    if a == b or (a != a and b != b):
        return 0.0
    if not isinstance(a, float) or not (math.isfinite(a) and math.isfinite(b)):
        return math.inf
    return abs(a - b) / (1 + abs(a))


def difference(seed: int) -> str | None:
    """In what the two libraries differ, or None. What each library's own run does when its data change in the last place says nothing:
    a bias before a batch norm has a gradient of noise alone, of which Rprop and Adam take the sign."""
    import torch

    def events(m: Any, nudge: int = 0) -> list[Event]:
        return list(Program(m, seed, nudge).run())

    theirs, ours = events(torch), events(flambeau)
    nudged: list[tuple[list[Event], list[Event]]] = []
    for i, (x, y) in enumerate(zip(ours, theirs, strict=False)):
        if x[0] == y[0] and distance(x, y) <= TOLERANCE:
            continue
        nudged = nudged or [(own, events(m, k)) for m, own in ((torch, theirs), (flambeau, ours)) for k in (1, 2, -1, -3)]
        own = max([distance(one[i], other[i]) if i < len(other) else math.inf for one, other in nudged])
        if own * 100 < distance(x, y):
            return f"event {i}, off by {distance(x, y)}, of its own by {own}:\n  flambeau {_first(x, y)}\n  PyTorch  {_first(y, x)}"
        return None
    return None if len(ours) == len(theirs) else f"{len(ours)} events and {len(theirs)}"


def _first(a: Any, b: Any) -> Any:
    """The smallest part of `a` that holds its first difference from `b`."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        i = next(i for i in range(len(a)) if distance(a[i], b[i]) > TOLERANCE)
        found = _first(a[i], b[i])
        return (a[0], found) if i and isinstance(a[0], str) else found if isinstance(a[i], (list, tuple)) else a
    return a


if __name__ == "__main__":
    sys.exit(daily.run("training programs", difference, 100))
