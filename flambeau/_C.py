"""torch._C: the few names of PyTorch's extension module that programs touch. There is no extension module here.

Switches of TorchScript's fusers are accepted and answer that nothing is fused by them: flambeau fuses what it records.
"""

from __future__ import annotations

from typing import Any

from flambeau import absent as _absent
from flambeau.autograd.modes import is_grad_enabled as is_grad_enabled
from flambeau.ops.dispatch import DisableTorchFunction as DisableTorchFunction
from flambeau.ops.dispatch import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from flambeau.ops.random import Generator as Generator
from flambeau.tensor import Tensor as TensorBase
from flambeau.trace.meta import Size as Size

_TABLE = """
_jit_can_fuse_on_cpu() = False
_jit_can_fuse_on_gpu() = False
_jit_can_fuse_on_cpu_legacy() = False
_jit_override_can_fuse_on_cpu(enabled) ok
_jit_override_can_fuse_on_gpu(enabled) ok
_jit_set_nvfuser_enabled(enabled) = False
_jit_nvfuser_enabled() = False
_jit_set_nvfuser_guard_mode(enabled) = False
_jit_set_profiling_executor(enabled) = False
_jit_set_profiling_mode(enabled) = False
_jit_set_texpr_fuser_enabled(enabled) ok
_jit_texpr_fuser_enabled() = False
_jit_set_bailout_depth(depth) ok
_jit_set_fusion_strategy(strategy) ok
_jit_set_num_profiled_runs(number) ok
_get_tracing_state() = None
_get_privateuse1_backend_name() = 'privateuseone'
_log_api_usage_once(event) ok
_cuda_getDeviceCount() = 0
_cuda_isInBadFork() = False
_has_mkldnn() = False
_get_cudnn_enabled() = True
_is_torch_function_enabled() = True
_set_cudnn_benchmark(enabled) ok
"""
_NAMES = _absent.define(globals(), _TABLE, _absent.refusal(RuntimeError, "there is no such part"), "CUDA")
_TensorBase = TensorBase
has_lapack = has_openmp = has_spectral = True
has_mkl = has_cuda = has_cudnn = has_mps = has_xpu = has_mkldnn = False
_GLIBCXX_USE_CXX11_ABI = True


def _set_grad_enabled(mode: bool) -> None:
    """torch.set_grad_enabled."""
    from flambeau.autograd.modes import set_grad_enabled

    set_grad_enabled(mode)


def __getattr__(name: str) -> Any:
    if name == "_LinAlgError":
        from flambeau.linalg import LinAlgError

        return LinAlgError
    if name == "_nn":
        import importlib

        return importlib.import_module("flambeau.nn.functional")
    raise AttributeError(
        f"torch._C has no {name!r} in flambeau: torch._C is PyTorch's C++ extension, of which only the names that programs commonly touch are here"
    )
