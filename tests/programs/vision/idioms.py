import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.utils import _pair, _quadruple
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.parameter import Parameter
from torch.utils.model_zoo import load_url as load_state_dict_from_url
from torch.hub import load_state_dict_from_url
from torch.autograd import Variable, Function, grad
from torch.nn.utils import spectral_norm, weight_norm, parameters_to_vector
from torch.nn.init import xavier_uniform_, _calculate_fan_in_and_fan_out
from torch.optim.lr_scheduler import _LRScheduler, OneCycleLR
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataset import random_split
from torch.utils.data.sampler import SubsetRandomSampler, WeightedRandomSampler
from torch import Tensor, nn, optim

class Conv2d(_ConvNd):
    def __init__(self, i, o, k):
        super().__init__(i, o, _pair(k), _pair(1), _pair(0), _pair(1), False, _pair(0), 1, True, 'zeros')
    def forward(self, x):
        w = self.weight
        m = w.view(w.size(0), -1).mean(1).view(-1, 1, 1, 1)
        w = w - m
        std = w.view(w.size(0), -1).std(dim=1).view(-1, 1, 1, 1) + 1e-5
        return F.conv2d(x, w / std.expand_as(w), self.bias, self.stride, self.padding, self.dilation, self.groups)

class CondBN(_BatchNorm):
    def _check_input_dim(self, input):
        if input.dim() != 4:
            raise ValueError('expected 4D input (got {}D input)'.format(input.dim()))

class Warm(_LRScheduler):
    def __init__(self, optimizer, n, last_epoch=-1):
        self.n = n
        super().__init__(optimizer, last_epoch)
    def get_lr(self):
        return [b * min(1, (self.last_epoch + 1) / self.n) for b in self.base_lrs]

class RAdamLike(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999)):
        super().__init__(params, dict(lr=lr, betas=betas))
    def __setstate__(self, state):
        super().__setstate__(state)
    def step(self, closure=None):
        loss = None
        if closure is not None:
            loss = closure()
        for group in self.param_groups:
            for p in group['params']:
                if p.grad is None:
                    continue
                g = p.grad.data.float()
                if g.is_sparse:
                    raise RuntimeError('no sparse')
                state = self.state[p]
                if len(state) == 0:
                    state['step'] = 0
                    state['exp_avg'] = torch.zeros_like(p.data.float())
                    state['exp_avg_sq'] = torch.zeros_like(p.data.float())
                b1, b2 = group['betas']
                state['exp_avg_sq'].mul_(b2).addcmul_(g, g, value=1 - b2)
                state['exp_avg'].mul_(b1).add_(g, alpha=1 - b1)
                state['step'] += 1
                p.data.addcdiv_(state['exp_avg'], state['exp_avg_sq'].sqrt().add_(1e-8), value=-group['lr'])
        return loss

class Mish(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.mul(torch.tanh(F.softplus(x)))
    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0]
        s = torch.sigmoid(x)
        t = F.softplus(x).tanh()
        return g.mul(t + x * s * (1 - t * t))

def channel_attention(x):
    b, c, _, _ = x.size()
    y = F.adaptive_avg_pool2d(x, 1).view(b, c)
    y2 = F.adaptive_max_pool2d(x, 1).view(b, -1)
    return x * torch.sigmoid(y + y2).view(b, c, 1, 1).expand_as(x)

