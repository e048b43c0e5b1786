"""torch.utils.data._utils: names of PyTorch's inner modules that programs import."""

from flambeau.utils.data._utils import collate, fetch, pin_memory, worker

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds; PyTorch's workers look for their parent so often, ours are told by the pipe

__all__ = ["MP_STATUS_CHECK_INTERVAL", "collate", "fetch", "pin_memory", "worker"]
