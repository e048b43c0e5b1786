"""gpytorch: an exact Gaussian process: marginal likelihood, three steps, predictions."""

import json

import gpytorch
import torch
import warm


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


x = torch.linspace(0, 1, 20)
y = torch.sin(6 * x)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for _ in range(3):
    loss = -objective(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval(), likelihood.eval()
with torch.no_grad():
    prediction = likelihood(model(torch.tensor([0.25, 0.5])))
print(json.dumps({"losses": losses, "mean": prediction.mean.tolist(), "variance": prediction.variance.tolist()}))
with torch.no_grad():
    points = torch.linspace(0, 1, 16)
    warm.measure("prediction", lambda: likelihood(model(points)).variance.sum().item())
model.train(), likelihood.train()


def step():
    optimizer.zero_grad()
    loss = -objective(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("training step", step)
