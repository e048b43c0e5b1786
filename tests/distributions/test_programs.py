"""Programs that train through distributions: the same losses as PyTorch's, step by step, from one seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.distributions.oracle import PACKAGES


def autoencoder(t: Any) -> list[float]:
    """A variational autoencoder with a Bernoulli decoder: reparametrised samples and a divergence."""
    D, nn = t.distributions, t.nn
    encoder, decoder = nn.Linear(12, 8), nn.Linear(4, 12)
    optimizer = t.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    x = (t.rand(16, 12) > 0.5).float()
    losses = []
    for _ in range(5):
        mean, log_scale = encoder(x).chunk(2, -1)
        posterior = D.Independent(D.Normal(mean, log_scale.exp()), 1)
        prior = D.Independent(D.Normal(t.zeros(4), t.ones(4)), 1)
        likelihood = D.Independent(D.Bernoulli(logits=decoder(posterior.rsample())), 1)
        loss = (D.kl_divergence(posterior, prior.expand((16,))) - likelihood.log_prob(x)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def policy(t: Any) -> list[float]:
    """REINFORCE with an entropy bonus on a bandit with contexts."""
    net = t.nn.Sequential(t.nn.Linear(3, 8), t.nn.Tanh(), t.nn.Linear(8, 4))
    optimizer = t.optim.SGD(net.parameters(), lr=0.1)
    found = []
    for _ in range(5):
        state = t.randn(20, 3)
        actions = t.distributions.Categorical(logits=net(state))
        chosen = actions.sample()
        reward = (chosen == state.argmax(-1)).float()
        loss = -(actions.log_prob(chosen) * (reward - reward.mean()) + 0.01 * actions.entropy()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found += [loss.item(), reward.mean().item()]
    return found


def flow(t: Any) -> list[float]:
    """Maximum likelihood of a flow of affine, tanh and sigmoid transforms."""
    D = t.distributions
    loc, scale = t.zeros(2, requires_grad=True), t.ones(2, requires_grad=True)
    data = D.Beta(t.tensor([2.0, 3.0]), t.tensor([4.0, 1.5])).sample((64,))
    optimizer = t.optim.Adam([loc, scale], lr=0.05)
    losses = []
    for _ in range(5):
        base = D.Independent(D.Normal(t.zeros(2), t.ones(2)), 1)
        model = D.TransformedDistribution(base, [D.AffineTransform(loc, scale, event_dim=1), D.SigmoidTransform()])
        loss = -model.log_prob(data.clamp(0.001, 0.999)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def mixture(t: Any) -> list[float]:
    """A Gaussian mixture fitted by gradients, its parameters unconstrained by `transform_to`."""
    D = t.distributions
    weights, locs, raw = t.zeros(3, requires_grad=True), t.tensor([-1.0, 0.0, 1.0], requires_grad=True), t.zeros(3, requires_grad=True)
    data = t.cat([t.randn(40) - 2, t.randn(40) * 0.5 + 1])
    optimizer = t.optim.Adam([weights, locs, raw], lr=0.1)
    to_positive = D.transform_to(D.constraints.positive)
    losses = []
    for _ in range(5):
        model = D.MixtureSameFamily(D.Categorical(logits=weights), D.Normal(locs, to_positive(raw)))
        loss = -model.log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def topics(t: Any) -> list[float]:
    """Gradients through Dirichlet and gamma samples, whose implicit gradients PyTorch approximates."""
    D = t.distributions
    raw = t.zeros(4, requires_grad=True)
    optimizer = t.optim.SGD([raw], lr=0.05)
    target = t.tensor([0.1, 0.2, 0.3, 0.4])
    losses = []
    for _ in range(5):
        concentration = t.nn.functional.softplus(raw)
        drawn = D.Dirichlet(concentration).rsample((64,))
        rate = D.Gamma(concentration, t.ones(4)).rsample((64,))
        loss = ((drawn - target) ** 2).mean() + ((rate - 2 * target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


PROGRAMS: dict[str, tuple[Callable[[Any], list[float]], float]] = {
    "autoencoder": (autoencoder, 2e-5), "policy": (policy, 2e-5), "flow": (flow, 2e-5), "mixture": (mixture, 2e-5), "topics": (topics, 2e-4),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_losses(name: str) -> None:
    run, tolerance = PROGRAMS[name]
    found = []
    for t in PACKAGES:
        t.manual_seed(3)
        found.append(run(t))
    np.testing.assert_allclose(*found, rtol=tolerance, atol=1e-7)
