"""The messages of TensorBoard's event files: their classes, from the package tensorboard, or else from tensorboardX, whose bytes are the same."""

from __future__ import annotations

import importlib
from typing import Any

_MISSING = "torch.utils.tensorboard needs the package tensorboard: pip install tensorboard (or pip install 'flambeau[tensorboard]', for tensorboardX)"
_CORE = "summary histogram event tensor tensor_shape"
# Module of tensorboard -> the module of tensorboardX with the same messages.
_PLUGINS = {
    "pr_curve.plugin_data": "plugin_pr_curve", "text.plugin_data": "plugin_text", "hparams.plugin_data": "plugin_hparams", "hparams.api": "api",
    "custom_scalar.layout": "layout", "mesh.plugin_data": "plugin_mesh",
}  # fmt: skip


def library() -> str:
    """The package that is there. ModuleNotFoundError without one."""
    for name in ("tensorboard", "tensorboardX"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
        else:
            return name
    raise ModuleNotFoundError(_MISSING, name="tensorboard")


def message(name: str, plugin: str | None = None) -> Any:
    """A class of messages: of the core, or of a plugin's module as tensorboard names it (`"hparams.api"`)."""
    whose = library()
    if plugin is not None:
        place = f"tensorboard.plugins.{plugin}_pb2" if whose == "tensorboard" else f"tensorboardX.proto.{_PLUGINS[plugin]}_pb2"
        return getattr(importlib.import_module(place), name)
    folder = "tensorboard.compat.proto" if whose == "tensorboard" else "tensorboardX.proto"
    for part in _CORE.split():
        try:
            module = importlib.import_module(f"{folder}.{part}_pb2")
        except ModuleNotFoundError:  # tensorboardX has the messages in fewer files
            continue
        if hasattr(module, name):
            return getattr(module, name)
    raise ImportError(f"{whose} has no message {name}: its version is not known to flambeau")


def events(folder: str, max_queue: int, flush_secs: int, suffix: str) -> Any:
    """The library's writer of event files, which has a thread of its own: `add_event`, `flush`, `close`, `reopen`."""
    if library() == "tensorboard":
        module = importlib.import_module("tensorboard.summary.writer.event_file_writer")
    else:
        module = importlib.import_module("tensorboardX.event_file_writer")
    return module.EventFileWriter(folder, max_queue, flush_secs, suffix)
