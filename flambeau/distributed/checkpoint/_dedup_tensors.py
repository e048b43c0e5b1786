"""torch.distributed.checkpoint._dedup_tensors: the older of two ways to leave out what several processes have."""

from __future__ import annotations

from flambeau.distributed.checkpoint._dedup_save_plans import dedup_tensors as dedup_tensors
