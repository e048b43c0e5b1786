"""Pitch models: CREPE (maxrmorrison's torchcrepe, with weighted average and Viterbi), YIN's difference function by FFT; MFCC from a mel spectrogram and griffin-lim."""
import functools
import math

import numpy as np
import torch
import torch.nn.functional as F

CENTS_PER_BIN = 20
PITCH_BINS = 24


class Crepe(torch.nn.Module):
    """Crepe model definition"""

    def __init__(self, model='tiny'):
        super().__init__()
        # Model-specific layer parameters
        if model == 'tiny':
            in_channels = [1, 8, 4, 4]
            out_channels = [8, 4, 4, 8]
            self.in_features = 32
        kernel_sizes = [(32, 1)] + 3 * [(16, 1)]
        strides = [(4, 1)] + 3 * [(1, 1)]
        # Overload with eps and momentum conversion given by MMdnn
        batch_norm_fn = functools.partial(torch.nn.BatchNorm2d, eps=0.0010000000474974513, momentum=0.0)
        for i in range(4):
            setattr(self, f"conv{i + 1}", torch.nn.Conv2d(in_channels[i], out_channels[i], kernel_size=kernel_sizes[i], stride=strides[i]))
            setattr(self, f"conv{i + 1}_BN", batch_norm_fn(num_features=out_channels[i]))
        self.classifier = torch.nn.Linear(in_features=self.in_features, out_features=PITCH_BINS)

    def forward(self, x, embed=False):
        # shape=(batch, 1, 256, 1)
        x = x[:, None, :, None]
        x = self.layer(x, self.conv1, self.conv1_BN, (0, 0, 14, 14))
        x = self.layer(x, self.conv2, self.conv2_BN)
        x = self.layer(x, self.conv3, self.conv3_BN)
        x = self.layer(x, self.conv4, self.conv4_BN)
        # shape=(batch, self.in_features)
        x = x.permute(0, 2, 1, 3).reshape(-1, self.in_features)
        # Compute logits
        return torch.sigmoid(self.classifier(x))

    def layer(self, x, conv, batch_norm, padding=(0, 0, 7, 8)):
        """Forward pass through one layer"""
        x = F.pad(x, padding)
        x = conv(x)
        x = F.relu(x)
        x = batch_norm(x)
        return F.max_pool2d(x, (2, 1), (2, 1))


