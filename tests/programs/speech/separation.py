"""Conv-TasNet (kaituoxu's, with SI-SNR and permutation-invariant loss) and a Demucs-like U-Net with GLU, LSTM and resampling."""
import math
from itertools import permutations

import torch
import torch as th
import torch.nn as nn
import torch.nn.functional as F

EPS = 1e-8


def overlap_and_add(signal, frame_step):
    """Reconstructs a signal from a framed representation (tf.signal.overlap_and_add)."""
    outer_dimensions = signal.size()[:-2]
    frames, frame_length = signal.size()[-2:]
    subframe_length = math.gcd(frame_length, frame_step)  # gcd=Greatest Common Divisor
    subframe_step = frame_step // subframe_length
    subframes_per_frame = frame_length // subframe_length
    output_size = frame_step * (frames - 1) + frame_length
    output_subframes = output_size // subframe_length
    subframe_signal = signal.view(*outer_dimensions, -1, subframe_length)
    frame = torch.arange(0, output_subframes).unfold(0, subframes_per_frame, subframe_step)
    frame = signal.new_tensor(frame).long()  # signal may in GPU or CPU
    frame = frame.contiguous().view(-1)
    result = signal.new_zeros(*outer_dimensions, output_subframes, subframe_length)
    result.index_add_(-2, frame, subframe_signal)
    result = result.view(*outer_dimensions, -1)
    return result


class ChannelwiseLayerNorm(nn.Module):
    """Channel-wise Layer Normalization (cLN)"""
    def __init__(self, channel_size):
        super(ChannelwiseLayerNorm, self).__init__()
        self.gamma = nn.Parameter(torch.Tensor(1, channel_size, 1))  # [1, N, 1]
        self.beta = nn.Parameter(torch.Tensor(1, channel_size, 1))  # [1, N, 1]
        self.reset_parameters()

    def reset_parameters(self):
        self.gamma.data.fill_(1)
        self.beta.data.zero_()

    def forward(self, y):
        mean = torch.mean(y, dim=1, keepdim=True)  # [M, 1, K]
        var = torch.var(y, dim=1, keepdim=True, unbiased=False)  # [M, 1, K]
        return self.gamma * (y - mean) / torch.pow(var + EPS, 0.5) + self.beta


class GlobalLayerNorm(ChannelwiseLayerNorm):
    """Global Layer Normalization (gLN)"""
    def forward(self, y):
        mean = y.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)  # [M, 1, 1]
        var = (torch.pow(y-mean, 2)).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (y - mean) / torch.pow(var + EPS, 0.5) + self.beta


class Chomp1d(nn.Module):
    """To ensure the output length is the same as the input."""
    def __init__(self, chomp_size):
        super(Chomp1d, self).__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, :-self.chomp_size].contiguous()


class DepthwiseSeparableConv(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, norm, causal=False):
        super(DepthwiseSeparableConv, self).__init__()
        depthwise_conv = nn.Conv1d(in_channels, in_channels, kernel_size, stride=stride, padding=padding, dilation=dilation, groups=in_channels, bias=False)
        chomp = [Chomp1d(padding)] if causal else []
        pointwise_conv = nn.Conv1d(in_channels, out_channels, 1, bias=False)
        self.net = nn.Sequential(depthwise_conv, *chomp, nn.PReLU(), norm(in_channels), pointwise_conv)

    def forward(self, x):
        return self.net(x)


class TemporalBlock(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation, norm, causal):
        super(TemporalBlock, self).__init__()
        self.net = nn.Sequential(nn.Conv1d(in_channels, out_channels, 1, bias=False), nn.PReLU(), norm(out_channels),
                                 DepthwiseSeparableConv(out_channels, in_channels, kernel_size, stride, padding, dilation, norm, causal))

    def forward(self, x):
        residual = x
        out = self.net(x)
        return out + residual  # look like w/o F.relu is better than w/ F.relu


