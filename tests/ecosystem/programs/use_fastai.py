"""fastai: a Learner on a tabular problem: one cycle of training, validation and predictions."""

import json

import fastai.callback.progress
import fastai.callback.schedule  # noqa: F401 - Learner.no_bar, Learner.fit_one_cycle
import torch
import warm
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.metrics import accuracy

torch.manual_seed(0)
x = torch.randn(64, 4)
y = (x[:, 0] > 0).long()
pairs = list(zip(x, y, strict=True))
loaders = DataLoaders.from_dsets(pairs[:48], pairs[48:], bs=16, shuffle=False, num_workers=0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
learner = Learner(loaders, model, loss_func=torch.nn.CrossEntropyLoss(), metrics=accuracy)
with learner.no_bar(), learner.no_logging():
    learner.fit_one_cycle(3, 0.01)
    predicted, _ = learner.get_preds()
print(json.dumps({"values": [float(v) for v in learner.validate()], "losses": [float(v) for v in learner.recorder.losses], "predicted": predicted[0].tolist()}))
with learner.no_bar(), learner.no_logging():
    warm.measure("an epoch of 3 steps", lambda: learner.fit(1, 0.01))
