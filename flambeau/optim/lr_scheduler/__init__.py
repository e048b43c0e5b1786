"""torch.optim.lr_scheduler."""

from flambeau.optim.lr_scheduler.base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from flambeau.optim.lr_scheduler.base import LRScheduler
from flambeau.optim.lr_scheduler.compose import ChainedScheduler, SequentialLR
from flambeau.optim.lr_scheduler.cycle import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from flambeau.optim.lr_scheduler.decay import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)  # fmt: skip
from flambeau.optim.lr_scheduler.plateau import ReduceLROnPlateau

_LRScheduler = LRScheduler

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

from flambeau.documentation import document as _document
from flambeau.names import answering as _answering
from flambeau.ops.guard import guard as _guard

_guard("optim.lr_scheduler", globals())
_document("torch.optim.lr_scheduler", globals())
__getattr__ = _answering("torch.optim.lr_scheduler", globals())
