"""`torch.cuda` on a machine without CUDA: questions are answered, settings are accepted, devices are refused.

memory (statistics, allocators), random (generators' states), streams (streams, events), graphs; nvtx and profiler mark ranges of a
tool that is not here.
"""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent
from flambeau.devices import Device as _Device

_refuse = _absent.not_compiled("CUDA")
_TABLE = """
is_available is_initialized is_bf16_supported is_tf32_supported device_count get_arch_list get_gencode_flags init current_device get_device_capability
get_device_name get_device_properties utilization temperature power_draw clock_rate
can_device_access_peer(device, peer_device) !
cudart() !
current_blas_handle() !
current_solver_handle() !
check_error(res) ok
get_sync_debug_mode() !
set_sync_debug_mode(debug_mode) !
ipc_collect() ok
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "CUDA")
_TENSORS = _absent.classes(
    globals(),
    "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor".split(),
    _absent.refusal(TypeError, "this type is not available: Torch not compiled with CUDA enabled."), "CUDA",
)  # fmt: skip
_STORAGES = _absent.classes(
    globals(),
    "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage FloatStorage HalfStorage "
    "IntStorage LongStorage ShortStorage".split(),
    _refuse, "CUDA",
)  # fmt: skip

default_generators: tuple[Any, ...] = ()
has_half = True
has_magma = False


class CudaError(RuntimeError):
    """What CUDA would report."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUDA error {code}")


class DeferredCudaCallError(Exception):
    """A call that was waiting for CUDA's initialisation failed."""


class cudaStatus:
    """CUDA's codes that PyTorch names."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


def set_device(device: Any) -> None:
    """A negative index is accepted, as in PyTorch; a device is refused."""
    if isinstance(device, str):
        device = _Device(device)
    if isinstance(device, _Device):
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        device = device.index
    if device is None:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    if device >= 0:
        _refuse("set_device")


def synchronize(device: Any = None) -> None:
    """Run what is recorded and pending. (PyTorch's CPU build refuses; timing code calls it.)"""
    from flambeau.trace.evaluate import synchronize as run

    run()


class device:
    """`with device(index)`: a negative index or None changes nothing; a device is refused when the block is entered."""

    def __init__(self, device: Any) -> None:
        self.idx = device if isinstance(device, int) else -1 if device is None else _Device(device).index
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx is None or self.idx >= 0:
            raise RuntimeError("PyTorch was compiled without CUDA support: flambeau runs on the CPU so far")

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        return None


class device_of(device):
    """`with device_of(tensor)`: changes nothing, as no tensor is on CUDA."""

    def __init__(self, obj: Any) -> None:
        super().__init__(-1)


from flambeau.cuda.graphs import CUDAGraph, GreenContext, graph, graph_pool_handle, is_current_stream_capturing, make_graphed_callables
from flambeau.cuda.memory import *
from flambeau.cuda.random import get_rng_state, get_rng_state_all, initial_seed, manual_seed, manual_seed_all, seed, seed_all, set_rng_state, set_rng_state_all
from flambeau.cuda.streams import Event, ExternalStream, Stream, StreamContext, current_stream, default_stream, get_stream_from_external, set_stream, stream

_MODULES = frozenset("amp nvtx profiler comm nccl graphs memory random streams jiterator sparse tunable gds".split())
__all__ = sorted(n for n in globals() if not n.startswith("_") and n not in ("annotations", "Any"))


def _is_compiled() -> bool:
    """False."""
    return False


_initialized = False


def _is_in_bad_fork() -> bool:
    """False: there is no state of CUDA that a fork could break."""
    return False


def _lazy_init() -> None:
    """Refused, as init()."""
    _refuse("_lazy_init")


def __getattr__(name: str) -> Any:
    import importlib

    if name in _MODULES:
        try:
            return importlib.import_module(f"flambeau.cuda.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"flambeau.cuda.{name}":
                raise
    if name == "OutOfMemoryError":  # whose module imports this one, by way of amp
        return importlib.import_module("flambeau.settings").OutOfMemoryError
    if name.startswith("__"):
        raise AttributeError(name)
    from flambeau.names import otherwise

    return otherwise("torch.cuda", name, globals())
