"""Small classics as people write them: linear regression by L-BFGS, logistic regression (on scikit-learn's data if it is there), matrix
factorisation, k-means, PCA by svd, SOM, RBM with contrastive divergence, Hopfield network, t-SNE's gradient, Sinkhorn distances."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable


def lbfgs_regression():
    X = torch.randn(50, 3, dtype=torch.float64)
    y = X @ torch.tensor([[1.0], [-2.0], [0.5]], dtype=torch.float64) + 0.1 * torch.randn(50, 1, dtype=torch.float64)
    model = nn.Linear(3, 1).double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1, max_iter=20)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(X), y)
        loss.backward()
        return loss

    print("lbfgs %.8f" % optimizer.step(closure).item())
    yield "regression", model
    solution = torch.linalg.lstsq(torch.cat([X, torch.ones(50, 1)], 1), y).solution
    yield "least squares", solution


def logistic():
    try:
        from sklearn.datasets import load_breast_cancer
        X, y = load_breast_cancer(return_X_y=True)
        X, y = X[:120, :10], y[:120]
    except ImportError:
        rng = np.random.RandomState(0)
        X = rng.randn(120, 10) * 3 + 1
        y = (X @ rng.randn(10) > 0.5).astype(int)
    X = (X - X.mean(0)) / X.std(0)
    X, y = torch.from_numpy(X.astype(np.float32)), torch.from_numpy(y.astype(np.float32)).view(-1, 1)
    model = nn.Sequential(nn.Linear(10, 1), nn.Sigmoid())
    criterion, optimizer = nn.BCELoss(), torch.optim.SGD(model.parameters(), lr=0.1, nesterov=True, momentum=0.9)
    dataset = torch.utils.data.TensorDataset(X, y)
    for epoch in range(2):
        for inputs, targets in torch.utils.data.DataLoader(dataset, batch_size=40, shuffle=True):
            loss = criterion(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            accuracy = model(X).round().eq(y).sum() / float(y.shape[0])
        print(f'epoch: {epoch+1}, loss = {loss.item():.4f}, accuracy = {accuracy.item():.4f}')
    yield "logistic", model


class MatrixFactorization(torch.nn.Module):
    def __init__(self, n_users, n_items, n_factors=5):
        super().__init__()
        self.user_factors = torch.nn.Embedding(n_users, n_factors, sparse=True)
        self.item_factors = torch.nn.Embedding(n_items, n_factors, sparse=True)
        self.user_biases = torch.nn.Embedding(n_users, 1, sparse=True)
        self.item_biases = torch.nn.Embedding(n_items, 1, sparse=True)

    def forward(self, user, item):
        pred = self.user_biases(user) + self.item_biases(item)
        pred += (self.user_factors(user) * self.item_factors(item)).sum(dim=1, keepdim=True)
        return pred.squeeze()


def factorisation():
    ratings = np.random.RandomState(3).rand(8, 6) * (np.random.RandomState(4).rand(8, 6) < 0.5)
    model = MatrixFactorization(8, 6)
    loss_func = torch.nn.MSELoss()
    for optimizer in (torch.optim.SparseAdam(model.parameters(), lr=1e-2), torch.optim.SGD(model.parameters(), lr=1e-2)):
        rows, cols = ratings.nonzero()
        p = np.random.permutation(len(rows))
        rows, cols = rows[p], cols[p]
        for row, col in zip(*(rows[:6], cols[:6])):
            optimizer.zero_grad()
            rating = torch.FloatTensor([ratings[row, col]])
            row = torch.LongTensor([row])
            col = torch.LongTensor([col])
            prediction = model(row, col)
            loss = loss_func(prediction.unsqueeze(0), rating)
            loss.backward()
            optimizer.step()
        print("factorisation %.4f" % loss.item())
    yield "factors", model


def kmeans(x, k=3, iterations=5):
    centers = x[torch.randperm(x.size(0))[:k]].clone()
    for _ in range(iterations):
        labels = torch.cdist(x, centers).argmin(dim=1)
        total = torch.zeros_like(centers).index_add_(0, labels, x)
        count = torch.bincount(labels, minlength=k).type_as(x).view(k, 1)
        centers = total / count.clamp(min=1)
    return labels, centers


def pca(x, k=2):
    x = x - x.mean(0, keepdim=True)
    u, s, v = torch.svd(x)
    sign = torch.sign(v[0])
    return x @ (v * sign)[:, :k], s


class SOM(nn.Module):
    """Self-organising map (github.com/giannisnik/som)."""

    def __init__(self, m, n, dim, niter, alpha=0.3, sigma=None):
        super(SOM, self).__init__()
        self.m, self.n, self.dim, self.niter, self.alpha = m, n, dim, niter, alpha
        self.sigma = max(m, n) / 2.0 if sigma is None else float(sigma)
        self.weights = torch.randn(m*n, dim)
        self.locations = torch.LongTensor(np.array(list(self.neuron_locations())))
        self.pdist = nn.PairwiseDistance(p=2)

    def neuron_locations(self):
        for i in range(self.m):
            for j in range(self.n):
                yield np.array([i, j])

    def forward(self, x, it):
        dists = self.pdist(torch.stack([x for i in range(self.m*self.n)]), self.weights)
        _, bmu_index = torch.min(dists, 0)
        bmu_loc = self.locations[bmu_index,:]
        bmu_loc = bmu_loc.squeeze()

        learning_rate_op = 1.0 - it/self.niter
        alpha_op = self.alpha * learning_rate_op
        sigma_op = self.sigma * learning_rate_op

        bmu_distance_squares = torch.sum(torch.pow(self.locations.float() - torch.stack([bmu_loc for i in range(self.m*self.n)]).float(), 2), 1)

        neighbourhood_func = torch.exp(torch.neg(torch.div(bmu_distance_squares, sigma_op**2)))

        learning_rate_op = alpha_op * neighbourhood_func

        learning_rate_multiplier = torch.stack([learning_rate_op[i:i+1].repeat(self.dim) for i in range(self.m*self.n)])
        delta = torch.mul(learning_rate_multiplier, (torch.stack([x for i in range(self.m*self.n)]) - self.weights))
        new_weights = torch.add(self.weights, delta)
        self.weights = new_weights


class RBM(nn.Module):
    """github.com/odie2630463/Restricted-Boltzmann-Machines-in-pytorch."""

    def __init__(self, n_vis=12, n_hin=8, k=2):
        super(RBM, self).__init__()
        self.W = nn.Parameter(torch.randn(n_hin,n_vis)*1e-2)
        self.v_bias = nn.Parameter(torch.zeros(n_vis))
        self.h_bias = nn.Parameter(torch.zeros(n_hin))
        self.k = k

    def sample_from_p(self,p):
        return F.relu(torch.sign(p - Variable(torch.rand(p.size()))))

    def v_to_h(self,v):
        p_h = torch.sigmoid(F.linear(v,self.W,self.h_bias))
        sample_h = self.sample_from_p(p_h)
        return p_h,sample_h

    def h_to_v(self,h):
        p_v = torch.sigmoid(F.linear(h,self.W.t(),self.v_bias))
        sample_v = self.sample_from_p(p_v)
        return p_v,sample_v

    def forward(self,v):
        pre_h1,h1 = self.v_to_h(v)
        h_ = h1
        for _ in range(self.k):
            pre_v_,v_ = self.h_to_v(h_)
            pre_h_,h_ = self.v_to_h(v_)
        return v,v_

    def free_energy(self,v):
        vbias_term = v.mv(self.v_bias)
        wx_b = F.linear(v,self.W,self.h_bias)
        hidden_term = wx_b.exp().add(1).log().sum(1)
        return (-hidden_term - vbias_term).mean()


def hopfield(patterns, probe, steps=3):
    n = patterns.size(1)
    W = (patterns.t() @ patterns) / n
    W.fill_diagonal_(0)
    s = probe.clone()
    energies = []
    for _ in range(steps):
        for i in torch.randperm(n):
            s[i] = 1.0 if torch.dot(W[i], s) >= 0 else -1.0
        energies.append((-0.5 * s @ W @ s).item())
    return s, energies


def tsne(X, steps=3):
    n = X.size(0)
    D = torch.cdist(X, X) ** 2
    P = torch.exp(-D / 2)
    P.fill_diagonal_(0)
    P = P / P.sum(1, keepdim=True)
    P = torch.maximum((P + P.t()) / (2 * n), torch.tensor(1e-12))
    Y = (torch.randn(n, 2) * 1e-1).requires_grad_()
    for _ in range(steps):
        num = 1 / (1 + torch.cdist(Y, Y).pow(2))
        num = num * (1 - torch.eye(n))
        Q = torch.clamp(num / num.sum(), min=1e-12)
        loss = torch.sum(P * torch.log(P / Q))
        grad, = torch.autograd.grad(loss, Y)
        # the formula of van der Maaten and Hinton
        PQ = (P - Q) * num
        by_hand = 4 * (torch.diag(PQ.sum(1)) - PQ) @ Y
        assert torch.allclose(grad, by_hand, atol=1e-4), (grad - by_hand).abs().max()
        with torch.no_grad():
            Y -= 10 * grad
    return Y


class SinkhornDistance(nn.Module):
    """github.com/dfdazac/wassdistance."""

    def __init__(self, eps, max_iter):
        super().__init__()
        self.eps = eps
        self.max_iter = max_iter

    def forward(self, x, y):
        C = torch.sum((torch.abs(x.unsqueeze(-2) - y.unsqueeze(-3))) ** 2, -1)
        mu = torch.empty(x.shape[0], x.shape[1], dtype=torch.float, requires_grad=False).fill_(1.0 / x.shape[1])
        nu = torch.empty(x.shape[0], y.shape[1], dtype=torch.float, requires_grad=False).fill_(1.0 / y.shape[1])
        u, v = torch.zeros_like(mu), torch.zeros_like(nu)
        actual_nits = 0
        for i in range(self.max_iter):
            u1 = u
            u = self.eps * (torch.log(mu+1e-8) - torch.logsumexp(self.M(C, u, v), dim=-1)) + u
            v = self.eps * (torch.log(nu+1e-8) - torch.logsumexp(self.M(C, u, v).transpose(-2, -1), dim=-1)) + v
            err = (u - u1).abs().sum(-1).mean()
            actual_nits += 1
            if err.item() < 1e-1:
                break
        pi = torch.exp(self.M(C, u, v))
        cost = torch.sum(pi * C, dim=(-2, -1))
        return cost, pi, actual_nits

    def M(self, C, u, v):
        return (-C + u.unsqueeze(-1) + v.unsqueeze(-2)) / self.eps


def program():
    yield from lbfgs_regression()
    yield from logistic()
    yield from factorisation()
    points = torch.cat([torch.randn(10, 4) + 4 * i for i in range(3)])
    yield "clusters", list(kmeans(points))
    yield "components", list(pca(points))

    som = SOM(3, 2, 3, 4)
    colours = torch.rand(5, 3)
    for it in range(3):
        for c in colours:
            som(c, it)
    yield "map", som.weights

    rbm = RBM()
    train_op = torch.optim.SGD(rbm.parameters(), 0.1)
    data = torch.bernoulli(torch.full((10, 12), 0.3))
    for epoch in range(3):
        v, v1 = rbm(data)
        loss = rbm.free_energy(v) - rbm.free_energy(v1)
        train_op.zero_grad()
        loss.backward()
        train_op.step()
        print("rbm %.4f" % loss.item())
    yield "rbm", rbm

    patterns = torch.sign(torch.randn(2, 16))
    probe = patterns[0].clone()
    probe[:4] *= -1
    yield "hopfield", list(hopfield(patterns, probe))
    yield "tsne", tsne(points)

    x, y = torch.rand(2, 6, 2, requires_grad=True), torch.rand(2, 5, 2)
    cost, pi, n = SinkhornDistance(eps=0.1, max_iter=20)(x, y)
    cost.sum().backward()
    print("sinkhorn iterations", n)
    yield "sinkhorn", [cost, pi, x.grad]
