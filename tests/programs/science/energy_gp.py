"""Energy-based model with Langevin samples (after Nijkamp et al., 2019), exact Gaussian process by Cholesky, Bayesian linear regression by
reparametrisation (Blundell et al., 2015)."""

import math

import torch as t
import torch
import torch.nn as nn
import torch.nn.functional as F


class EBM(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(1, 4, 3, 1, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(4, 8, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(8, 1, 4, 1, 0))

    def forward(self, x):
        return self.f(x).squeeze()


def sample_langevin(f, x_s, steps, step_size, noise):
    x_k = torch.autograd.Variable(x_s.clone(), requires_grad=True)
    for k in range(steps):
        f_prime = torch.autograd.grad(f(x_k).sum(), [x_k], retain_graph=True)[0]
        x_k.data += -step_size * f_prime + noise * t.randn_like(x_k)
    return x_k.detach()


def energy_based():
    f = EBM()
    yield "initial", f
    optim = t.optim.Adam(f.parameters(), lr=1e-4, betas=[.9, .999])
    data = t.rand(4, 1, 8, 8) * 2 - 1
    for i in range(2):
        x_p_d = data + 1e-2 * t.randn_like(data)
        x_q = sample_langevin(f, t.rand_like(data) * 2 - 1, 5, 0.1, 1e-2)
        L = f(x_p_d).mean() - f(x_q).mean()
        optim.zero_grad()
        (-L).backward()
        if i == 0:
            yield "energy gradients", f
        optim.step()
        print('{:>6d} f(x_p_d)={:>10.6f} f(x_q)={:>10.6f}'.format(i, f(x_p_d).mean(), f(x_q).mean()))
    yield "langevin", x_q


class GP(nn.Module):
    def __init__(self, length_scale=1.0, noise_scale=1.0, amplitude_scale=1.0):
        super().__init__()
        self.length_scale_ = nn.Parameter(torch.tensor(math.log(length_scale)))
        self.noise_scale_ = nn.Parameter(torch.tensor(math.log(noise_scale)))
        self.amplitude_scale_ = nn.Parameter(torch.tensor(math.log(amplitude_scale)))

    @property
    def length_scale(self):
        return torch.exp(self.length_scale_)

    @property
    def noise_scale(self):
        return torch.exp(self.noise_scale_)

    @property
    def amplitude_scale(self):
        return torch.exp(self.amplitude_scale_)

    def forward(self, x):
        """compute prediction. fit() must have been called."""
        alpha = self.alpha
        k = self.kernel_mat(self.X, x)
        v = torch.linalg.solve_triangular(self.L, k, upper=False)
        mu = k.T.mm(alpha)
        var = self.amplitude_scale + self.noise_scale - torch.diag(v.T.mm(v))
        return mu, var

    def fit(self, X, y):
        """should be called before forward() call."""
        D = X.shape[1]
        K = self.kernel_mat_self(X)
        L = torch.linalg.cholesky(K)
        alpha = torch.cholesky_solve(y, L)
        marginal_likelihood = (
            -0.5 * y.T.mm(alpha) - torch.log(torch.diag(L)).sum() - D * 0.5 * math.log(2 * math.pi))
        self.X = X
        self.y = y
        self.L = L
        self.alpha = alpha
        self.K = K
        return marginal_likelihood

    def kernel_mat_self(self, X):
        sq = (X ** 2).sum(dim=1, keepdim=True)
        sqdist = sq + sq.T - 2 * X.mm(X.T)
        return self.amplitude_scale * torch.exp(-0.5 * sqdist / self.length_scale) + self.noise_scale * torch.eye(len(X))

    def kernel_mat(self, X, Z):
        Xsq = (X ** 2).sum(dim=1, keepdim=True)
        Zsq = (Z ** 2).sum(dim=1, keepdim=True)
        sqdist = Xsq + Zsq.T - 2 * X.mm(Z.T)
        return self.amplitude_scale * torch.exp(-0.5 * sqdist / self.length_scale)

    def train_step(self, X, y, opt):
        opt.zero_grad()
        nll = -self.fit(X, y).sum()
        nll.backward()
        opt.step()
        return nll.item()


def gaussian_process():
    X = torch.linspace(-2, 2, 12).view(-1, 1)
    y = torch.sin(2 * X) + 0.1 * torch.randn(12, 1)
    gp = GP(noise_scale=0.1)
    opt = torch.optim.Adam(gp.parameters(), lr=0.05)
    for step in range(3):
        print("nll %.4f" % gp.train_step(X, y, opt), ["%.4f" % p.item() for p in gp.parameters()])
    yield "likelihood gradients", [p.grad for p in gp.parameters()]
    yield "posterior", list(gp(torch.randn(5, 1)))
    posterior = torch.distributions.MultivariateNormal(torch.zeros(12), scale_tril=gp.L)
    yield "prior density", posterior.log_prob(y.squeeze())


class BayesLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.mu = nn.Parameter(torch.empty(out_features, in_features).normal_(0, 0.1))
        self.rho = nn.Parameter(torch.full((out_features, in_features), -3.0))
        self.register_buffer('prior_scale', torch.tensor(1.0))

    def forward(self, x):
        sigma = torch.log1p(torch.exp(self.rho))
        w = self.mu + sigma * torch.randn_like(self.mu)
        q = torch.distributions.Normal(self.mu, sigma)
        p = torch.distributions.Normal(torch.zeros_like(self.mu), self.prior_scale)
        self.kl = torch.distributions.kl_divergence(q, p).sum()
        return F.linear(x, w)


def bayesian():
    net = nn.Sequential(BayesLinear(3, 8), nn.Tanh(), BayesLinear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    for step in range(3):
        optimizer.zero_grad()
        likelihood = torch.distributions.Normal(net(x), 0.5).log_prob(y).sum()
        elbo = likelihood - sum(m.kl for m in net.modules() if isinstance(m, BayesLinear)) / 10
        (-elbo).backward()
        optimizer.step()
        print("elbo %.3f" % elbo)
    yield "bayes", net


def program():
    yield from energy_based()
    yield from gaussian_process()
    yield from bayesian()
