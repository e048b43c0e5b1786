"""WaveNet (vincentherrmann's and r9y9's ideas): mu-law, dilated causal convolutions with gates and skips, receptive field, fast generation with queues; mixture of logistics loss."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def mu_law_encoding(x, quantization_channels=256):
    mu = quantization_channels - 1.0
    mu = torch.tensor(mu, dtype=x.dtype)
    x_mu = torch.sign(x) * torch.log1p(mu * torch.abs(x)) / torch.log1p(mu)
    x_mu = ((x_mu + 1) / 2 * mu + 0.5).to(torch.int64)
    return x_mu


def mu_law_decoding(x_mu, quantization_channels=256):
    mu = quantization_channels - 1.0
    if not x_mu.is_floating_point():
        x_mu = x_mu.to(torch.float)
    mu = torch.tensor(mu, dtype=x_mu.dtype)
    x = ((x_mu) / mu) * 2 - 1.0
    x = torch.sign(x) * (torch.exp(torch.abs(x) * torch.log1p(mu)) - 1.0) / mu
    return x


class DilatedQueue:
    def __init__(self, max_length, num_channels=1, dilation=1):
        self.in_pos = 0
        self.out_pos = 0
        self.num_channels = num_channels
        self.dilation = dilation
        self.max_length = max_length
        self.data = torch.zeros(num_channels, max_length)

    def enqueue(self, input):
        self.data[:, self.in_pos] = input
        self.in_pos = (self.in_pos + 1) % self.max_length

    def dequeue(self, num_deq=1, dilation=1):
        start = self.out_pos - ((num_deq - 1) * dilation)
        if start < 0:
            t1 = self.data[:, start::dilation] if start >= 0 else self.data[:, self.max_length + start::dilation]
            t2 = self.data[:, self.out_pos % dilation:self.out_pos + 1:dilation]
            t = torch.cat((t1, t2), 1)
        else:
            t = self.data[:, start:self.out_pos + 1:dilation]
        self.out_pos = (self.out_pos + 1) % self.max_length
        return t[:, -num_deq:]


class ResidualConv1dGLU(nn.Module):
    def __init__(self, residual_channels, gate_channels, kernel_size, skip_out_channels, cin_channels, dilation):
        super().__init__()
        padding = (kernel_size - 1) * dilation
        self.conv = nn.utils.weight_norm(nn.Conv1d(residual_channels, gate_channels, kernel_size, padding=padding, dilation=dilation))
        nn.init.kaiming_normal_(self.conv.weight_v, nonlinearity="relu")
        self.conv1x1c = nn.Conv1d(cin_channels, gate_channels, 1, bias=False)
        gate_out_channels = gate_channels // 2
        self.conv1x1_out = nn.Conv1d(gate_out_channels, residual_channels, 1)
        self.conv1x1_skip = nn.Conv1d(gate_out_channels, skip_out_channels, 1)

    def forward(self, x, c):
        residual = x
        splitdim = 1
        x = self.conv(x)
        # remove future time steps
        x = x[:, :, :residual.size(-1)]
        a, b = x.split(x.size(splitdim) // 2, dim=splitdim)
        c = self.conv1x1c(c)
        ca, cb = c.split(c.size(splitdim) // 2, dim=splitdim)
        a, b = a + ca, b + cb
        x = torch.tanh(a) * torch.sigmoid(b)
        s = self.conv1x1_skip(x)
        x = self.conv1x1_out(x)
        x = (x + residual) * np.sqrt(0.5)
        return x, s


class WaveNet(nn.Module):
    def __init__(self, out_channels=32, layers=4, stacks=2, residual_channels=8, gate_channels=12, skip=6, cin=5, kernel_size=2, scales=(2, 2)):
        super().__init__()
        assert layers % stacks == 0
        layers_per_stack = layers // stacks
        self.out_channels = out_channels
        self.first_conv = nn.Conv1d(out_channels, residual_channels, 1)
        self.conv_layers = nn.ModuleList()
        for layer in range(layers):
            dilation = 2**(layer % layers_per_stack)
            self.conv_layers.append(ResidualConv1dGLU(residual_channels, gate_channels, kernel_size, skip, cin, dilation))
        self.last_conv_layers = nn.ModuleList([
            nn.ReLU(inplace=True),
            nn.Conv1d(skip, skip, 1),
            nn.ReLU(inplace=True),
            nn.Conv1d(skip, out_channels, 1),
        ])
        self.upsample = nn.ModuleList()
        for scale in scales:
            conv = nn.Conv2d(1, 1, kernel_size=(1, scale * 2 + 1), padding=(0, scale), bias=False)
            conv.weight.data.fill_(1. / np.prod((1, scale * 2 + 1)))
            self.upsample.append(nn.Upsample(scale_factor=(1.0, float(scale)), mode="nearest"))
            self.upsample.append(nn.utils.weight_norm(conv))
        dilations = [2**(i % layers_per_stack) for i in range(layers)]
        self.receptive_field = (kernel_size - 1) * sum(dilations) + 1

    def forward(self, x, c, softmax=False):
        c = c.unsqueeze(1)
        for f in self.upsample:
            c = f(c)
        c = c.squeeze(1)
        assert c.size(-1) == x.size(-1)
        x = self.first_conv(x)
        skips = 0
        for f in self.conv_layers:
            x, h = f(x, c)
            skips += h
        skips *= np.sqrt(1.0 / len(self.conv_layers))
        x = skips
        for f in self.last_conv_layers:
            x = f(x)
        return F.softmax(x, dim=1) if softmax else x


def log_sum_exp(x):
    """ numerically stable log_sum_exp implementation that prevents overflow """
    axis = len(x.size()) - 1
    m, _ = torch.max(x, dim=axis)
    m2, _ = torch.max(x, dim=axis, keepdim=True)
    return m + torch.log(torch.sum(torch.exp(x - m2), dim=axis))


def discretized_mix_logistic_loss(y_hat, y, num_classes=256, log_scale_min=-7.0, reduce=True):
    nr_mix = y_hat.size(1) // 3
    y_hat = y_hat.transpose(1, 2)
    logit_probs = y_hat[:, :, :nr_mix]
    means = y_hat[:, :, nr_mix:2 * nr_mix]
    log_scales = torch.clamp(y_hat[:, :, 2 * nr_mix:3 * nr_mix], min=log_scale_min)
    y = y.expand_as(means)
    centered_y = y - means
    inv_stdv = torch.exp(-log_scales)
    plus_in = inv_stdv * (centered_y + 1. / (num_classes - 1))
    cdf_plus = torch.sigmoid(plus_in)
    min_in = inv_stdv * (centered_y - 1. / (num_classes - 1))
    cdf_min = torch.sigmoid(min_in)
    log_cdf_plus = plus_in - F.softplus(plus_in)
    log_one_minus_cdf_min = -F.softplus(min_in)
    cdf_delta = cdf_plus - cdf_min
    mid_in = inv_stdv * centered_y
    log_pdf_mid = mid_in - log_scales - 2. * F.softplus(mid_in)
    inner_inner_cond = (cdf_delta > 1e-5).float()
    inner_inner_out = inner_inner_cond * torch.log(torch.clamp(cdf_delta, min=1e-12)) + (1. - inner_inner_cond) * (log_pdf_mid - np.log((num_classes - 1) / 2))
    inner_cond = (y > 0.999).float()
    inner_out = inner_cond * log_one_minus_cdf_min + (1. - inner_cond) * inner_inner_out
    cond = (y < -0.999).float()
    log_probs = cond * log_cdf_plus + (1. - cond) * inner_out
    log_probs = log_probs + F.log_softmax(logit_probs, -1)
    if reduce:
        return -torch.sum(log_sum_exp(log_probs))
    else:
        return -log_sum_exp(log_probs).unsqueeze(-1)


def to_one_hot(tensor, n, fill_with=1.):
    one_hot = torch.FloatTensor(tensor.size() + (n,)).zero_()
    one_hot.scatter_(len(tensor.size()), tensor.unsqueeze(-1), fill_with)
    return one_hot


def sample_from_discretized_mix_logistic(y, log_scale_min=-7.0):
    nr_mix = y.size(1) // 3
    y = y.transpose(1, 2)
    logit_probs = y[:, :, :nr_mix]
    temp = logit_probs.data.new(logit_probs.size()).uniform_(1e-5, 1.0 - 1e-5)
    temp = logit_probs.data - torch.log(- torch.log(temp))
    _, argmax = temp.max(dim=-1)
    one_hot = to_one_hot(argmax, nr_mix)
    means = torch.sum(y[:, :, nr_mix:2 * nr_mix] * one_hot, dim=-1)
    log_scales = torch.clamp(torch.sum(y[:, :, 2 * nr_mix:3 * nr_mix] * one_hot, dim=-1), min=log_scale_min)
    u = means.data.new(means.size()).uniform_(1e-5, 1.0 - 1e-5)
    x = means + torch.exp(log_scales) * (torch.log(u) - torch.log(1. - u))
    return torch.clamp(torch.clamp(x, min=-1.), max=1.)


def program():
    torch.manual_seed(0)
    wave = torch.sin(torch.arange(24) * 0.7).repeat(2, 1) * torch.tensor([[1.0], [0.3]])
    q = mu_law_encoding(wave, 32)
    yield "mu law", [q, mu_law_decoding(q, 32)]
    model = WaveNet()
    yield "model", [model, model.receptive_field]
    x = F.one_hot(q, 32).float().transpose(1, 2)
    c = torch.randn(2, 5, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 ** (s // 2))
    losses = []
    for step in range(3):
        y_hat = model(x, c)
        loss = F.cross_entropy(y_hat[:, :, :-1].unsqueeze(-1), q[:, 1:].unsqueeze(-1), reduction="none").mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "output", y_hat
            yield "gradients", model
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    yield "losses", losses
    y_hat = torch.randn(2, 9, 12, requires_grad=True)
    loss = discretized_mix_logistic_loss(y_hat, wave[:, :12].unsqueeze(-1))
    loss.backward()
    yield "logistics", [loss, y_hat.grad, discretized_mix_logistic_loss(y_hat, wave[:, :12].unsqueeze(-1), reduce=False)]
    yield "sampled", sample_from_discretized_mix_logistic(y_hat.detach())
    queue, seen = DilatedQueue(6, 3), []
    for i in range(9):
        queue.enqueue(torch.full((3,), float(i)))
        seen.append(queue.dequeue(2, 2))
    yield "queue", seen[4:]
    model.eval()
    with torch.no_grad():
        samples = x[:1, :, :1]
        for t in range(4):
            probs = model(F.pad(samples, (0, 8 - samples.size(-1))), c[:1, :, :2], softmax=True)[0, :, samples.size(-1) - 1]
            choice = torch.multinomial(probs, 1)
            samples = torch.cat([samples, F.one_hot(choice, 32).float().unsqueeze(-1)], -1)
    yield "generated", samples.argmax(1)
