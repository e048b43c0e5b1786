"""The style of Dive into Deep Learning: linear regression from scratch, synthetic data, softmax regression, weight decay, a module that
initialises itself, saving and loading; and of fast.ai's notebooks: DataBunch, callbacks, hooks that record means and deviations."""

import inspect
import random
import re
from functools import partial

import numpy as np
import torch
from torch import nn, tensor
from torch.nn import functional as F
from torch.utils import data


def synthetic_data(w, b, num_examples):
    """Generate y = Xw + b + noise."""
    X = torch.normal(0, 1, (num_examples, len(w)))
    y = torch.matmul(X, w) + b
    y += torch.normal(0, 0.01, y.shape)
    return X, y.reshape((-1, 1))


def data_iter(batch_size, features, labels):
    num_examples = len(features)
    indices = list(range(num_examples))
    # The examples are read at random, in no particular order
    random.shuffle(indices)
    for i in range(0, num_examples, batch_size):
        batch_indices = torch.tensor(indices[i:min(i + batch_size, num_examples)])
        yield features[batch_indices], labels[batch_indices]


def linreg(X, w, b):
    """The linear regression model."""
    return torch.matmul(X, w) + b


def squared_loss(y_hat, y):
    """Squared loss."""
    return (y_hat - y.reshape(y_hat.shape)) ** 2 / 2


def sgd(params, lr, batch_size):
    """Minibatch stochastic gradient descent."""
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


def from_scratch():
    true_w = torch.tensor([2, -3.4])
    true_b = 4.2
    features, labels = synthetic_data(true_w, true_b, 60)
    print('features:', features[0], '\nlabel:', labels[0])
    w = torch.normal(0, 0.01, size=(2,1), requires_grad=True)
    b = torch.zeros(1, requires_grad=True)
    lr, num_epochs, net, loss = 0.03, 2, linreg, squared_loss
    for epoch in range(num_epochs):
        for X, y in data_iter(20, features, labels):
            l = loss(net(X, w, b), y)  # Minibatch loss in X and y
            # Compute gradient on l with respect to [w, b]
            l.sum().backward()
            sgd([w, b], lr, 20)  # Update parameters using their gradient
        with torch.no_grad():
            train_l = loss(net(features, w, b), labels)
            print(f'epoch {epoch + 1}, loss {float(train_l.mean()):f}')
    print(f'error in estimating w: {true_w - w.reshape(true_w.shape)}')
    print(f'error in estimating b: {(true_b - b).detach()}')


def concise():
    X, y = synthetic_data(torch.tensor([2, -3.4]), 4.2, 40)
    net = nn.Sequential(nn.LazyLinear(1))
    data_loader = data.DataLoader(data.TensorDataset(*(X, y)), 10, shuffle=True)
    next(iter(data_loader))
    net(X)
    net[0].weight.data.normal_(0, 0.01)
    net[0].bias.data.fill_(0)
    trainer = torch.optim.SGD([{"params": net[0].weight, 'weight_decay': 0.1}, {"params": net[0].bias}], lr=0.03)
    for epoch in range(2):
        for xb, yb in data_loader:
            l = nn.MSELoss(reduction='none')(net(xb), yb)
            trainer.zero_grad()
            l.mean().backward()
            trainer.step()
        print('w的L2范数：', net[0].weight.norm().item())


