"""silero-vad: spans of speech and the pieces around them, by a model of its interface that measures loudness."""

import json
import math

import torch
from silero_vad import VADIterator, collect_chunks, get_speech_timestamps


class Loudness(torch.nn.Module):
    """Speech where 512 numbers are loud; as the package's model is called."""

    def reset_states(self):
        self.count = 0

    def forward(self, sound, rate):
        return torch.sigmoid(40 * (sound.square().mean(-1, keepdim=True) - 0.1))


torch.manual_seed(0)
time = torch.arange(16000 * 3) / 16000
sound = torch.sin(2 * math.pi * 220 * time) * ((time > 0.5) & (time < 1.2) | (time > 2.0) & (time < 2.6)) + 0.01 * torch.randn(len(time))
spans = get_speech_timestamps(sound, Loudness(), sampling_rate=16000)
found = {"spans": spans, "speech": collect_chunks(spans, sound).square().mean().item()}
each = VADIterator(Loudness(), sampling_rate=16000)
found["iterator"] = [event for i in range(0, len(sound) - 512, 512) if (event := each(sound[i : i + 512]))]
print(json.dumps(found))