class ConvTasNet(nn.Module):
    def __init__(self, N=8, L=4, B=6, H=10, P=3, X=2, R=2, C=2, norm=GlobalLayerNorm, causal=False):
        super(ConvTasNet, self).__init__()
        self.N, self.L, self.C = N, L, C
        self.conv1d_U = nn.Conv1d(1, N, kernel_size=L, stride=L // 2, bias=False)
        repeats = []
        for r in range(R):
            blocks = []
            for x in range(X):
                dilation = 2**x
                padding = (P - 1) * dilation if causal else (P - 1) * dilation // 2
                blocks += [TemporalBlock(B, H, P, stride=1, padding=padding, dilation=dilation, norm=norm, causal=causal)]
            repeats += [nn.Sequential(*blocks)]
        self.network = nn.Sequential(ChannelwiseLayerNorm(N), nn.Conv1d(N, B, 1, bias=False), nn.Sequential(*repeats), nn.Conv1d(B, C * N, 1, bias=False))
        self.basis_signals = nn.Linear(N, L, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_normal_(p)

    def forward(self, mixture):
        mixture_w = F.relu(self.conv1d_U(torch.unsqueeze(mixture, 1)))
        M, N, K = mixture_w.size()
        score = self.network(mixture_w).view(M, self.C, N, K)
        est_mask = F.softmax(score, dim=1)
        source_w = torch.unsqueeze(mixture_w, 1) * est_mask  # [M, C, N, K]
        source_w = torch.transpose(source_w, 2, 3)  # [M, C, K, N]
        est_source = self.basis_signals(source_w)  # [M, C, K, L]
        est_source = overlap_and_add(est_source, self.L//2)  # M x C x T
        T_origin = mixture.size(-1)
        T_conv = est_source.size(-1)
        return F.pad(est_source, (0, T_origin - T_conv))


def cal_si_snr_with_pit(source, estimate_source, source_lengths):
    assert source.size() == estimate_source.size()
    B, C, T = source.size()
    # mask padding position along T
    mask = source.new_ones((B, 1, T))
    for i in range(B):
        mask[i, :, source_lengths[i]:] = 0
    estimate_source *= mask
    # Step 1. Zero-mean norm
    num_samples = source_lengths.view(-1, 1, 1).float()  # [B, 1, 1]
    mean_target = torch.sum(source, dim=2, keepdim=True) / num_samples
    mean_estimate = torch.sum(estimate_source, dim=2, keepdim=True) / num_samples
    zero_mean_target = (source - mean_target) * mask
    zero_mean_estimate = (estimate_source - mean_estimate) * mask
    # Step 2. SI-SNR with PIT
    s_target = torch.unsqueeze(zero_mean_target, dim=1)  # [B, 1, C, T]
    s_estimate = torch.unsqueeze(zero_mean_estimate, dim=2)  # [B, C, 1, T]
    pair_wise_dot = torch.sum(s_estimate * s_target, dim=3, keepdim=True)  # [B, C, C, 1]
    s_target_energy = torch.sum(s_target ** 2, dim=3, keepdim=True) + EPS  # [B, 1, C, 1]
    pair_wise_proj = pair_wise_dot * s_target / s_target_energy  # [B, C, C, T]
    e_noise = s_estimate - pair_wise_proj  # [B, C, C, T]
    pair_wise_si_snr = torch.sum(pair_wise_proj ** 2, dim=3) / (torch.sum(e_noise ** 2, dim=3) + EPS)
    pair_wise_si_snr = 10 * torch.log10(pair_wise_si_snr + EPS)  # [B, C, C]
    # permutations, [C!, C]
    perms = source.new_tensor(list(permutations(range(C))), dtype=torch.long)
    # one-hot, [C!, C, C]
    index = torch.unsqueeze(perms, 2)
    perms_one_hot = source.new_zeros((*perms.size(), C)).scatter_(2, index, 1)
    # [B, C!] <- [B, C, C] einsum [C!, C, C], SI-SNR sum of each permutation
    snr_set = torch.einsum('bij,pij->bp', [pair_wise_si_snr, perms_one_hot])
    max_snr_idx = torch.argmax(snr_set, dim=1)  # [B]
    max_snr, _ = torch.max(snr_set, dim=1, keepdim=True)  # [B, 1]
    max_snr /= C
    return max_snr, perms, max_snr_idx


def reorder_source(source, perms, max_snr_idx):
    B, C, *_ = source.size()
    max_snr_perm = torch.index_select(perms, dim=0, index=max_snr_idx)
    reorder_source = torch.zeros_like(source)
    for b in range(B):
        for c in range(C):
            reorder_source[b, c] = source[b, max_snr_perm[b][c]]
    return reorder_source


class BLSTM(nn.Module):
    def __init__(self, dim, layers=1):
        super().__init__()
        self.lstm = nn.LSTM(bidirectional=True, num_layers=layers, hidden_size=dim, input_size=dim)
        self.linear = nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x.permute(2, 0, 1)
        x = self.lstm(x)[0]
        x = self.linear(x)
        x = x.permute(1, 2, 0)
        return x


def rescale_conv(conv, reference):
    std = conv.weight.std().detach()
    scale = (std / reference)**0.5
    conv.weight.data /= scale
    if conv.bias is not None:
        conv.bias.data /= scale


def rescale_module(module, reference):
    for sub in module.modules():
        if isinstance(sub, (nn.Conv1d, nn.ConvTranspose1d)):
            rescale_conv(sub, reference)


def sinc(t):
    """sinc.  :param t: the input tensor"""
    return th.where(t == 0, th.tensor(1., device=t.device, dtype=t.dtype), th.sin(t) / t)


def kernel_upsample2(zeros=8):
    """kernel_upsample2 (from facebookresearch/denoiser)."""
    win = th.hann_window(4 * zeros + 1, periodic=False)
    winodd = win[1::2]
    t = th.linspace(-zeros + 0.5, zeros - 0.5, 2 * zeros)
    t *= math.pi
    kernel = (sinc(t) * winodd).view(1, 1, -1)
    return kernel


def upsample2(x, zeros=8):
    *other, time = x.shape
    kernel = kernel_upsample2(zeros).to(x)
    out = F.conv1d(x.view(-1, 1, time), kernel, padding=zeros)[..., 1:].view(*other, time)
    y = th.stack([x, out], dim=-1)
    return y.view(*other, -1)


def downsample2(x, zeros=8):
    if x.shape[-1] % 2 != 0:
        x = F.pad(x, (0, 1))
    xeven = x[..., ::2]
    xodd = x[..., 1::2]
    *other, time = xodd.shape
    kernel = kernel_upsample2(zeros).to(x)
    out = xeven + F.conv1d(xodd.view(-1, 1, time), kernel, padding=zeros)[..., :-1].view(*other, time)
    return out.view(*other, -1).mul(0.5)


class Demucs(nn.Module):
    def __init__(self, chin=1, chout=1, hidden=6, depth=2, kernel_size=8, stride=4, growth=2, rescale=0.1, floor=1e-3):
        super().__init__()
        self.floor, self.depth, self.kernel_size, self.stride = floor, depth, kernel_size, stride
        self.encoder = nn.ModuleList()
        self.decoder = nn.ModuleList()
        activation = nn.GLU(1)
        ch_scale = 2
        for index in range(depth):
            encode = []
            encode += [nn.Conv1d(chin, hidden, kernel_size, stride), nn.ReLU(), nn.Conv1d(hidden, hidden * ch_scale, 1), activation]
            self.encoder.append(nn.Sequential(*encode))
            decode = []
            decode += [nn.Conv1d(hidden, ch_scale * hidden, 1), activation, nn.ConvTranspose1d(hidden, chout, kernel_size, stride)]
            if index > 0:
                decode.append(nn.ReLU())
            self.decoder.insert(0, nn.Sequential(*decode))
            chout = hidden
            chin = hidden
            hidden = min(int(growth * hidden), 10_000)
        self.lstm = BLSTM(chin)
        if rescale:
            rescale_module(self, reference=rescale)

    def valid_length(self, length):
        length = math.ceil(length * 2)
        for idx in range(self.depth):
            length = math.ceil((length - self.kernel_size) / self.stride) + 1
            length = max(length, 1)
        for idx in range(self.depth):
            length = (length - 1) * self.stride + self.kernel_size
        length = int(math.ceil(length / 2))
        return int(length)

    def forward(self, mix):
        if mix.dim() == 2:
            mix = mix.unsqueeze(1)
        mono = mix.mean(dim=1, keepdim=True)
        std = mono.std(dim=-1, keepdim=True)
        mix = mix / (self.floor + std)
        length = mix.shape[-1]
        x = mix
        x = F.pad(x, (0, self.valid_length(length) - length))
        x = upsample2(x)
        skips = []
        for encode in self.encoder:
            x = encode(x)
            skips.append(x)
        x = self.lstm(x)
        for decode in self.decoder:
            skip = skips.pop(-1)
            x = x + skip[..., :x.shape[-1]]
            x = decode(x)
        x = downsample2(x)
        x = x[..., :length]
        return std * x


def stft_loss(x, y, fft_size=32, hop_size=8, win_length=24):
    """Multi-resolution STFT loss (kan-bayashi's)."""
    window = torch.hann_window(win_length)
    mags = []
    for signal in (x, y):
        x_stft = torch.stft(signal, fft_size, hop_size, win_length, window, return_complex=True)
        real, imag = x_stft.real, x_stft.imag
        mags.append(torch.sqrt(torch.clamp(real ** 2 + imag ** 2, min=1e-7)).transpose(2, 1))
    return torch.norm(mags[1] - mags[0], p="fro") / torch.norm(mags[1], p="fro") + F.l1_loss(torch.log(mags[1]), torch.log(mags[0]))


def program():
    torch.manual_seed(0)
    for name, norm, causal in (("global", GlobalLayerNorm, False), ("causal", ChannelwiseLayerNorm, True)):
        model = ConvTasNet(norm=norm, causal=causal)
        yield f"initial {name}", model
        mixture, source = torch.randn(2, 41), torch.randn(2, 2, 41)
        lengths = torch.tensor([41, 30])
        estimate = model(mixture)
        max_snr, perms, max_snr_idx = cal_si_snr_with_pit(source, estimate, lengths)
        loss = 0 - torch.mean(max_snr)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
        yield f"{name} loss", [estimate, loss, max_snr_idx, reorder_source(estimate, perms, max_snr_idx)]
        yield f"{name} gradients", model
    model = Demucs()
    yield "demucs", model
    noisy, clean = torch.randn(2, 1, 50), torch.randn(2, 1, 50)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.9, 0.999))
    losses = []
    for step in range(2):
        estimate = model(noisy)
        loss = F.l1_loss(clean, estimate) + 0.5 * stft_loss(estimate.squeeze(1), clean.squeeze(1))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "demucs estimate", [estimate, model.valid_length(50)]
            yield "demucs gradients", model
        optimizer.step()
        losses.append(loss.item())
    yield "losses", losses
