"""torch.distributed.rpc: calls in other processes, which are not there."""

from __future__ import annotations

from flambeau.distributed.several import define as _define


def is_available() -> bool:
    """False."""
    return False


_define(
    globals(),
    """
init_rpc(name, *args, **options) !
rpc_async(to, func, args=None, kwargs=None, timeout=-1.0) !
rpc_sync(to, func, args=None, kwargs=None, timeout=-1.0) !
remote(to, func, args=None, kwargs=None, timeout=-1.0) !
shutdown(graceful=True, timeout=0) !
get_worker_info(worker_name=None) !
""",
    "RRef WorkerInfo BackendType RpcBackendOptions TensorPipeRpcBackendOptions",
)

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.distributed.rpc", globals())
