"""torch.distributed.checkpoint: checkpoints of several processes: the state of models and optimizers is given as there; files are not there yet."""

from __future__ import annotations

from flambeau.distributed.several import define as _define

_define(globals(), """
save(state_dict, *args, **options) !
load(state_dict, *args, **options) !
async_save(state_dict, *args, **options) !
save_state_dict(state_dict, storage_writer, *args, **options) !
load_state_dict(state_dict, storage_reader, *args, **options) !
""", "FileSystemReader FileSystemWriter DefaultLoadPlanner DefaultSavePlanner LoadPlanner SavePlanner StorageReader StorageWriter CheckpointException")
