"""torch._C: the few names of PyTorch's extension module that programs touch. There is no extension module here.

Switches of TorchScript's fusers are accepted and answer that nothing is fused by them: flambeau fuses what it records.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from flambeau import absent as _absent
from flambeau.grad_modes import is_grad_enabled as is_grad_enabled
from flambeau.ops.dispatch import DisableTorchFunction as DisableTorchFunction
from flambeau.ops.dispatch import DisableTorchFunctionSubclass as DisableTorchFunctionSubclass
from flambeau.ops.dispatch import disabled_torch_function
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
_set_math_sdp_allow_fp16_bf16_reduction(enabled) ok
_current_graph_task_id() = -1
_current_autograd_node() = None
"""
_refuse = _absent.refusal(RuntimeError, "there is no such part", "torch._C is PyTorch's C++ extension, which flambeau has not")
_PARTS = "Graph Value Node Block PyTorchFileReader PyTorchFileWriter ScriptModule ScriptFunction FunctionSchema"
_absent.classes(globals(), _PARTS.split(), _refuse, "C++ part; no")
_NAMES = _absent.define(globals(), _TABLE, _absent.refusal(RuntimeError, "there is no such part"), "CUDA")
_TensorBase = TensorBase
has_lapack = has_openmp = has_spectral = True
_has_xpu = _has_cuda = _has_mps = has_mkl = has_cuda = has_cudnn = has_mps = has_xpu = has_mkldnn = False
_GLIBCXX_USE_CXX11_ABI = True


_disabled_torch_function_impl = disabled_torch_function
_TensorMeta = type(TensorBase)


DispatchKey = Enum(  # the levels of PyTorch's dispatcher; flambeau calls functions for the CPU, for autograd and for autocast (library.py)
    "DispatchKey",
    "Undefined Dense CPU CUDA HIP XLA MPS XPU HPU MTIA Meta PrivateUse1 Quantized Sparse SparseCsr NestedTensor BackendSelect Python Functionalize "
    "ADInplaceOrView AutogradOther AutogradFunctionality Autograd AutogradCPU AutogradCUDA AutogradXLA AutogradMPS AutogradXPU AutogradMeta "
    "AutocastCPU AutocastCUDA AutocastXPU AutocastMPS AutocastXLA AutocastHPU AutocastMTIA AutocastPrivateUse1 FuncTorchBatched FuncTorchVmapMode "
    "CompositeImplicitAutograd CompositeExplicitAutograd PreDispatch".split(),
    module=__name__,
)


class DispatchKeySet:
    """Some of the levels: `DispatchKeySet(DispatchKey.CPU) | DispatchKeySet(DispatchKey.Autograd)`."""

    def __init__(self, keys: Any = ()) -> None:
        self.keys: frozenset[Any] = frozenset((keys,) if isinstance(keys, DispatchKey) else keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys | other.keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys & other.keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self.keys - other.keys)

    def has(self, key: Any) -> bool:
        """Whether this level is among them."""
        return key in self.keys

    def add(self, key: Any) -> DispatchKeySet:
        """Them and one more."""
        return DispatchKeySet(self.keys | {key})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self.keys == other.keys

    def __hash__(self) -> int:
        return hash(self.keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(sorted(k.name for k in self.keys))})"


class _ExcludeDispatchKeyGuard:
    """A `with` block in which operators' functions for these levels are not called (see torch.library)."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self._names = [k.name for k in keys.keys]

    def __enter__(self) -> None:
        from flambeau.library import excluding

        self._block = excluding(*self._names)
        self._block.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._block.__exit__(*error)


def _get_default_device() -> str:
    """The device of new tensors."""
    return "cpu"


def _are_functorch_transforms_active() -> bool:
    """Whether a torch.func transform is running in this thread."""
    from flambeau.func.levels import levels

    return next(levels(), None) is not None


def _set_grad_enabled(mode: bool) -> None:
    """torch.set_grad_enabled."""
    from flambeau.grad_modes import set_grad_enabled

    set_grad_enabled(mode)


def _is_torch_function_mode_enabled() -> bool:
    """Whether a TorchFunctionMode is active in this thread."""
    from flambeau.overrides import _get_current_function_mode_stack

    return bool(_get_current_function_mode_stack())


def _is_alias_of(self: TensorBase, other: TensorBase) -> bool:
    """Whether two tensors look into one memory."""
    return self._storage is not None and self._storage is other._storage


def _get_accelerator(check: bool = False) -> Any:
    """The device that programs run on: the CPU, there is no accelerator."""
    from flambeau.devices import CPU

    return CPU


def __getattr__(name: str) -> Any:
    if name == "_LinAlgError":
        from flambeau.linalg import LinAlgError

        return LinAlgError
    if name in ("_DistError", "_DistBackendError", "_DistNetworkError", "_DistStoreError", "_DistQueueEmptyError"):
        from flambeau.distributed import errors

        return getattr(errors, name[1:])
    if name == "Tag":
        from flambeau.library import Tag

        return Tag
    if name in ("_nn", "_functorch", "_cpu", "_autograd"):
        import importlib

        return importlib.import_module(f"flambeau._C.{name}")
    raise AttributeError(
        f"torch._C has no {name!r} in flambeau: torch._C is PyTorch's C++ extension, of which only the names that programs commonly touch are here"
    )