def preprocess(audio, hop_length=64, window=256, pad=True):
    if pad:
        total_frames = 1 + int(audio.size(1) // hop_length)
        audio = torch.nn.functional.pad(audio, (window // 2, window // 2))
    else:
        total_frames = 1 + int((audio.size(1) - window) // hop_length)
    # Chunk the audio into overlapping frames
    frames = torch.nn.functional.unfold(audio[:, None, None, :], kernel_size=(1, window), stride=(1, hop_length))
    # shape=(1 + int(time / hop_length, 256)
    frames = frames.transpose(1, 2).reshape(-1, window)[:total_frames]
    # Mean-center
    frames -= frames.mean(dim=1, keepdim=True)
    # Scale (note: during silent frames, this produces very large values)
    frames /= torch.max(torch.tensor(1e-10, device=frames.device), frames.std(dim=1, keepdim=True))
    return frames


def bins_to_cents(bins):
    """Converts pitch bins to cents"""
    return CENTS_PER_BIN * bins + 1997.3794084376191


def weighted_argmax(logits: torch.Tensor):
    """Sample observations using weighted sum near the argmax"""
    # Find center of analysis window
    bins = logits.argmax(dim=1)
    # Find bounds of analysis window
    start = torch.max(torch.tensor(0, device=logits.device), bins - 4)
    end = torch.min(torch.tensor(logits.size(1), device=logits.device), bins + 5)
    # Mask out everything outside of window
    for batch in range(logits.size(0)):
        for time in range(logits.size(2)):
            logits[batch, :start[batch, time], time] = -float('inf')
            logits[batch, end[batch, time]:, time] = -float('inf')
    # Construct weights
    if not hasattr(weighted_argmax, 'weights'):
        weights = bins_to_cents(torch.arange(PITCH_BINS))
        weighted_argmax.weights = weights[None, :, None]
    weights = weighted_argmax.weights.to(logits.device)
    # Convert to probabilities
    with torch.no_grad():
        probs = torch.sigmoid(logits)
    # Apply weights
    cents = (weights * probs).sum(dim=1) / probs.sum(dim=1)
    return bins, 10 * 2 ** (cents / 1200)


def viterbi(logits):
    """Sample observations using viterbi decoding"""
    xx, yy = np.meshgrid(range(PITCH_BINS), range(PITCH_BINS))
    transition = np.maximum(12 - abs(xx - yy), 0)
    transition = torch.from_numpy(transition / transition.sum(axis=1, keepdims=True))
    with torch.no_grad():
        probs = torch.nn.functional.softmax(logits, dim=0)
    value, back = torch.log(probs[:, 0]).double(), []
    for t in range(1, probs.shape[1]):
        scores = value[:, None] + torch.log(transition + 1e-300)
        value, pointer = scores.max(0)
        value = value + torch.log(probs[:, t])
        back.append(pointer)
    path = [value.argmax()]
    for pointer in back[::-1]:
        path.insert(0, pointer[path[0]])
    return torch.stack(path)


def yin_difference(frames, max_lag):
    """The difference function by FFT and cumulative sums, and its cumulative mean."""
    n = frames.shape[-1]
    fft_size = 2 ** math.ceil(math.log2(n + max_lag))
    spectrum = torch.fft.rfft(frames, fft_size, dim=-1)
    acf = torch.fft.irfft(spectrum * spectrum.conj(), dim=-1)[..., :max_lag]
    sqrcs = F.pad(frames.square().cumsum(dim=-1), (1, 0))
    corr_0 = sqrcs[..., -1:]
    corr_tau = sqrcs.flip(-1)[..., :max_lag] - sqrcs[..., :max_lag]
    diff = corr_0 - sqrcs[..., :max_lag] + (corr_tau - corr_0 + sqrcs[..., :max_lag]) - 2 * acf
    lags = torch.arange(max_lag, dtype=frames.dtype)
    cmdf = diff[..., 1:] * lags[1:] / torch.clamp(diff[..., 1:].cumsum(-1), min=1e-5)
    return F.pad(cmdf, (1, 0), value=1.0)


def create_dct(n_mfcc, n_mels, norm):
    """torchaudio's."""
    n = torch.arange(float(n_mels))
    k = torch.arange(float(n_mfcc)).unsqueeze(1)
    dct = torch.cos(math.pi / float(n_mels) * (n + 0.5) * k)  # size (n_mfcc, n_mels)
    if norm is None:
        dct *= 2.0
    else:
        dct[0] *= 1.0 / math.sqrt(2.0)
        dct *= math.sqrt(2.0 / float(n_mels))
    return dct.t()


def melscale_fbanks(n_freqs, f_min, f_max, n_mels, sample_rate):
    all_freqs = torch.linspace(0, sample_rate // 2, n_freqs)
    m_min = 2595.0 * math.log10(1.0 + (f_min / 700.0))
    m_max = 2595.0 * math.log10(1.0 + (f_max / 700.0))
    m_pts = torch.linspace(m_min, m_max, n_mels + 2)
    f_pts = 700.0 * (10.0 ** (m_pts / 2595.0) - 1.0)
    f_diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts.unsqueeze(0) - all_freqs.unsqueeze(1)
    down_slopes = (-1.0 * slopes[:, :-2]) / f_diff[:-1]
    up_slopes = slopes[:, 2:] / f_diff[1:]
    return torch.max(torch.zeros(1), torch.min(down_slopes, up_slopes))


def amplitude_to_DB(x, multiplier, amin, db_multiplier, top_db=None):
    x_db = multiplier * torch.log10(torch.clamp(x, min=amin))
    x_db -= multiplier * db_multiplier
    if top_db is not None:
        # Expand batch
        shape = x_db.size()
        packed_channels = shape[-3] if x_db.dim() > 2 else 1
        x_db = x_db.reshape(-1, packed_channels, shape[-2], shape[-1])
        x_db = torch.max(x_db, (x_db.amax(dim=(-3, -2, -1)) - top_db).view(-1, 1, 1, 1))
        x_db = x_db.reshape(shape)
    return x_db


def griffinlim(specgram, window, n_fft, hop_length, win_length, power, n_iter, momentum, length):
    """torchaudio's, without random phases."""
    momentum = momentum / (1 + momentum)
    specgram = specgram.pow(1 / power)
    angles = torch.full(specgram.size(), 1, dtype=torch.complex64)
    tprev = torch.tensor(0.0, dtype=specgram.dtype)
    for _ in range(n_iter):
        # Invert with our current estimate of the phases
        inverse = torch.istft(specgram * angles, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, length=length)
        # Rebuild the spectrogram
        rebuilt = torch.stft(input=inverse, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window,
                             center=True, pad_mode="reflect", normalized=False, onesided=True, return_complex=True)
        # Update our phase estimates
        angles = rebuilt
        if momentum:
            angles = angles - tprev.mul_(momentum)
        angles = angles.div(angles.abs().add(1e-16))
        # Store the previous iterate
        tprev = rebuilt
    return torch.istft(specgram * angles, n_fft=n_fft, hop_length=hop_length, win_length=win_length, window=window, length=length)


def program():
    torch.manual_seed(0)
    time = torch.arange(400) / 1000
    audio = torch.sin(2 * math.pi * 60 * time + 3 * time ** 2)[None] + 0.1 * torch.randn(1, 400)
    frames = preprocess(audio)
    yield "frames", frames
    model = Crepe('tiny')
    yield "initial", model
    model.train()
    criterion = torch.nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    bins = torch.arange(PITCH_BINS)[None]
    target = torch.exp(-(bins - 10 + torch.arange(len(frames))[:, None]) ** 2 / 2.0)
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        probabilities = model(frames)
        loss = criterion(probabilities, target)
        loss.backward()
        if not losses:
            yield "gradients", {n: p.grad for n, p in model.named_parameters()}
        optimizer.step()
        losses.append(loss.item())
    yield "losses", losses
    model.eval()
    with torch.no_grad():
        logits = torch.logit(model(frames)).T.unsqueeze(0)
    yield "viterbi", viterbi(logits[0])
    yield "weighted", weighted_argmax(logits.clone())
    periodicity = torch.randn(1, 9)
    yield "filtered", F.avg_pool1d(periodicity, 3, 1, 1, count_include_pad=False)
    yield "median", F.pad(periodicity, (1, 1), mode="reflect").unfold(1, 3, 1).median(dim=-1)[0]
    yield "yin", yin_difference(frames, 100)
    window = torch.hann_window(64)
    spec = torch.stft(audio, 64, 16, 64, window, return_complex=True, normalized=True)
    power = spec.abs().pow(2.0)
    fb = melscale_fbanks(33, 0.0, 500.0, 12, 1000)
    mel = torch.matmul(power.transpose(-1, -2), fb).transpose(-1, -2)
    db = amplitude_to_DB(mel, 10.0, 1e-10, math.log10(max(1e-10, 1.0)), 80.0)
    yield "mfcc", torch.matmul(db.transpose(-1, -2), create_dct(6, 12, "ortho")).transpose(-1, -2)
    yield "deltas", F.conv1d(F.pad(db, (2, 2), mode="replicate"), torch.arange(-2.0, 3.0).repeat(12, 1, 1), groups=12) / 10
    yield "griffin-lim", griffinlim(power, window, 64, 16, 64, 2.0, 3, 0.99, 400)
