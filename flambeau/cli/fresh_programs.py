"""Programs of `flambeau bench --fresh`: in each step something is new, a size, a number or a path. Each is written once against a module.

`make(torch, seed)` prepares and returns `step(i)`, which does step i and ends with everything computed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, Final

from flambeau.cli import fresh_sequences as sequences
from flambeau.cli.fresh_sequences import Step, lengths


class CartPole:
    """The pole on a cart of Barto, Sutton and Anderson (1983), as in Gymnasium's CartPole-v1; plain numbers."""

    def __init__(self, chance: random.Random) -> None:
        self.state = [chance.uniform(-0.05, 0.05) for _ in range(4)]
        self.steps = 0

    def move(self, right: int) -> bool:
        """Push the cart; whether the episode has ended."""
        x, speed, angle, turning = self.state
        force = 10.0 if right else -10.0
        pushed = (force + 0.05 * turning**2 * math.sin(angle)) / 1.1
        angular = (9.8 * math.sin(angle) - math.cos(angle) * pushed) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        self.state = [x + 0.02 * speed, speed + 0.02 * (pushed - 0.05 * angular * math.cos(angle) / 1.1), angle + 0.02 * turning, turning + 0.02 * angular]
        self.steps += 1
        return abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095 or self.steps >= 200


def _policy(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))


