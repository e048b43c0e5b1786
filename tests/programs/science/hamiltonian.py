"""Hamiltonian and Lagrangian networks: dH/dx by autograd.grad(create_graph=True), the permutation tensor, a leapfrog roll-out."""

import numpy as np
import torch
from torch import nn


def choose_nonlinearity(name):
    nl = None
    if name == 'tanh':
        nl = torch.tanh
    elif name == 'relu':
        nl = torch.relu
    elif name == 'sigmoid':
        nl = torch.sigmoid
    elif name == 'softplus':
        nl = torch.nn.functional.softplus
    elif name == 'swish':
        nl = lambda x: x * torch.sigmoid(x)
    else:
        raise ValueError("nonlinearity not recognized")
    return nl


class MLP(torch.nn.Module):
    '''Just a salt-of-the-earth MLP'''
    def __init__(self, input_dim, hidden_dim, output_dim, nonlinearity='tanh'):
        super(MLP, self).__init__()
        self.linear1 = torch.nn.Linear(input_dim, hidden_dim)
        self.linear2 = torch.nn.Linear(hidden_dim, hidden_dim)
        self.linear3 = torch.nn.Linear(hidden_dim, output_dim, bias=None)

        for l in [self.linear1, self.linear2, self.linear3]:
            torch.nn.init.orthogonal_(l.weight) # use a principled initialization

        self.nonlinearity = choose_nonlinearity(nonlinearity)

    def forward(self, x, separate_fields=False):
        h = self.nonlinearity( self.linear1(x) )
        h = self.nonlinearity( self.linear2(h) )
        return self.linear3(h)


class HNN(torch.nn.Module):
    '''Learn arbitrary vector fields that are sums of conservative and solenoidal fields'''
    def __init__(self, input_dim, differentiable_model, field_type='solenoidal', assume_canonical_coords=True):
        super(HNN, self).__init__()
        self.differentiable_model = differentiable_model
        self.assume_canonical_coords = assume_canonical_coords
        self.M = self.permutation_tensor(input_dim) # Levi-Civita permutation tensor
        self.field_type = field_type

    def forward(self, x):
        y = self.differentiable_model(x)
        assert y.dim() == 2 and y.shape[1] == 2, "Output tensor should have shape [batch_size, 2]"
        return y.split(1,1)

    def time_derivative(self, x, t=None, separate_fields=False):
        F1, F2 = self.forward(x) # traditional forward pass

        conservative_field = torch.zeros_like(x) # start out with both components set to 0
        solenoidal_field = torch.zeros_like(x)

        if self.field_type != 'solenoidal':
            dF1 = torch.autograd.grad(F1.sum(), x, create_graph=True)[0] # gradients for conservative field
            conservative_field = dF1 @ torch.eye(*self.M.shape)

        if self.field_type != 'conservative':
            dF2 = torch.autograd.grad(F2.sum(), x, create_graph=True)[0] # gradients for solenoidal field
            solenoidal_field = dF2 @ self.M.t()

        if separate_fields:
            return [conservative_field, solenoidal_field]

        return conservative_field + solenoidal_field

    def permutation_tensor(self,n):
        M = None
        if self.assume_canonical_coords:
            M = torch.eye(n)
            M = torch.cat([M[n//2:], -M[:n//2]])
        else:
            '''Constructs the Levi-Civita permutation tensor'''
            M = torch.ones(n,n) # matrix of ones
            M *= 1 - torch.eye(n) # clear diagonals
            M[::2] *= -1 # pattern of signs
            M[:,::2] *= -1

            for i in range(n): # make asymmetric
                for j in range(i+1, n):
                    M[i,j] *= -1
        return M


class LagrangianNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(4, 12), nn.Softplus(), nn.Linear(12, 1))

    def lagrangian(self, x):
        return self.fc(x).squeeze(-1)

    def forward(self, x):
        # the equation of motion: (d2L/dv2)^-1 (dL/dq - d2L/dqdv v)
        n = x.shape[-1] // 2
        hess = torch.autograd.functional.hessian(lambda z: self.lagrangian(z).sum(), x, create_graph=True)
        jac = torch.autograd.functional.jacobian(lambda z: self.lagrangian(z).sum(), x, create_graph=True)
        dvdv, dqdv = hess[n:, n:], hess[n:, :n]
        return torch.linalg.pinv(dvdv + torch.eye(n)) @ (jac[:n] - dqdv @ x[n:])


def program():
    torch.set_default_dtype(torch.float32)
    model = HNN(4, MLP(4, 16, 2, 'tanh'), field_type='solenoidal', assume_canonical_coords=False)
    yield "start", model
    yield "permutation", model.M
    x = torch.tensor(np.random.RandomState(1).randn(12, 4), requires_grad=True, dtype=torch.float32)
    dxdt = torch.Tensor(np.random.RandomState(2).randn(12, 4))
    optim = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    L2_loss = lambda u, v: (u-v).pow(2).mean()
    for step in range(3):
        dxdt_hat = model.time_derivative(x)
        loss = L2_loss(dxdt, dxdt_hat)
        loss.backward()
        optim.step() ; optim.zero_grad()
        print("step {}, train_loss {:.4e}".format(step, loss.item()))
    both = HNN(4, MLP(4, 8, 2, 'swish'), field_type='both')
    yield "fields", both.time_derivative(x, separate_fields=True)

    lnn = LagrangianNN()
    state = torch.tensor([0.3, -0.2, 0.5, 0.1])
    acceleration = lnn(state)
    acceleration.pow(2).sum().backward()
    yield "acceleration", acceleration
    yield "lagrangian", {n: p.grad for n, p in lnn.named_parameters() if p.grad is not None}

    # a leapfrog roll-out through the learnt Hamiltonian
    q, p = x[0, :2].detach(), x[0, 2:].detach()
    for _ in range(3):
        z = torch.cat([q, p]).unsqueeze(0).requires_grad_()
        dp = model.time_derivative(z)[0, 2:].detach()
        p = p + 0.05 * dp
        q = q + 0.1 * p
    yield "rollout", [q, p]