class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv = Conv2d(3, 8, 3)
        self.bn = CondBN(8)
        self.sn = spectral_norm(nn.Conv2d(8, 8, 3, padding=1))
        self.wn = weight_norm(nn.Conv2d(8, 4, 1), name='weight')
        self.alpha = Parameter(torch.Tensor(1).fill_(0.5))
        self.register_parameter('none', None)
        self.blocks = nn.ModuleDict([['a', nn.PReLU(8)], ['b', nn.LeakyReLU(0.1)]])
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(1) * i) for i in range(2)])
        self.weights = nn.ParameterDict({'w': nn.Parameter(torch.eye(4))})
        for name, m in self.named_modules():
            if isinstance(m, (nn.Conv2d, _ConvNd)) and 'wn' not in name and 'sn' not in name:
                fan_in, fan_out = _calculate_fan_in_and_fan_out(m.weight)
                nn.init.uniform_(m.weight, -1 / fan_in ** .5, 1 / fan_in ** .5)
    def forward(self, x):
        x = self.blocks['a'](self.bn(self.conv(x)))
        x = channel_attention(self.sn(x)) * self.alpha + x
        x = Mish.apply(x)
        x = self.wn(x)
        x = torch.einsum('bchw,cd->bdhw', x, self.weights['w']) * self.scales[1] + self.scales[0]
        x = F.interpolate(x, scale_factor=(1.5, 2), mode='nearest')
        x = F.unfold(x, 3, stride=2).view(x.size(0), 4, 9, -1).max(2).values
        x = F.lp_pool1d(x, 2, 3)
        x, idx = torch.topk(x, 3, dim=-1, sorted=True)
        return x.mean((1, 2)), idx

def program():
    net = Net()
    yield 'net', net
    print(net)
    print(sum(p.numel() for p in net.parameters()), [n for n, _ in net.named_parameters()], [k for k in net._modules.keys()])
    opt = RAdamLike(net.parameters(), 1e-2)
    sched = Warm(opt, 3)
    x = torch.randn(2, 3, 10, 10)
    for i in range(4):
        y, idx = net(x)
        loss = F.smooth_l1_loss(y, torch.arange(2).float(), beta=0.5) + 1e-3 * sum(p.abs().sum() for p in net.parameters())
        opt.zero_grad()
        loss.backward()
        total = sum(p.grad.data.norm(2).item() ** 2 for p in net.parameters() if p.grad is not None) ** .5
        opt.step(); sched.step()
        yield 'loss', (loss, total, sched.get_last_lr(), idx)
    yield 'grad', [p.grad for p in net.parameters()]
    opt2 = optim.SGD(net.parameters(), lr=0.1)
    one = OneCycleLR(opt2, max_lr=0.5, total_steps=6)
    lrs = []
    for i in range(6):
        opt2.step(); lrs.append(one.get_last_lr()[0])
        if i < 5: one.step()
    yield 'lrs', lrs
    ds = torch.utils.data.TensorDataset(torch.arange(20.).view(10, 2), torch.arange(10))
    a, b = random_split(ds, [7, 3])
    print(a.indices, b.indices, len(ds))
    loader = torch.utils.data.DataLoader(ds, batch_size=3, sampler=WeightedRandomSampler(torch.arange(1., 11.), 6))
    print([t.tolist() for _, t in loader])
    loader = torch.utils.data.DataLoader(a, batch_size=3, sampler=SubsetRandomSampler(range(5)), collate_fn=lambda s: torch.stack([v[0] for v in s]))
    print([t.tolist() for t in loader])
    w = torch.empty(3, 5)
    yield 'inits', [nn.init.sparse_(torch.empty(4, 6), 0.3), nn.init.dirac_(torch.empty(3, 3, 3)), nn.init.eye_(torch.empty(3, 2)), nn.init.kaiming_uniform_(w, a=5 ** .5, mode='fan_in', nonlinearity='leaky_relu')]
    t = torch.randn(4, 4)
    yield 'misc', [t.where(t > 0, torch.zeros_like(t)), t.masked_select(t.gt(0)), torch.triu(t, 1), t.tril().t(), torch.cross(t[:, :3], t[:, 1:], dim=1), t.renorm(2, 0, 1), torch.stack(t.unbind(1)).roll(1, 0), torch.histc(t, 5, -2, 2), t.kthvalue(2, 1), torch.bucketize(t, torch.tensor([-1., 0., 1.])), t.ne(0).all().item(), t.new_full((2,), 3), t.type_as(torch.ones(1).double()), torch.rot90(t), t.diag_embed().sum(), t.argsort(descending=True), t.view(-1).cumsum(0)[-1], t.unfold(1, 2, 1), t.repeat_interleave(2, 0).shape, torch.cartesian_prod(torch.arange(2), torch.arange(3)), torch.logsumexp(t, (0, 1)), t.std(0, unbiased=False), torch.var_mean(t, 1)]
    print(t > 0, t.size(), t.dtype, t.device, t[0], t.int(), sep='\n')
