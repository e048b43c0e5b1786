import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class GradReverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lambd):
        ctx.lambd = lambd
        return x.view_as(x)
    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.lambd, None


class STE(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        return w.sign()
    @staticmethod
    def backward(ctx, g):
        return g.clamp_(-1, 1)


class Binary(nn.Conv2d):
    def forward(self, x):
        if not hasattr(self.weight, 'org'):
            self.weight.org = self.weight.data.clone()
        self.weight.data = self.weight.org.sign()
        return super().forward(x)


class ConvLSTMCell(nn.Module):
    def __init__(self, i, h):
        super().__init__()
        self.h = h
        self.conv = nn.Conv2d(i + h, 4 * h, 3, padding=1)
    def forward(self, x, state):
        h, c = state
        i, f, o, g = torch.split(self.conv(torch.cat([x, h], dim=1)), self.h, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    def init_hidden(self, b, size):
        return tuple(torch.zeros(b, self.h, *size, device=self.conv.weight.device) for _ in range(2))


class Memory(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.register_buffer('slots', F.normalize(torch.randn(n, d)))
        self.register_buffer('age', torch.zeros(n))
    def forward(self, q, y=None):
        q = F.normalize(q)
        sim = q @ self.slots.clone().t()
        if self.training:
            with torch.no_grad():
                nearest = sim.argmax(1)
                self.age += 1
                self.age[nearest] = 0
                self.slots[nearest] = F.normalize((self.slots[nearest] + q) / 2)
                oldest = (self.age + torch.arange(10) * 1e-3).topk(2).indices
                self.slots[oldest] = q[:2]
        return sim


class UNetSkip(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(c, 2 * c, 3, 2, 1) for c in (2, 4))
        self.up = nn.ModuleList([nn.ConvTranspose2d(8, 4, 2, 2), nn.ConvTranspose2d(8, 2, 2, 2)])
        self.norms = nn.ModuleList([nn.GroupNorm(1, 4), nn.GroupNorm(1, 8)])
    def forward(self, x):
        skips = []
        for conv, norm in zip(self.down, self.norms):
            skips.append(x)
            x = checkpoint(lambda t, c=conv, n=norm: F.silu(n(c(t)), inplace=True), x, use_reentrant=False)
        for conv in self.up:
            x = conv(x)
            x = torch.cat((x, skips.pop()), 1) if len(skips) > 1 else x + skips.pop()
        return x


def program():
    x = torch.rand(3, 2, 8, 8)
    net = UNetSkip()
    for i in range(2):
        loss = net(x).pow(2).mean()
        grads = torch.autograd.grad(loss, net.parameters(), create_graph=True)
        penalty = sum(g.pow(2).sum() for g in grads)
        (loss + .1 * penalty).backward()
        yield 'gradients of the penalty', net
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.1 * p.grad
                p.grad = None
        yield 'meta', (loss, penalty)
    cell = ConvLSTMCell(2, 3)
    state = cell.init_hidden(3, (8, 8))
    opt = torch.optim.Adam(cell.parameters(), lr=1e-2)
    for t in range(5):
        h, c = cell(x * t, state)
        state = (h, c)
        loss = F.mse_loss(h.mean(1), x[:, 0])
        if t % 2:
            opt.zero_grad(); loss.backward(); opt.step()
            for s in state:
                s.detach_()
        yield 'conv lstm', loss
    m = nn.Sequential(nn.Flatten(), nn.Linear(128, 6), Memory(10, 6))
    for _ in range(3):
        sim = m(x)
        F.cross_entropy(sim / .1, torch.tensor([0, 1, 2])).backward()
    yield 'memory', m
    feats = nn.Linear(128, 4)
    f = feats(x.flatten(1))
    d = GradReverse.apply(f, 0.3)
    (d.sum() + STE.apply(f).mul(torch.arange(4.)).sum()).backward()
    yield 'reversed', feats
    b = Binary(2, 3, 3)
    opt = torch.optim.SGD(b.parameters(), .1)
    for _ in range(3):
        loss = b(x).tanh().mean()
        opt.zero_grad(); loss.backward()
        for p in b.parameters():
            if hasattr(p, 'org'):
                p.data.copy_(p.org)
        opt.step()
        for p in b.parameters():
            if hasattr(p, 'org'):
                p.org.copy_(p.data.clamp_(-1, 1))
        yield 'binary', loss
    yield 'binary weights', b.weight.org
    seq = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)])
    inp = torch.rand(2, 8, requires_grad=True)
    checkpoint_sequential(seq, 2, inp, use_reentrant=False).sum().backward()
    yield 'sequential', (seq, inp.grad)
    mem = torch.zeros(4, 8)
    for t in range(4):
        mem = mem.detach()
        mem[t % 4] = seq(inp)[0]
    seq.zero_grad()
    mem.pow(2).sum().backward()
    yield 'detached memory', seq
    w = torch.rand(3, requires_grad=True)
    bufs = [torch.zeros(3) for _ in range(2)]
    for b_ in bufs:
        b_ += w * 2
        b_.mul_(b_.detach().clone()).clamp_(max=1.)
    torch.stack(bufs).sum().backward()
    yield 'accumulated', w.grad
    img = torch.rand(1, 3, 6, 6)
    img.requires_grad_()
    opt = torch.optim.LBFGS([img], max_iter=4, line_search_fn='strong_wolfe')
    def closure():
        opt.zero_grad()
        l = (F.avg_pool2d(img, 2) - .3).pow(2).sum() + (img[..., 1:] - img[..., :-1]).abs().mean()
        l.backward()
        return l
    yield 'lbfgs', [opt.step(closure) for _ in range(2)]
