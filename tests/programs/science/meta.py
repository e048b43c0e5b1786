"""Meta-learning and weights made by networks: MAML with a functional forward, a hypernetwork, torch.func's functional_call with vmap over tasks."""

from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, vmap


class SineModel(nn.Module):
    """dragen1860-like: forward takes the weights to use."""

    def __init__(self):
        super().__init__()
        self.vars = nn.ParameterList()
        for shape in ((20, 1), (20, 20), (1, 20)):
            w = nn.Parameter(torch.ones(*shape))
            torch.nn.init.kaiming_normal_(w)
            self.vars.append(w)
            self.vars.append(nn.Parameter(torch.zeros(shape[0])))

    def forward(self, x, vars=None):
        if vars is None:
            vars = self.vars
        idx = 0
        for layer in range(3):
            w, b = vars[idx], vars[idx + 1]
            x = F.linear(x, w, b)
            if layer < 2:
                x = F.relu(x)
            idx += 2
        return x


def task(rng):
    amplitude, phase = rng.uniform(0.1, 5.0), rng.uniform(0, np.pi)
    x = rng.uniform(-5, 5, (2, 10, 1))
    y = amplitude * np.sin(x + phase)
    return [torch.tensor(part, dtype=torch.float32) for part in (x[0], y[0], x[1], y[1])]


def maml():
    net = SineModel()
    yield "initial maml", net
    meta_optim = torch.optim.Adam(net.parameters(), lr=1e-3)
    rng = np.random.RandomState(0)
    for step in range(2):
        losses_q = []
        for _ in range(3):
            x_spt, y_spt, x_qry, y_qry = task(rng)
            fast_weights = list(net.parameters())
            for k in range(2):
                loss = F.mse_loss(net(x_spt, fast_weights), y_spt)
                gradients = torch.autograd.grad(loss, fast_weights, create_graph=True)
                fast_weights = list(map(lambda p: p[1] - 0.01 * p[0], zip(gradients, fast_weights)))
            losses_q.append(F.mse_loss(net(x_qry, fast_weights), y_qry))
        loss_q = torch.stack(losses_q).mean()
        meta_optim.zero_grad()
        loss_q.backward()
        if step == 0:
            yield "meta gradients", net
        meta_optim.step()
        print("step", step, "query loss %.5f" % loss_q.item())


def functional_maml():
    """The torch.func tutorial: an inner loop by grad, all tasks at once by vmap."""
    net = nn.Sequential(OrderedDict(fc1=nn.Linear(1, 10), act=nn.Tanh(), fc2=nn.Linear(10, 1)))
    params = dict(net.named_parameters())
    rng = np.random.RandomState(1)
    tasks = [torch.stack(parts) for parts in zip(*[task(rng) for _ in range(3)])]

    def get_loss_for_task(x1, y1, x2, y2):
        def inner_loss(params, x1, y1):
            f = functional_call(net, params, (x1,))
            return F.mse_loss(f, y1)

        grads = grad(inner_loss)(params, x1, y1)
        new_params = {k: params[k] - grads[k] * 0.1 for k in params}
        v_f = functional_call(net, new_params, (x2,))
        return F.mse_loss(v_f, y2)

    inner_losses = vmap(get_loss_for_task)(*tasks)
    loss = sum(inner_losses) / len(inner_losses)
    loss.backward()
    yield "functional", [inner_losses, net.fc1.weight.grad, net.fc2.weight.grad]


class HyperNetwork(nn.Module):
    """Ha et al., 2016: the weights of a convolution from an embedding of the layer (github.com/g1910/HyperNetworks)."""

    def __init__(self, f_size=3, z_dim=8, out_size=4, in_size=4):
        super(HyperNetwork, self).__init__()
        self.z_dim = z_dim
        self.f_size = f_size
        self.out_size = out_size
        self.in_size = in_size

        self.w1 = nn.Parameter(torch.fmod(torch.randn((self.z_dim, self.out_size*self.f_size*self.f_size)),2))
        self.b1 = nn.Parameter(torch.fmod(torch.randn((self.out_size*self.f_size*self.f_size)),2))

        self.w2 = nn.Parameter(torch.fmod(torch.randn((self.z_dim, self.in_size*self.z_dim)),2))
        self.b2 = nn.Parameter(torch.fmod(torch.randn((self.in_size*self.z_dim)),2))

    def forward(self, z):
        h_in = torch.matmul(z, self.w2) + self.b2
        h_in = h_in.view(self.in_size, self.z_dim)

        h_final = torch.matmul(h_in, self.w1) + self.b1
        kernel = h_final.view(self.out_size, self.in_size, self.f_size, self.f_size)

        return kernel


def hypernetwork():
    hope = HyperNetwork()
    zs = nn.ParameterList([nn.Parameter(torch.fmod(torch.randn(8), 2)) for _ in range(3)])
    bn = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(3)])
    x = torch.randn(2, 4, 6, 6)
    for z, norm in zip(zs, bn):
        x = x + F.relu(norm(F.conv2d(x, hope(z), padding=1)))
    x.mean().backward()
    yield "hypernetwork", [hope, *[z.grad for z in zs]]


def program():
    yield from maml()
    yield from functional_maml()
    yield from hypernetwork()
