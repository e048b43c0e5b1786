"""torch.autograd.variable: tensors under their name of before PyTorch 0.4."""

from __future__ import annotations

from flambeau.autograd import Variable as Variable
