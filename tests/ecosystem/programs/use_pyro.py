"""pyro-ppl: stochastic variational inference of a coin."""

import json

import pyro
import pyro.distributions as dist
import torch
import warm
from pyro.infer import SVI, Trace_ELBO
from pyro.optim import Adam

pyro.set_rng_seed(0)
data = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 0.0])


def model():
    fairness = pyro.sample("fairness", dist.Beta(10.0, 10.0))
    with pyro.plate("data", len(data)):
        pyro.sample("obs", dist.Bernoulli(fairness), obs=data)


def guide():
    a = pyro.param("a", torch.tensor(15.0), constraint=dist.constraints.positive)
    b = pyro.param("b", torch.tensor(15.0), constraint=dist.constraints.positive)
    pyro.sample("fairness", dist.Beta(a, b))


svi = SVI(model, guide, Adam({"lr": 0.01}), loss=Trace_ELBO())
losses = [svi.step() for _ in range(5)]
print(json.dumps({"losses": losses, "a": pyro.param("a").item(), "b": pyro.param("b").item()}))
warm.measure("step of SVI", svi.step)
