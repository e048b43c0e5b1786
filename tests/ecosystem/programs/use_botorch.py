"""botorch, optuna: one step of Bayesian optimization of a function of two numbers; twenty trials of a seeded sampler."""

import json

import optuna
import torch
import warm
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from gpytorch.mlls import ExactMarginalLogLikelihood

torch.manual_seed(0)
x = torch.rand(8, 2, dtype=torch.float64)
y = 1 - (x - 0.5).norm(dim=-1, keepdim=True)
model = SingleTaskGP(x, y, input_transform=Normalize(d=2), outcome_transform=Standardize(m=1))
likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": {"maxiter": 5}})
points = torch.rand(4, 1, 2, dtype=torch.float64, requires_grad=True)
improvement = LogExpectedImprovement(model=model, best_f=y.max())(points)
improvement.sum().backward()
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=0))
study.optimize(lambda trial: (trial.suggest_float("x", -2, 2) - 1) ** 2 + trial.suggest_int("n", 0, 3), n_trials=20)
found = {"improvement": improvement.tolist(), "slopes": points.grad.flatten().tolist(), "optuna": study.best_value}
print(json.dumps(found))


def step():
    made = LogExpectedImprovement(model=model, best_f=y.max())(points).sum()
    made.backward()
    return points.grad.sum().item()


warm.measure("botorch: acquisition and its gradient", step)
