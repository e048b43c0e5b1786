"""torch.utils.tensorboard.writer."""

from __future__ import annotations

from flambeau.utils.tensorboard import FileWriter as FileWriter
from flambeau.utils.tensorboard import SummaryWriter as SummaryWriter
