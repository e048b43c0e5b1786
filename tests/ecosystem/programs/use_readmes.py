"""laplace-torch, torchopt, nnsight, nflows, pypose, geomloss, tensorly-torch, neuraloperator, curvlinops-for-pytorch, unfoldNd, rotary-embedding-torch, torch-ema: a line of each README."""  # noqa: E501

import json

import nnsight
import pypose
import torch
import torchopt
import unfoldNd
from curvlinops import GGNLinearOperator, HessianLinearOperator
from geomloss import SamplesLoss
from laplace import Laplace
from neuralop.models import FNO
from nflows.distributions.normal import StandardNormal
from nflows.flows import Flow
from nflows.transforms import CompositeTransform, MaskedAffineAutoregressiveTransform, ReversePermutation
from rotary_embedding_torch import RotaryEmbedding
from tltorch import FactorizedLinear
from torch_ema import ExponentialMovingAverage

found = {}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def trained(model, x, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def size(t):
    return t.detach().double().abs().sum().item()


net = network()
x, classes = torch.randn(20, 4), torch.randint(0, 2, (20,))
posterior = Laplace(net, "classification", subset_of_weights="last_layer", hessian_structure="full")
posterior.fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, classes), batch_size=5))
found["laplace"] = [size(posterior(x)), posterior.log_marginal_likelihood().item()]
net = network()
found["torchopt"] = trained(net, x, torchopt.Adam(net.parameters(), lr=0.1))
wrapped = nnsight.NNsight(network())
with wrapped.trace(torch.ones(3, 4)):
    hidden = wrapped[0].output.save()
found["nnsight"] = size(hidden)
torch.manual_seed(0)
flow = Flow(CompositeTransform([ReversePermutation(3), MaskedAffineAutoregressiveTransform(3, 8)]), StandardNormal([3]))
found["nflows"] = [-flow.log_prob(torch.randn(8, 3)).mean().item(), size(flow.sample(5))]
turn = pypose.so3(torch.randn(3, 3)).Exp()
found["pypose"] = [size(turn.Act(torch.randn(3, 3))), size(turn.Log().tensor()), size(turn.matrix())]
points = torch.rand(20, 3, requires_grad=True)
distance = SamplesLoss("sinkhorn", p=2, blur=0.05)(points, torch.rand(15, 3))
distance.backward()
found["geomloss"] = [distance.item(), size(points.grad)]
factors = FactorizedLinear((4, 4), (2, 4), bias=True, factorization="tucker", rank=4)
torch.manual_seed(0)
factors.weight.normal_(0, 0.02)
found["tensorly-torch"] = trained(factors, torch.randn(3, 16))
found["neuraloperator"] = trained(FNO(n_modes=(4, 4), hidden_channels=8, in_channels=1, out_channels=1, n_layers=2), torch.randn(2, 1, 8, 8))
net = network()
given = (net, torch.nn.CrossEntropyLoss(), [*net.parameters()], [(x, classes)])
found["curvlinops"] = [size(operator(*given) @ torch.ones(58)) for operator in (HessianLinearOperator, GGNLinearOperator)]
found["unfoldNd"] = size(unfoldNd.UnfoldNd(3, padding=1)(torch.randn(1, 2, 5, 5, 5)))
found["rotary-embedding-torch"] = size(RotaryEmbedding(dim=8).rotate_queries_or_keys(torch.randn(1, 2, 6, 16)))
average = ExponentialMovingAverage(net.parameters(), 0.9)
trained(net, x)
average.update()
with average.average_parameters():
    found["torch-ema"] = size(net[0].weight)
print(json.dumps(found))