def preliminaries():
    """Chapter 2: the results are printed as the notebooks show them."""
    x = torch.arange(12)
    X = x.reshape(3, 4)
    print(x.numel(), x.shape, X, torch.zeros((2, 3, 4)), torch.tensor([[2, 1, 4, 3], [1, 2, 3, 4], [4, 3, 2, 1]]))
    x = torch.tensor([1.0, 2, 4, 8])
    y = torch.tensor([2, 2, 2, 2])
    print(x + y, x - y, x * y, x / y, x ** y, torch.exp(x))
    X = torch.arange(12, dtype=torch.float32).reshape((3,4))
    Y = torch.tensor([[2.0, 1, 4, 3], [1, 2, 3, 4], [4, 3, 2, 1]])
    print(torch.cat((X, Y), dim=0), torch.cat((X, Y), dim=1), X == Y, X.sum())
    a = torch.arange(3).reshape((3, 1))
    b = torch.arange(2).reshape((1, 2))
    print(a + b, X[-1], X[1:3])
    X[1, 2] = 9
    X[0:2, :] = 12
    before = id(Y)
    Y = Y + X
    print(id(Y) == before, X)
    A = X.numpy()
    B = torch.tensor(A)
    print(type(A).__name__, a.sum().item(), float(torch.tensor([3.5])), int(torch.tensor([3.5])), B)
    A = torch.arange(20, dtype=torch.float32).reshape(5, 4)
    print(A.T, A.sum(axis=0), A.sum(axis=[0, 1]), A.mean(axis=0), A.sum(axis=1, keepdims=True), A.cumsum(axis=0), A / A.sum(axis=1, keepdims=True))
    u = torch.tensor([3.0, -4.0])
    print(torch.norm(u), torch.abs(u).sum(), torch.mv(A, torch.arange(4.0)), torch.norm(torch.ones((4, 9))))
    x = torch.arange(4.0, requires_grad=True)
    y = 2 * torch.dot(x, x)
    y.backward()
    print(x.grad, x.grad == 4 * x)
    x.grad.zero_()
    y = x * x
    u = y.detach()
    z = u * x
    z.sum().backward()
    print(x.grad == u)

    def f(a):
        b = a * 2
        while b.norm() < 1000:
            b = b * 2
        if b.sum() > 0:
            c = b
        else:
            c = 100 * b
        return c

    a = torch.tensor(0.7, requires_grad=True)
    d = f(a)
    d.backward()
    print(a.grad == d / a)
    fair_probs = torch.ones([6]) / 6
    counts = torch.distributions.multinomial.Multinomial(10, fair_probs).sample((500,))
    cum_counts = counts.cumsum(dim=0)
    estimates = cum_counts / cum_counts.sum(dim=1, keepdims=True)
    print(estimates.shape, [n for n in dir(torch.distributions) if n in ("Normal", "Categorical", "Multinomial")])


class MySequential(nn.Module):
    def __init__(self, *args):
        super().__init__()
        for idx, module in enumerate(args):
            self._modules[str(idx)] = module

    def forward(self, X):
        for block in self._modules.values():
            X = block(X)
        return X


class FixedHiddenMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.rand_weight = torch.rand((20, 20), requires_grad=False)
        self.linear = nn.Linear(20, 20)

    def forward(self, X):
        X = self.linear(X)
        X = F.relu(torch.mm(X, self.rand_weight) + 1)
        X = self.linear(X)
        while X.abs().sum() > 1:
            X /= 2
        return X.sum()


def builders():
    net = MySequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 20), FixedHiddenMLP())
    X = torch.rand(2, 20)
    print(net(X), net)
    shared = nn.Linear(8, 8)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(8, 1))
    net(torch.rand(2, 4))
    print(net[2].weight.data[0] == net[4].weight.data[0])
    net[2].weight.data[0, 0] = 100
    print(net[2].weight.data[0] == net[4].weight.data[0])

    def my_init(m):
        if type(m) == nn.Linear:
            print("Init", *[(name, param.shape) for name, param in m.named_parameters()][0])
            nn.init.uniform_(m.weight, -10, 10)
            m.weight.data *= m.weight.data.abs() >= 5

    net.apply(my_init)
    print(net[0].weight[:2])
    x, y = torch.arange(4), torch.zeros(4)
    torch.save([x, y], 'x-files')
    mydict = {'x': x, 'y': y}
    torch.save(mydict, 'mydict')
    print(torch.load('x-files'), torch.load('mydict'))
    torch.save(net.state_dict(), 'mlp.params')
    clone = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(8, 1))
    clone.load_state_dict(torch.load('mlp.params'))
    clone.eval()
    print((clone(torch.ones(1, 4)) == net(torch.ones(1, 4))).all())