def policy_gradient(torch: Any, seed: int) -> Step:
    """REINFORCE on CartPole: episodes of new lengths, actions drawn from Categorical."""
    policy = _policy(torch)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    chance = random.Random(seed)

    def step(i: int) -> float:
        world, logs = CartPole(chance), []
        while True:
            chosen = torch.distributions.Categorical(logits=policy(torch.tensor(world.state)))
            action = chosen.sample()
            logs.append(chosen.log_prob(action))
            if world.move(action.item()):
                break
        returns = torch.tensor([(1 - 0.99 ** (len(logs) - t)) / 0.01 for t in range(len(logs))])
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        loss = -(torch.stack(logs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def actor_critic(torch: Any, seed: int) -> Step:
    """An actor and a critic that learn after each episode from it and from a replay of what was seen."""
    actor, critic = _policy(torch), torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
    chance = random.Random(seed)
    memory: list[tuple[list[float], int, float]] = []

    def step(i: int) -> float:
        world, seen = CartPole(chance), []
        over = False
        while not over:
            state = world.state
            with torch.no_grad():
                action = torch.multinomial(actor(torch.tensor(state)).softmax(-1), 1).item()
            over = world.move(action)
            seen.append((state, action))
        memory.extend([(s, a, (1 - 0.99 ** (len(seen) - t)) / 0.01) for t, (s, a) in enumerate(seen)])
        batch = memory[-len(seen) :] + chance.sample(memory, min(32, len(memory)))
        states, actions = torch.tensor([s for s, _, _ in batch]), torch.tensor([a for _, a, _ in batch])
        returns = torch.tensor([r for _, _, r in batch])
        values = critic(states)[:, 0]
        logs = actor(states).log_softmax(-1).gather(1, actions[:, None])[:, 0]
        loss = -(logs * (returns - values.detach())).mean() + 0.5 * torch.nn.functional.smooth_l1_loss(values, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def batch_sizes(torch: Any, seed: int) -> Step:
    """A multilayer perceptron with Adam, and batches of new sizes."""
    nn = torch.nn
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 5))
    optimizer = torch.optim.Adam(net.parameters())
    sizes = lengths(seed, 2, 130)

    def step(i: int) -> float:
        x = torch.randn(sizes[i], 20)
        loss = nn.functional.cross_entropy(net(x), torch.arange(sizes[i]) % 5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def image_sizes(torch: Any, seed: int) -> Step:
    """A convolutional network trained on images of new sizes."""
    nn = torch.nn
    net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                        nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    high, wide = lengths(seed, 24, 104), lengths(seed + 1, 24, 104)

    def step(i: int) -> float:
        loss = nn.functional.cross_entropy(net(torch.randn(4, 3, high[i], wide[i])), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def boxes(torch: Any, seed: int) -> Step:
    """A detector's last part: masks, suppression by hand, nonzero, sort, unique. Sizes depend on values."""

    def step(i: int) -> Any:
        corners = torch.rand(120, 2) * 80
        found = torch.cat((corners, corners + torch.rand(120, 2) * 30 + 1), 1)
        scores, labels = torch.rand(120), torch.randint(0, 5, (120,))
        keep = scores > 0.5
        found, scores, labels = found[keep], scores[keep], labels[keep]
        order = scores.sort(descending=True)[1]
        kept = []
        while order.numel() > 0:
            best, order = order[0], order[1:]
            kept.append(best)
            low, high = torch.maximum(found[best, :2], found[order, :2]), torch.minimum(found[best, 2:], found[order, 2:])
            common = (high - low).clamp(min=0).prod(1)
            area = (found[:, 2:] - found[:, :2]).prod(1)
            order = order[common / (area[best] + area[order] - common) < 0.3]
        chosen = torch.stack(kept)
        kinds, counts = labels[chosen].unique(return_counts=True)
        return torch.nonzero(scores[chosen] > 0.8)[:, 0].tolist(), kinds.tolist(), counts.tolist()

    return step


def message_passing(torch: Any, seed: int) -> Step:
    """Two layers of message passing over graphs with new numbers of nodes and edges; training."""
    nn = torch.nn
    first, second, head = nn.Linear(32, 32), nn.Linear(64, 32), nn.Linear(32, 3)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters(), *head.parameters()])
    nodes, chance = lengths(seed, 10, 130), random.Random(seed)

    def step(i: int) -> float:
        n = nodes[i]
        m = n * 3 + chance.randrange(n)
        x, (source, target) = torch.randn(n, 16), torch.randint(0, n, (2, m))
        degree = torch.zeros(n).index_add(0, target, torch.ones(m)).clamp(min=1)
        messages = torch.relu(first(torch.cat((x[source], x[target]), 1)))
        h = torch.zeros(n, 32).index_add(0, target, messages) / degree[:, None]
        messages = torch.relu(second(torch.cat((h[source], h[target]), 1)))
        h = h + torch.zeros(n, 32).scatter_add(0, target[:, None].expand(m, 32), messages)
        loss = nn.functional.cross_entropy(head(h), torch.arange(n) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def neural_ode(torch: Any, seed: int) -> Step:
    """A neural differential equation, solved by Heun's method with steps that adapt; training."""
    nn = torch.nn
    field = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    chance = random.Random(seed)

    def step(i: int) -> float:
        y, t, end, h = torch.randn(16, 2), 0.0, chance.uniform(0.5, 2.0), 0.1
        while t < end:
            h = min(h, end - t)
            a = field(y)
            b = field(y + h * a)
            error = ((b - a) * h / 2).abs().max().item()
            if error < 5e-2 or h < 1e-2:
                y, t = y + h * (a + b) / 2, t + h
            h *= min(2.0, max(0.3, 0.9 * (5e-2 / (error + 1e-9)) ** 0.5))
        loss = (y - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()  # type: ignore[no-any-return]

    return step


def hamiltonian(torch: Any, seed: int) -> Step:
    """Hamiltonian Monte Carlo for a logistic regression, with a new number and size of leapfrog steps each time."""
    x, y = torch.randn(50, 5), (torch.arange(50) % 2).float()
    at = {"w": torch.zeros(5)}
    chance = random.Random(seed)

    def energy(w: Any) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y, reduction="sum") + w.square().sum() / 2

    def slope(w: Any) -> Any:
        w = w.detach().requires_grad_()
        return torch.autograd.grad(energy(w), w)[0]

    def step(i: int) -> bool:
        w, h = at["w"], chance.uniform(0.02, 0.1)
        momentum = torch.randn(5)
        before = (energy(w) + momentum.square().sum() / 2).item()
        momentum = momentum - h / 2 * slope(w)
        for _ in range(chance.randint(3, 20)):
            w = w + h * momentum
            momentum = momentum - h * slope(w)
        after = (energy(w) + (momentum + h / 2 * slope(w)).square().sum() / 2).item()
        taken = math.log(chance.random() + 1e-12) < before - after
        if taken:
            at["w"] = w.detach()
        return taken

    return step


def early_exit(torch: Any, seed: int) -> Step:
    """A network of eight layers, of which each row leaves when it is sure enough; the rows that stay differ in number."""
    nn = torch.nn
    layers, exits = [nn.Linear(32, 32) for _ in range(8)], [nn.Linear(32, 4) for _ in range(8)]

    def step(i: int) -> Any:
        x, rows = torch.randn(64, 32) * 2, torch.arange(64)
        answer = torch.full((64,), -1)
        with torch.no_grad():
            for layer, leave in zip(layers, exits, strict=True):
                x = x + torch.relu(layer(x))
                sure, best = leave(x).softmax(-1).max(-1)
                done = sure > 0.6
                answer[rows[done]] = best[done]
                x, rows = x[~done], rows[~done]
                if not len(rows):
                    break
        return answer.tolist()

    return step


def hyper_parameters(torch: Any, seed: int) -> Step:
    """New values of eps, slopes, probabilities, smoothing and temperatures in each step."""
    functional = torch.nn.functional
    weight = torch.randn(16, 16, requires_grad=True)
    chance = random.Random(seed)

    def step(i: int) -> float:
        x = torch.randn(32, 16) @ weight
        x = functional.layer_norm(x, (16,), eps=chance.uniform(1e-6, 1e-2))
        x = functional.leaky_relu(x, chance.uniform(0.01, 0.3))
        x = functional.dropout(x, chance.uniform(0.1, 0.5))
        x = functional.elu(functional.pad(x, (1, 1), value=chance.uniform(-1, 1)), alpha=chance.uniform(0.5, 2.0))
        x = functional.threshold(functional.normalize(x, eps=chance.uniform(1e-9, 1e-6)), chance.uniform(-0.5, 0.0), chance.uniform(-2, -1))
        loss = functional.cross_entropy(x / chance.uniform(0.5, 2), torch.arange(32) % 18, label_smoothing=chance.uniform(0, 0.2))
        (slope,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(slope.clamp(-1, 1), alpha=chance.uniform(0.01, 0.1))
        return loss.item()  # type: ignore[no-any-return]

    return step


def script(torch: Any, seed: int) -> Step:
    """What a script does once from top to bottom: in each step another network is built, trained once and looked at."""
    nn = torch.nn
    chance = random.Random(seed)
    kinds = (nn.ReLU, nn.Tanh, nn.GELU, nn.Sigmoid, nn.ELU, nn.SiLU)

    def step(i: int) -> Any:
        wide, deep = chance.randint(8, 64), chance.randint(1, 4)
        parts: list[Any] = [nn.Linear(7, wide)]
        for _ in range(deep):
            parts += [chance.choice(kinds)(), nn.LayerNorm(wide), nn.Linear(wide, wide)]
        net = nn.Sequential(*parts, nn.Linear(wide, 3))
        optimizer = chance.choice((torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop))(net.parameters(), lr=1e-3)
        x = torch.randn(chance.randint(4, 64), 7)
        x = (x - x.mean(0)) / x.std(0)
        loss = nn.functional.mse_loss(net(x), torch.stack((x.sum(1), x.prod(1), x.amax(1)), 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        norms = {name: p.grad.norm().item() for name, p in net.named_parameters()}
        return loss.item(), max(norms.values())

    return step


CELLS: Final = (
    lambda torch, x, y: (x @ y.T).softmax(-1).mean().item(),
    lambda torch, x, y: ((x - x.mean(0)) ** 2).sum(0).sqrt().tolist(),
    lambda torch, x, y: torch.einsum("ij,kj->ik", x, y).topk(2)[1].tolist(),
    lambda torch, x, y: torch.cat((x, y)).sort(0)[0][::3].std().item(),
    lambda torch, x, y: torch.where(x > 0, x, x.exp() - 1).cumsum(0)[-1].tolist(),
    lambda torch, x, y: (x[:, None] - y[None]).abs().sum(-1).argmin(1).bincount().tolist(),
    lambda torch, x, y: torch.linalg.svdvals(x.T @ x).tolist(),
    lambda torch, x, y: [row.max().item() for row in x.split(3)],
)


def notebook(torch: Any, seed: int) -> Step:
    """A cell that is run again and again with changes: another expression over other sizes each time."""
    chance = random.Random(seed)

    def step(i: int) -> Any:
        x, y = torch.randn(chance.randint(5, 60), 6), torch.randn(chance.randint(5, 60), 6)
        if i % 3 == 0:
            x = x * chance.uniform(0.5, 2) + chance.randint(0, 3)
        if i % 4 == 1:
            x = x[:, torch.randperm(6)].clamp(-2, 2)
        return CELLS[i % len(CELLS)](torch, x, y)

    return step


PROGRAMS: Final[dict[str, Callable[[Any, int], Step]]] = {
    "policy gradient, new episodes": policy_gradient,
    "GRU cell in a loop, new lengths": sequences.gru_cell_loop,
    "LSTM, packed sequences": sequences.packed_lstm,
    "transformer, padding masks": sequences.padded_transformer,
    "decoding, greedy": sequences.greedy_decoding,
    "decoding, sampled": sequences.sampled_decoding,
    "decoding, beam search": sequences.beam_search,
    "perceptron, new batch sizes": batch_sizes,
    "convolutions, new image sizes": image_sizes,
    "boxes of a detector": boxes,
    "message passing, new graphs": message_passing,
    "recursive trees": sequences.recursive_trees,
    "neural ODE, adaptive steps": neural_ode,
    "Hamiltonian Monte Carlo": hamiltonian,
    "actor-critic with replay": actor_critic,
    "curriculum of lengths": sequences.curriculum,
    "early exit": early_exit,
    "sweep of hyper-parameters": hyper_parameters,
    "script from top to bottom": script,
    "notebook cell with changes": notebook,
}
