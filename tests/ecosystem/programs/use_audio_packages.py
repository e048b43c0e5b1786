"""openai-whisper, speechbrain: a small Whisper's features and logits, filter banks and a recurrent encoder."""

import json

import torch
import warm
import whisper
from speechbrain.lobes.features import Fbank
from speechbrain.nnet.RNN import LSTM
from whisper.model import ModelDimensions

found = {}
torch.manual_seed(0)
sound = torch.randn(16000) * 0.1
mel = whisper.log_mel_spectrogram(whisper.pad_or_trim(sound, 16000 * 2))
found["mel"] = mel[:4, 3].tolist()
model = whisper.model.Whisper(ModelDimensions(80, 100, 16, 2, 1, 60, 12, 16, 2, 1)).eval()
torch.nn.init.normal_(model.decoder.positional_embedding)
with torch.no_grad():
    found["whisper"] = model(mel[None], torch.tensor([[1, 5, 7]]))[0, -1, :4].tolist()
features = Fbank(n_mels=8)(sound[None])
lstm = LSTM(hidden_size=5, input_shape=tuple(features.shape))
made, _ = lstm(features)
made.square().mean().backward()
found["speechbrain"] = [features[0, 2, 1].item(), made[0, -1, 0].item(), sum(p.grad.abs().sum().item() for p in lstm.parameters())]
print(json.dumps(found))


def step():
    made, _ = lstm(features)
    loss = made.square().mean()
    loss.backward()
    return loss.item()


warm.measure("speechbrain: LSTM, forward and backward", step)
with torch.no_grad():
    warm.measure("whisper: logits", lambda: model(mel[None], torch.tensor([[1, 5, 7]])).sum().item())
