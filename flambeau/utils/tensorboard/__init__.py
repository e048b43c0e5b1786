"""torch.utils.tensorboard: event files for TensorBoard, written without further packages (pictures need Pillow)."""

from __future__ import annotations

from flambeau.utils.tensorboard.writer import FileWriter as FileWriter
from flambeau.utils.tensorboard.writer import SummaryWriter as SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.utils.tensorboard", globals())