# -- fast.ai -----------------------------------------------------------------------------------------------------------
_camel_re1 = re.compile('(.)([A-Z][a-z]+)')


def listify(o):
    if o is None: return []
    if isinstance(o, list): return o
    if isinstance(o, str): return [o]
    return list(o) if hasattr(o, '__iter__') else [o]


def get_data(): return torch.randn(64, 12), torch.randint(0, 4, (64,))


def normalize(x, m, s): return (x-m)/s


class Dataset():
    def __init__(self, x, y): self.x,self.y = x,y
    def __len__(self): return len(self.x)
    def __getitem__(self, i): return self.x[i],self.y[i]


class Hook():
    def __init__(self, m, f): self.hook = m.register_forward_hook(partial(f, self))
    def remove(self): self.hook.remove()
    def __del__(self): self.remove()


def append_stats(hook, mod, inp, outp):
    if not hasattr(hook,'stats'): hook.stats = ([],[])
    means,stds = hook.stats
    means.append(outp.data.mean().cpu())
    stds .append(outp.data.std().cpu())


class Hooks(list):
    def __init__(self, ms, f): super().__init__([Hook(m, f) for m in ms])
    def __enter__(self, *args): return self
    def __exit__ (self, *args): self.remove()
    def remove(self):
        for h in self: h.remove()


class GeneralRelu(nn.Module):
    def __init__(self, leak=None, sub=None, maxv=None):
        super().__init__()
        self.leak,self.sub,self.maxv = leak,sub,maxv

    def forward(self, x):
        x = F.leaky_relu(x,self.leak) if self.leak is not None else F.relu(x)
        if self.sub is not None: x.sub_(self.sub)
        if self.maxv is not None: x.clamp_max_(self.maxv)
        return x


def combine_scheds(pcts, scheds):
    assert sum(pcts) == 1.
    pcts = tensor([0] + listify(pcts))
    assert torch.all(pcts >= 0)
    pcts = torch.cumsum(pcts, 0)
    def _inner(pos):
        idx = (pos >= pcts).nonzero().max()
        actual_pos = (pos-pcts[idx]) / (pcts[idx+1]-pcts[idx])
        return scheds[idx](actual_pos)
    return _inner


def fastai():
    x_train, y_train = get_data()
    m, s = x_train.mean(), x_train.std()
    x_train = normalize(x_train, m, s)
    model = nn.Sequential(nn.Linear(12, 16), GeneralRelu(leak=0.1, sub=0.4, maxv=6.), nn.Linear(16, 4))
    for l in model:
        if isinstance(l, nn.Linear): nn.init.kaiming_normal_(l.weight, a=0.1); l.bias.data.zero_()
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    sched = combine_scheds([0.3, 0.7], [lambda pos: 0.1 + 0.4 * pos, lambda pos: 0.5 * (1 - pos)])
    dl = data.DataLoader(Dataset(x_train, y_train), 16, shuffle=False)
    with Hooks(model, append_stats) as hooks:
        for i, (xb, yb) in enumerate(dl):
            for pg in opt.param_groups: pg['lr'] = float(sched(i / len(dl)))
            loss = F.cross_entropy(model(xb), yb)
            loss.backward()
            with torch.no_grad():
                for p in model.parameters(): p -= p.grad * pg['lr']
                model.zero_grad()
            print(f"{loss.item():.4f}", f"{pg['lr']:.3f}", tensor((torch.argmax(model(xb), dim=1)==yb).float().mean()))
        for h in hooks: print([f"{v:.3f}" for v in h.stats[0]], [f"{v:.3f}" for v in h.stats[1]])


if __name__ == "__main__":
    torch.set_printoptions(2, sci_mode=False)
    torch.manual_seed(42)
    random.seed(0)
    preliminaries()
    from_scratch()
    concise()
    builders()
    fastai()
