"""torchaudio: spectrograms, resampling, a filter."""

import json

import torch
import torchaudio
import warm

torch.manual_seed(0)
wave = torch.randn(1, 800)
found = {
    "mel": torchaudio.transforms.MelSpectrogram(sample_rate=8000, n_fft=128, n_mels=16)(wave).sum().item(),
    "mfcc": torchaudio.transforms.MFCC(8000, n_mfcc=5, melkwargs={"n_fft": 128, "n_mels": 16})(wave).abs().sum().item(),
    "resampled": torchaudio.functional.resample(wave, 8000, 6000).sum().item(),
    "lowpass": torchaudio.functional.lowpass_biquad(wave, 8000, 1000.0).abs().sum().item(),
}
print(json.dumps(found))
mel = torchaudio.transforms.MelSpectrogram(sample_rate=8000, n_fft=128, n_mels=16)
warm.measure("mel spectrogram", lambda: mel(wave).sum().item())
warm.measure("resample", lambda: torchaudio.functional.resample(wave, 8000, 6000).sum().item())
