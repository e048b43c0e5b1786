"""Implicit layers: the deep equilibrium tutorial (implicit-layers-tutorial.org, chapter 4: Anderson acceleration, backward hook with a second
solve), a differentiable projection, gradient reversal, and a soft decision tree (Frosst and Hinton, 2017)."""

import torch
import torch.autograd as autograd
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.autograd import Function


class ResNetLayer(nn.Module):
    def __init__(self, n_channels, n_inner_channels, kernel_size=3, num_groups=4):
        super().__init__()
        self.conv1 = nn.Conv2d(n_channels, n_inner_channels, kernel_size, padding=kernel_size//2, bias=False)
        self.conv2 = nn.Conv2d(n_inner_channels, n_channels, kernel_size, padding=kernel_size//2, bias=False)
        self.norm1 = nn.GroupNorm(num_groups, n_inner_channels)
        self.norm2 = nn.GroupNorm(num_groups, n_channels)
        self.norm3 = nn.GroupNorm(num_groups, n_channels)
        self.conv1.weight.data.normal_(0, 0.01)
        self.conv2.weight.data.normal_(0, 0.01)

    def forward(self, z, x):
        y = self.norm1(F.relu(self.conv1(z)))
        return self.norm3(F.relu(z + self.norm2(x + self.conv2(y))))


def anderson(f, x0, m=5, lam=1e-4, max_iter=50, tol=1e-2, beta = 1.0):
    """ Anderson acceleration for fixed point iteration. """
    bsz, d, H, W = x0.shape
    X = torch.zeros(bsz, m, d*H*W, dtype=x0.dtype, device=x0.device)
    F = torch.zeros(bsz, m, d*H*W, dtype=x0.dtype, device=x0.device)
    X[:,0], F[:,0] = x0.view(bsz, -1), f(x0).view(bsz, -1)
    X[:,1], F[:,1] = F[:,0], f(F[:,0].view_as(x0)).view(bsz, -1)

    H = torch.zeros(bsz, m+1, m+1, dtype=x0.dtype, device=x0.device)
    H[:,0,1:] = H[:,1:,0] = 1
    y = torch.zeros(bsz, m+1, 1, dtype=x0.dtype, device=x0.device)
    y[:,0] = 1

    res = []
    for k in range(2, max_iter):
        n = min(k, m)
        G = F[:,:n]-X[:,:n]
        H[:,1:n+1,1:n+1] = torch.bmm(G,G.transpose(1,2)) + lam*torch.eye(n, dtype=x0.dtype,device=x0.device)[None]
        alpha = torch.linalg.solve(H[:,:n+1,:n+1], y[:,:n+1])[:, 1:n+1, 0]   # (bsz x n)

        X[:,k%m] = beta * (alpha[:,None] @ F[:,:n])[:,0] + (1-beta)*(alpha[:,None] @ X[:,:n])[:,0]
        F[:,k%m] = f(X[:,k%m].view_as(x0)).view(bsz, -1)
        res.append((F[:,k%m] - X[:,k%m]).norm().item()/(1e-5 + F[:,k%m].norm().item()))
        if (res[-1] < tol):
            break
    return X[:,k%m].view_as(x0), res


class DEQFixedPoint(nn.Module):
    def __init__(self, f, solver, **kwargs):
        super().__init__()
        self.f = f
        self.solver = solver
        self.kwargs = kwargs

    def forward(self, x):
        # compute forward pass and re-engage autograd tape
        with torch.no_grad():
            z, self.forward_res = self.solver(lambda z : self.f(z, x), torch.zeros_like(x), **self.kwargs)
        z = self.f(z,x)

        # set up Jacobian vector product (without additional forward calls)
        z0 = z.clone().detach().requires_grad_()
        f0 = self.f(z0,x)
        def backward_hook(grad):
            g, self.backward_res = self.solver(lambda y : autograd.grad(f0, z0, y, retain_graph=True)[0] + grad,
                                               grad, **self.kwargs)
            return g

        z.register_hook(backward_hook)
        return z


class NewtonSqrt(Function):
    """The implicit function theorem by hand: y with y^2 = x, found by Newton, differentiated at the solution."""

    @staticmethod
    def forward(ctx, x):
        y = torch.ones_like(x)
        for _ in range(20):
            y = y - (y * y - x) / (2 * y)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        y, = ctx.saved_tensors
        return grad_output / (2 * y)


class ReverseLayerF(Function):
    """github.com/fungtion/DANN."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha

        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        output = grad_output.neg() * ctx.alpha

        return output, None


class SDT(nn.Module):
    """A soft decision tree (github.com/xuyxu/Soft-Decision-Tree)."""

    def __init__(self, input_dim, output_dim, depth=3, lamda=1e-3):
        super(SDT, self).__init__()
        self.input_dim = input_dim
        self.output_dim = output_dim
        self.depth = depth
        self.lamda = lamda
        self.internal_node_num_ = 2 ** self.depth - 1
        self.leaf_node_num_ = 2 ** self.depth

        # Different penalty coefficients for nodes in different layers
        self.penalty_list = [
            self.lamda * (2 ** (-depth)) for depth in range(0, self.depth)
        ]

        # Initialize internal nodes and leaf nodes, the input dimension on
        # internal nodes is added by 1, serving as the bias.
        self.inner_nodes = nn.Sequential(
            nn.Linear(self.input_dim + 1, self.internal_node_num_, bias=False),
            nn.Sigmoid(),
        )

        self.leaf_nodes = nn.Linear(self.leaf_node_num_, self.output_dim, bias=False)

    def forward(self, X, is_training_data=False):
        _mu, _penalty = self._forward(X)
        y_pred = self.leaf_nodes(_mu)

        # When `X` is the training data, the model also returns the penalty
        # to compute the training loss.
        if is_training_data:
            return y_pred, _penalty
        else:
            return y_pred

    def _forward(self, X):
        """Implementation on the data forwarding process."""

        batch_size = X.size()[0]
        X = self._data_augment(X)

        path_prob = self.inner_nodes(X)
        path_prob = torch.unsqueeze(path_prob, dim=2)
        path_prob = torch.cat((path_prob, 1 - path_prob), dim=2)

        _mu = X.data.new(batch_size, 1, 1).fill_(1.0)
        _penalty = torch.tensor(0.0)

        # Iterate through internal odes in each layer to compute the final path
        # probabilities and the regularization term.
        begin_idx = 0
        end_idx = 1

        for layer_idx in range(0, self.depth):
            _path_prob = path_prob[:, begin_idx:end_idx, :]

            # Extract internal nodes in the current layer to compute the
            # regularization term
            _penalty = _penalty + self._cal_penalty(layer_idx, _mu, _path_prob)
            _mu = _mu.view(batch_size, -1, 1).repeat(1, 1, 2)

            _mu = _mu * _path_prob  # update path probabilities

            begin_idx = end_idx
            end_idx = begin_idx + 2 ** (layer_idx + 1)

        mu = _mu.view(batch_size, self.leaf_node_num_)

        return mu, _penalty

    def _cal_penalty(self, layer_idx, _mu, _path_prob):
        penalty = torch.tensor(0.0)

        batch_size = _mu.size()[0]
        _mu = _mu.view(batch_size, 2 ** layer_idx)
        _path_prob = _path_prob.view(batch_size, 2 ** (layer_idx + 1))

        for node in range(0, 2 ** (layer_idx + 1)):
            alpha = torch.sum(
                _path_prob[:, node] * _mu[:, node // 2], dim=0
            ) / torch.sum(_mu[:, node // 2], dim=0)

            coeff = self.penalty_list[layer_idx]

            penalty -= 0.5 * coeff * (torch.log(alpha) + torch.log(1 - alpha))

        return penalty

    def _data_augment(self, X):
        """Add a constant input `1` onto the front of each sample."""
        batch_size = X.size()[0]
        X = X.view(batch_size, -1)
        bias = torch.ones(batch_size, 1)
        X = torch.cat((bias, X), 1)

        return X


def program():
    chan = 8
    f = ResNetLayer(chan, 16, kernel_size=3)
    model = nn.Sequential(nn.Conv2d(3, chan, kernel_size=3, bias=True, padding=1),
                      nn.BatchNorm2d(chan),
                      DEQFixedPoint(f, anderson, tol=1e-2, max_iter=8, m=4),
                      nn.BatchNorm2d(chan),
                      nn.AvgPool2d(4,4),
                      nn.Flatten(),
                      nn.Linear(chan*2*2, 5))
    yield "initial", model
    opt = optim.Adam(model.parameters(), lr=1e-3)
    X, y = torch.randn(2, 3, 8, 8), torch.tensor([1, 3])
    yp = model(X)
    loss = nn.CrossEntropyLoss()(yp, y)
    opt.zero_grad()
    loss.backward()
    yield "output", [yp, loss]
    yield "gradients", {n: p.grad for n, p in model.named_parameters() if n not in ("0.bias", "2.f.norm3.bias")}
    opt.step()
    print("forward %d backward %d" % (len(model[2].forward_res), len(model[2].backward_res)))

    x = torch.tensor([2.0, 9.0, 0.5], requires_grad=True)
    root = NewtonSqrt.apply(x)
    root.sum().backward()
    yield "root", [root, x.grad]
    print(torch.autograd.gradcheck(NewtonSqrt.apply, torch.tensor([2.0, 3.0], dtype=torch.float64, requires_grad=True)))

    feature, label_head, domain_head = nn.Linear(4, 6), nn.Linear(6, 3), nn.Sequential(nn.Linear(6, 2), nn.LogSoftmax(dim=1))
    data = torch.randn(8, 4)
    h = F.relu(feature(data))
    loss = F.cross_entropy(label_head(h), torch.randint(3, (8,))) + nn.NLLLoss()(domain_head(ReverseLayerF.apply(h, 0.7)), torch.randint(2, (8,)))
    loss.backward()
    yield "reversal", [feature, domain_head]

    tree = SDT(4, 3)
    yield "initial tree", tree
    optimizer = torch.optim.Adam(tree.parameters(), lr=1e-2, weight_decay=5e-4)
    for _ in range(2):
        output, penalty = tree(data, is_training_data=True)
        loss = F.cross_entropy(output, torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]))
        loss += penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("tree %.5f" % loss.item())
    yield "tree", tree
