"""torch.distributed.checkpoint.api: the error of a checkpoint."""

from __future__ import annotations

from flambeau.distributed.checkpoint._failures import CheckpointException as CheckpointException
