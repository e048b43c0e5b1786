"""torch.distributed.checkpoint: checkpoints of several processes in folders, of any number of processes, in PyTorch's format."""

from __future__ import annotations

from flambeau.distributed.checkpoint._failures import CheckpointException
from flambeau.distributed.checkpoint._saving import async_save, load, save
from flambeau.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from flambeau.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from flambeau.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from flambeau.distributed.checkpoint.metadata import BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from flambeau.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem, SavePlan, SavePlanner, WriteItem
from flambeau.distributed.checkpoint.state_dict_loader import load_state_dict
from flambeau.distributed.checkpoint.state_dict_saver import save_state_dict
from flambeau.distributed.checkpoint.storage import StorageReader, StorageWriter
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.distributed.checkpoint", globals())
