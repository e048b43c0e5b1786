"""torchode, torch-optimizer: an adaptive solution of a system, three steps of an optimizer."""

import json

import torch
import torch_optimizer
import torchode
import warm

found = {}
torch.manual_seed(0)
term = torchode.ODETerm(lambda t, y: -0.5 * y)
solver = torchode.AutoDiffAdjoint(torchode.Dopri5(term=term), torchode.IntegralController(atol=1e-6, rtol=1e-3, term=term))
solved = solver.solve(torchode.InitialValueProblem(y0=torch.tensor([[1.2], [5.0]]), t_eval=torch.linspace(0, 2, 5).repeat(2, 1)))
found["torchode"] = solved.ys.flatten().tolist()
weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
optimizer = torch_optimizer.RAdam([weight], lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    weight.square().sum().backward()
    optimizer.step()
found["torch-optimizer"] = weight.tolist()
print(json.dumps(found))
problem = torchode.InitialValueProblem(y0=torch.tensor([[1.2], [5.0]]), t_eval=torch.linspace(0, 2, 5).repeat(2, 1))
warm.measure("torchode: a solution", lambda: solver.solve(problem).ys.sum().item())
