"""torch.utils.data._utils.worker: what a worker knows of itself, and its seeds."""

from __future__ import annotations

from flambeau.utils.data.worker import WorkerInfo as WorkerInfo
from flambeau.utils.data.worker import _generate_state as _generate_state
from flambeau.utils.data.worker import get_worker_info as get_worker_info
