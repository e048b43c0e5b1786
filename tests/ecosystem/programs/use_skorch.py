"""skorch: a classifier with scikit-learn's interface."""

import json

import numpy as np
import torch
import warm
from skorch import NeuralNetClassifier

torch.manual_seed(0)
x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
y = (x[:, 0] > 0).astype("int64")
net = NeuralNetClassifier(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)), criterion=torch.nn.CrossEntropyLoss,
                          max_epochs=3, lr=0.1, verbose=0, train_split=None)  # fmt: skip
net.fit(x, y)
print(json.dumps({"losses": net.history[:, "train_loss"], "score": float(net.score(x, y))}))
warm.measure("an epoch of one step", lambda: net.partial_fit(x, y))
warm.measure("predict", lambda: net.predict(x))
