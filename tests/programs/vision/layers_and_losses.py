import types
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.nn.utils.fusion import fuse_conv_bn_eval


class GaussianBlur(nn.Module):
    def __init__(self, channels, k=3, sigma=1.):
        super().__init__()
        x = torch.arange(k).float() - (k - 1) / 2
        g = torch.exp(-x ** 2 / (2 * sigma ** 2))
        kernel = torch.outer(g, g)
        self.register_buffer('weight', (kernel / kernel.sum()).view(1, 1, k, k).repeat(channels, 1, 1, 1), persistent=False)
        self.groups = channels
    def forward(self, x):
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode='replicate'), weight=self.weight, groups=self.groups)


def ssim(img1, img2, window_size=5):
    def gaussian(n, sigma):
        g = torch.Tensor([np.exp(-(x - n // 2) ** 2 / float(2 * sigma ** 2)) for x in range(n)])
        return g / g.sum()
    c = img1.size(1)
    _1D = gaussian(window_size, 1.5).unsqueeze(1)
    window = Variable(_1D.mm(_1D.t()).float().unsqueeze(0).unsqueeze(0).expand(c, 1, window_size, window_size).contiguous())
    mu1 = F.conv2d(img1, window, padding=window_size // 2, groups=c)
    mu2 = F.conv2d(img2, window, padding=window_size // 2, groups=c)
    mu1_sq, mu2_sq, mu12 = mu1.pow(2), mu2.pow(2), mu1 * mu2
    s1 = F.conv2d(img1 * img1, window, padding=window_size // 2, groups=c) - mu1_sq
    s2 = F.conv2d(img2 * img2, window, padding=window_size // 2, groups=c) - mu2_sq
    s12 = F.conv2d(img1 * img2, window, padding=window_size // 2, groups=c) - mu12
    C1, C2 = 0.01 ** 2, 0.03 ** 2
    return (((2 * mu12 + C1) * (2 * s12 + C2)) / ((mu1_sq + mu2_sq + C1) * (s1 + s2 + C2))).mean()


class NonLocal(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.theta, self.phi, self.g = (nn.utils.spectral_norm(nn.Conv2d(c, c // 2, 1, bias=False)) for _ in range(3))
        self.o = nn.Conv2d(c // 2, c, 1)
        self.gamma = nn.Parameter(torch.zeros(1))
    def forward(self, x):
        b, c, h, w = x.shape
        t = self.theta(x).view(b, -1, h * w)
        p = F.max_pool2d(self.phi(x), [2, 2]).view(b, -1, h * w // 4)
        g = F.max_pool2d(self.g(x), [2, 2]).view(b, -1, h * w // 4)
        beta = F.softmax(torch.bmm(t.transpose(1, 2), p), -1)
        return self.gamma * self.o(torch.bmm(g, beta.transpose(1, 2)).view(b, -1, h, w)) + x


class DeformLike(nn.Module):
    """bilinear sampling with predicted offsets, by advanced indexing"""
    def __init__(self, c):
        super().__init__()
        self.offset = nn.Conv2d(c, 2, 3, padding=1)
        nn.init.normal_(self.offset.weight, std=.1)
    def forward(self, x):
        b, c, h, w = x.shape
        off = self.offset(x)
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing='ij')
        py, px = ys + off[:, 0], xs + off[:, 1]
        py, px = py.clamp(0, h - 1), px.clamp(0, w - 1)
        y0, x0 = py.detach().floor().long(), px.detach().floor().long()
        y1, x1 = (y0 + 1).clamp(max=h - 1), (x0 + 1).clamp(max=w - 1)
        bi = torch.arange(b).view(b, 1, 1)
        def at(yy, xx):
            return x.permute(0, 2, 3, 1)[bi, yy, xx]
        wy, wx = (py - y0).unsqueeze(-1), (px - x0).unsqueeze(-1)
        out = at(y0, x0) * (1 - wy) * (1 - wx) + at(y0, x1) * (1 - wy) * wx + at(y1, x0) * wy * (1 - wx) + at(y1, x1) * wy * wx
        return out.permute(0, 3, 1, 2)


def lovasz_grad(gt_sorted):
    p = len(gt_sorted)
    gts = gt_sorted.sum()
    intersection = gts - gt_sorted.float().cumsum(0)
    union = gts + (1 - gt_sorted).float().cumsum(0)
    jaccard = 1. - intersection / union
    if p > 1:
        jaccard[1:p] = jaccard[1:p] - jaccard[0:-1]
    return jaccard


def lovasz_hinge_flat(logits, labels):
    signs = 2. * labels.float() - 1.
    errors = (1. - logits * Variable(signs))
    errors_sorted, perm = torch.sort(errors, dim=0, descending=True)
    perm = perm.data
    gt_sorted = labels[perm]
    grad = lovasz_grad(gt_sorted)
    return torch.dot(F.relu(errors_sorted), Variable(grad))


def program():
    x = torch.rand(2, 4, 8, 8)
    img = Variable(torch.rand(2, 4, 8, 8), requires_grad=True)
    loss = 1 - ssim(img, GaussianBlur(4)(x))
    loss.backward(retain_graph=True)
    first = img.grad.data.clone()
    img.grad.data.zero_()
    loss.backward()
    yield 'ssim', [loss, first, img.grad]
    net = nn.Sequential(NonLocal(4), DeformLike(4), nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.GLU(1), nn.LocalResponseNorm(2), nn.Softmax2d(), nn.FractionalMaxPool2d(2, output_size=3, _random_samples=torch.full((2, 2, 2), .3)))
    yield 'net', net
    net[0].gamma.data.fill_(.5)
    grads = {}
    h = net[1].offset.weight.register_hook(lambda g: grads.setdefault('hook', g * 2))
    net[2].register_full_backward_hook(lambda m, gi, go: grads.update({'in': gi[0]}))
    out = net(x)
    (out * torch.arange(3.)).sum().backward()
    h.remove()
    yield 'gradients', net
    yield 'hooks', grads
    logits = torch.randn(10, requires_grad=True)
    l = lovasz_hinge_flat(logits, (torch.arange(10) % 3 == 0).int())
    l.backward()
    yield 'lovasz', (l, logits.grad)
    conv, bn = nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)
    bn(conv(x))
    fused = fuse_conv_bn_eval(conv.eval(), bn.eval())
    yield 'fused', (bn(conv(x)) - fused(x)).abs().max() < 1e-5
    d = nn.Sequential(conv, bn).double()
    yield 'double', d(x.double())
    half = nn.Linear(4, 3).to(torch.bfloat16)
    yield 'dtype', [p.dtype for p in half.parameters()]
    m = nn.Conv2d(4, 4, 3, padding=1, padding_mode='circular')
    m.forward = types.MethodType(lambda self, t: nn.Conv2d.forward(self, t) + t, m)
    yield 'patched', m(x)
    v = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.ConvTranspose3d(4, 2, 2, stride=2), nn.AdaptiveAvgPool3d((2, None, 1)), nn.Upsample(scale_factor=2, mode='trilinear', align_corners=False))
    yield 'initial volume', v
    o = v(torch.rand(1, 1, 4, 6, 6))
    o.pow(2).mean().backward()
    yield 'volume', (o, v)
    w = torch.randn(3, 3, requires_grad=True)
    q, r = torch.linalg.qr(w)
    u, s, vt = torch.linalg.svd(w)
    (s.sum() + torch.logdet(w @ w.t() + torch.eye(3)) + torch.matrix_exp(w * .1).trace() + torch.inverse(w + 3 * torch.eye(3)).sum()).backward()
    yield 'linalg', [s, w.grad]
    f = torch.fft.fft2(x)
    amp, pha = f.abs(), f.angle()
    amp_shift = torch.fft.fftshift(amp, dim=(-2, -1))
    amp_shift[..., 3:5, 3:5] = amp_shift.flip(0)[..., 3:5, 3:5]
    back = torch.fft.ifft2(torch.polar(torch.fft.ifftshift(amp_shift, dim=(-2, -1)), pha)).real
    yield 'fourier', back
    a = torch.zeros(4, 4)
    a[torch.arange(4), torch.tensor([1, 0, 3, 2])] += 1
    a[a == 0] = -1
    a[:, [0, 2]] *= 3
    a[..., -1:] = torch.arange(4.)[:, None]
    a.index_add_(0, torch.tensor([0, 0]), torch.ones(2, 4)).scatter_add_(1, torch.zeros(4, 1, dtype=torch.long), torch.ones(4, 1))
    a.masked_fill_(torch.eye(4).bool(), float('-inf')).fill_diagonal_(5)
    yield 'indexing', [a, a[None, :, 1:3, None].shape, a[[0, 1]][:, [True, False, True, False]], a.take(torch.tensor([0, 5])), a.put_(torch.tensor([1]), torch.tensor([9.])), a.index_copy(0, torch.tensor([1]), torch.zeros(1, 4))]
