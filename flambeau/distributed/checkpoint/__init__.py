"""torch.distributed.checkpoint: checkpoints of several processes in folders, of any number of processes, in PyTorch's format."""

from __future__ import annotations

from flambeau.distributed.checkpoint._saving import CheckpointException, async_save, load, save
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, TensorStorageMetadata
from flambeau.distributed.checkpoint.state_dict_loader import load_state_dict
from flambeau.distributed.checkpoint.state_dict_saver import save_state_dict
from flambeau.distributed.several import define as _define

_define(globals(), "", "LoadPlanner SavePlanner StorageReader StorageWriter")

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.distributed.checkpoint", globals())
