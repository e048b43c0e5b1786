"""torch.utils.tensorboard: event files for TensorBoard, written by the package tensorboardX (`pip install 'flambeau[tensorboard]'`).

SummaryWriter is tensorboardX's, which has the same methods, with our tensors given to it as NumPy arrays.
"""

from __future__ import annotations

import importlib
from typing import Any

_MISSING = "torch.utils.tensorboard needs the package tensorboardX: pip install 'flambeau[tensorboard]' (or pip install tensorboardX)"


def _plain(value: Any) -> Any:
    """Tensors as NumPy arrays, also inside lists, tuples and dicts; Python numbers for those of one element in a dict of scalars."""
    from flambeau.tensor import Tensor

    if isinstance(value, Tensor):
        array = value.detach().cpu()
        return (array.float() if str(array.dtype) == "torch.bfloat16" else array).numpy()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_plain(v) for v in value)
    return value


def _library() -> Any:
    try:
        return importlib.import_module("tensorboardX")
    except ModuleNotFoundError as error:
        if error.name != "tensorboardX":
            raise
        raise ModuleNotFoundError(_MISSING, name="tensorboardX") from None


class SummaryWriter:
    """Writes scalars, histograms, images, figures, text and more to `log_dir` (runs/DATE_HOST by default).

    Every method is tensorboardX's; `add_graph` writes nothing, as there is no graph of TorchScript. ModuleNotFoundError without the package.
    """

    def __init__(
        self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10, flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:  # fmt: skip
        self._writer = _library().SummaryWriter(
            logdir=None if log_dir is None else str(log_dir), comment=comment, purge_step=purge_step, max_queue=max_queue, flush_secs=flush_secs,
            filename_suffix=filename_suffix,
        )  # fmt: skip
        self.log_dir = self._writer.logdir

    def get_logdir(self) -> str:
        """The folder of the event files."""
        return self.log_dir  # type: ignore[no-any-return]

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """Accepted; nothing is written: print torch.fx.symbolic_trace(model).graph, or see `flambeau explain`."""

    def __getattr__(self, name: str) -> Any:
        if name == "_writer":
            raise AttributeError(name)
        value = getattr(self._writer, name)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            if name == "add_scalar":  # PyTorch's newer arguments, which tensorboardX has not
                kwargs.pop("new_style", None)
                kwargs.pop("double_precision", None)
            return value(*[_plain(a) for a in args], **{k: _plain(v) for k, v in kwargs.items()})

        return call

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self._writer.close()


class FileWriter:
    """tensorboardX's FileWriter. ModuleNotFoundError without the package."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from importlib import import_module

        _library()
        return import_module("tensorboardX.writer").FileWriter(*args, **kwargs)


__all__ = ["FileWriter", "SummaryWriter"]
