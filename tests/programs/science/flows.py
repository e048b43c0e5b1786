"""Normalizing flows: RealNVP with masks as parameters (senya-ashukha), Glow's invertible 1x1 convolution and actnorm, MAF with MADE, planar flows."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import distributions


class RealNVP(nn.Module):
    def __init__(self, nets, nett, mask, prior):
        super(RealNVP, self).__init__()

        self.prior = prior
        self.mask = nn.Parameter(mask, requires_grad=False)
        self.t = torch.nn.ModuleList([nett() for _ in range(len(mask))])
        self.s = torch.nn.ModuleList([nets() for _ in range(len(mask))])

    def g(self, z):
        x = z
        for i in range(len(self.t)):
            x_ = x*self.mask[i]
            s = self.s[i](x_)*(1 - self.mask[i])
            t = self.t[i](x_)*(1 - self.mask[i])
            x = x_ + (1 - self.mask[i]) * (x * torch.exp(s) + t)
        return x

    def f(self, x):
        log_det_J, z = x.new_zeros(x.shape[0]), x
        for i in reversed(range(len(self.t))):
            z_ = self.mask[i] * z
            s = self.s[i](z_) * (1-self.mask[i])
            t = self.t[i](z_) * (1-self.mask[i])
            z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
            log_det_J -= s.sum(dim=1)
        return z, log_det_J

    def log_prob(self,x):
        z, logp = self.f(x)
        return self.prior.log_prob(z) + logp

    def sample(self, batchSize):
        z = self.prior.sample((batchSize, 1))
        logp = self.prior.log_prob(z)
        x = self.g(z)
        return x


class ActNorm(nn.Module):
    """rosinality/glow-pytorch: initialised by the data of the first call."""

    def __init__(self, in_channel):
        super().__init__()

        self.loc = nn.Parameter(torch.zeros(1, in_channel, 1, 1))
        self.scale = nn.Parameter(torch.ones(1, in_channel, 1, 1))

        self.register_buffer("initialized", torch.tensor(0, dtype=torch.uint8))

    def initialize(self, input):
        with torch.no_grad():
            flatten = input.permute(1, 0, 2, 3).contiguous().view(input.shape[1], -1)
            mean = (
                flatten.mean(1)
                .unsqueeze(1)
                .unsqueeze(2)
                .unsqueeze(3)
                .permute(1, 0, 2, 3)
            )
            std = (
                flatten.std(1)
                .unsqueeze(1)
                .unsqueeze(2)
                .unsqueeze(3)
                .permute(1, 0, 2, 3)
            )

            self.loc.data.copy_(-mean)
            self.scale.data.copy_(1 / (std + 1e-6))

    def forward(self, input):
        _, _, height, width = input.shape

        if self.initialized.item() == 0:
            self.initialize(input)
            self.initialized.fill_(1)

        log_abs = torch.log(torch.abs(self.scale))
        logdet = height * width * torch.sum(log_abs)
        return self.scale * (input + self.loc), logdet


class InvConv2dLU(nn.Module):
    def __init__(self, in_channel):
        super().__init__()

        weight = torch.randn(in_channel, in_channel)
        q, _ = torch.linalg.qr(weight)

        w_p, w_l, w_u = torch.linalg.lu(q)

        w_s = torch.diag(w_u)
        w_u = torch.triu(w_u, 1)
        u_mask = torch.triu(torch.ones_like(w_u), 1)
        l_mask = u_mask.T

        self.register_buffer("w_p", w_p)
        self.register_buffer("u_mask", u_mask)
        self.register_buffer("l_mask", l_mask)
        self.register_buffer("s_sign", torch.sign(w_s))
        self.register_buffer("l_eye", torch.eye(l_mask.shape[0]))
        self.w_l = nn.Parameter(w_l)
        self.w_s = nn.Parameter(torch.log(torch.abs(w_s)))
        self.w_u = nn.Parameter(w_u)

    def forward(self, input):
        _, _, height, width = input.shape

        weight = self.calc_weight()

        out = F.conv2d(input, weight)
        logdet = height * width * torch.sum(self.w_s)

        return out, logdet

    def calc_weight(self):
        weight = (
            self.w_p
            @ (self.w_l * self.l_mask + self.l_eye)
            @ ((self.w_u * self.u_mask) + torch.diag(self.s_sign * torch.exp(self.w_s)))
        )

        return weight.unsqueeze(2).unsqueeze(3)

    def reverse(self, output):
        weight = self.calc_weight()

        return F.conv2d(output, weight.squeeze().inverse().unsqueeze(2).unsqueeze(3))


class MaskedLinear(nn.Linear):
    """ same as Linear except has a configurable mask on the weights (karpathy/pytorch-made) """

    def __init__(self, in_features, out_features, bias=True):
        super().__init__(in_features, out_features, bias)
        self.register_buffer('mask', torch.ones(out_features, in_features))

    def set_mask(self, mask):
        self.mask.data.copy_(torch.from_numpy(mask.astype(np.uint8).T))

    def forward(self, input):
        return F.linear(input, self.mask * self.weight, self.bias)


class MADE(nn.Module):
    def __init__(self, nin, hidden, nout):
        super().__init__()
        self.net = nn.Sequential(MaskedLinear(nin, hidden), nn.ReLU(), MaskedLinear(hidden, nout))
        rng = np.random.RandomState(0)
        m0, m1 = np.arange(nin), rng.randint(0, nin - 1, size=hidden)
        self.net[0].set_mask(m0[:, None] <= m1[None, :])
        out = m1[:, None] < m0[None, :]
        self.net[2].set_mask(np.concatenate([out] * (nout // nin), axis=1))

    def forward(self, x):
        return self.net(x)


class MAF(nn.Module):
    """ Masked Autoregressive Flow that uses a MADE-style network for fast forward (karpathy/pytorch-normalizing-flows) """

    def __init__(self, dim, parity):
        super().__init__()
        self.dim = dim
        self.net = MADE(dim, 12, dim * 2)
        self.parity = parity

    def forward(self, x):
        # here we see that we are evaluating all of z in parallel, so density estimation will be fast
        st = self.net(x)
        s, t = st.split(self.dim, dim=1)
        z = x * torch.exp(s) + t
        # reverse order, so if we stack MAFs correct things happen
        z = z.flip(dims=(1,)) if self.parity else z
        log_det = torch.sum(s, dim=1)
        return z, log_det

    def backward(self, z):
        # we have to decode the x one at a time, sequentially
        x = torch.zeros_like(z)
        log_det = torch.zeros(z.size(0))
        z = z.flip(dims=(1,)) if self.parity else z
        for i in range(self.dim):
            st = self.net(x.clone()) # clone to avoid in-place op errors if using IAF
            s, t = st.split(self.dim, dim=1)
            x[:, i] = (z[:, i] - t[:, i]) * torch.exp(-s[:, i])
            log_det += -s[:, i]
        return x, log_det


class PlanarFlow(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.Tensor(1, dim))
        self.bias = nn.Parameter(torch.Tensor(1))
        self.scale = nn.Parameter(torch.Tensor(1, dim))
        self.tanh = nn.Tanh()
        for p in (self.weight, self.scale, self.bias):
            p.data.uniform_(-0.5, 0.5)

    def forward(self, z):
        activation = F.linear(z, self.weight, self.bias)
        psi = (1 - self.tanh(activation) ** 2) * self.weight
        log_det = torch.log((1 + torch.mm(psi, self.scale.t())).abs() + 1e-7)
        return z + self.scale * self.tanh(activation), log_det.squeeze(1)


def program():
    nets = lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2), nn.Tanh())
    nett = lambda: nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(), nn.Linear(16, 2))
    masks = torch.from_numpy(np.array([[0, 1], [1, 0]] * 2).astype(np.float32))
    prior = distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    flow = RealNVP(nets, nett, masks, prior)
    yield "initial", flow
    optimizer = torch.optim.Adam([p for p in flow.parameters() if p.requires_grad == True], lr=1e-4)
    moons = np.random.RandomState(0).randn(20, 2).astype(np.float32)
    for t in range(2):
        loss = -flow.log_prob(torch.from_numpy(moons)).mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        print('iter %s:' % t, 'loss = %.3f' % loss)
    yield "gradients", flow
    with torch.no_grad():
        yield "samples", flow.sample(5)

    images = torch.rand(2, 6, 4, 4)
    actnorm, conv = ActNorm(6), InvConv2dLU(6)
    out, first = actnorm(images)
    out, second = conv(out)
    loss = 0.5 * out.pow(2).sum() - first - second
    loss.backward()
    yield "glow", [actnorm.scale.grad, actnorm.state_dict(), out, first, second, conv.w_l.grad, conv.w_s.grad, conv.w_u.grad]
    print(torch.allclose(conv.reverse(out), actnorm(images)[0], atol=1e-4))

    chain = nn.ModuleList([MAF(3, parity=i % 2) for i in range(2)])
    x, log_det = torch.randn(8, 3), torch.zeros(8)
    z = x
    for layer in chain:
        z, ld = layer(z)
        log_det += ld
    loss = -(distributions.Normal(0., 1.).log_prob(z).sum(1) + log_det).mean()
    loss.backward()
    yield "maf", chain
    with torch.no_grad():
        back = z
        for layer in reversed(chain):
            back, ld = layer.backward(back)
    yield "inverse", back
    print(torch.allclose(back, x, atol=1e-4))

    planar = nn.ModuleList([PlanarFlow(2) for _ in range(3)])
    z, total = torch.randn(10, 2), 0
    for layer in planar:
        z, ld = layer(z)
        total = total + ld
    (z.pow(2).sum(1) - total).mean().backward()
    yield "planar", planar
