"""torch.cuda, xpu, mps, mtia, accelerator, distributed: what PyTorch's CPU build answers, and where it refuses."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import pytest

import flambeau as ft
from tests import processes

torch = pytest.importorskip("torch")

# Where ours accepts or answers although PyTorch's build refuses: it fails there for want of a name in torch._C, or looks for a
# package; and timing code calls synchronize.
LENIENT = {
    "cuda": "synchronize memory_snapshot memory_summary reset_accumulated_host_memory_stats reset_accumulated_memory_stats reset_max_memory_allocated "
            "reset_max_memory_cached reset_peak_host_memory_stats reset_peak_memory_stats is_current_stream_capturing ipc_collect".split(),
    "xpu": "reset_accumulated_memory_stats reset_peak_memory_stats is_current_stream_capturing".split(),
    "mps": [], "mtia": [], "accelerator": [],
}  # fmt: skip


def outcome(function: Any) -> Any:
    try:
        return function()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("space", LENIENT)
def test_questions_have_pytorchs_answers(space: str) -> None:
    ours, theirs = getattr(ft, space), getattr(torch, space)
    compared = 0
    for name in theirs.__all__:
        function = getattr(theirs, name, None)
        if function is None or inspect.ismodule(function):
            continue
        mine = getattr(ours, name)
        if isinstance(function, type) or not callable(function) or name in LENIENT[space] or name in ("device", "is_bf16_supported", "list_gpu_processes"):
            continue
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if needed:
            continue
        expected, got = outcome(function), outcome(mine)
        if isinstance(expected, type) and issubclass(expected, Exception):
            assert isinstance(got, type) and issubclass(got, (AssertionError, RuntimeError)), (name, got)
        elif not hasattr(expected, "__enter__"):
            assert type(got) is type(expected) and got == expected, (name, got, expected)
        compared += 1
    assert compared >= (5 if space == "mps" else 10)
    for name in LENIENT[space]:
        assert not isinstance(outcome(getattr(ours, name)), type), name


def test_what_scripts_do_with_cuda() -> None:
    assert not ft.cuda.is_available() and ft.cuda.device_count() == 0
    ft.cuda.manual_seed_all(1), ft.cuda.empty_cache(), ft.cuda.set_device(-1), ft.cuda.reset_peak_memory_stats()
    assert ft.cuda.max_memory_allocated() == 0 and not isinstance(ft.ones(1), ft.cuda.FloatTensor)
    with ft.cuda.device(None), ft.cuda.stream(None), ft.cuda.device_of(ft.ones(1)):
        pass
    for call, error in (
        (lambda: ft.cuda.FloatTensor(3), TypeError), (lambda: ft.cuda.Event(enable_timing=True), RuntimeError), (lambda: ft.cuda.set_device(0), AssertionError),
        (lambda: ft.cuda.set_device("cpu"), ValueError), (lambda: ft.cuda.nvtx.range_push("a"), RuntimeError),
        (lambda: ft.cuda.get_device_properties(0), AssertionError), (lambda: ft.cuda.no_such_name, AttributeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()
    with pytest.raises(AssertionError, match=r"Torch not compiled with CUDA enabled \(get_device_name: .*is_available"):
        ft.cuda.get_device_name()
    assert ft.accelerator.current_accelerator() is None and ft.version.cuda is None and ft.get_device_module().__name__.endswith("cpu")
    device = ft.device(ft.accelerator.current_accelerator() or "cpu")
    assert ft.ones(1, device=device).is_cpu and ft.cpu.get_capabilities()["architecture"] == torch.cpu.get_capabilities()["architecture"]


def test_backends() -> None:
    b = ft.backends
    assert b.opt_einsum.enabled is False and b.quantized.supported_engines == ["none"] and b.fp32_precision == "none"
    with b.opt_einsum.flags(enabled=True, strategy="greedy"):
        assert b.opt_einsum.strategy == "greedy"
    before = b.cudnn.set_flags(_benchmark=True)
    assert before[1] is False and b.cudnn.benchmark
    b.cudnn.set_flags(*before)
    assert not b.cudnn.benchmark
    with b.cuda.sdp_kernel(enable_math=False):
        assert not b.cuda.math_sdp_enabled()
    with b.mkl.verbose(b.mkl.VERBOSE_ON), b.mkldnn.verbose(0), b.nnpack.flags():
        pass
    with pytest.raises(RuntimeError, match="cufft_plan_cache: expected 0 <= device index < 0"):
        b.cuda.cufft_plan_cache[0]


def test_distributed_in_one_process(monkeypatch: Any) -> None:
    dist = ft.distributed
    assert dist.is_available() and not dist.is_initialized() and not dist.is_nccl_available()
    for m in (dist, torch.distributed):
        for call in (m.get_rank, m.get_world_size, m.barrier):
            with pytest.raises(ValueError, match="Default process group has not been initialized"):
                call()
    with pytest.raises(ValueError, match="MASTER_ADDR expected, but not set"):
        dist.init_process_group("gloo", rank=1, world_size=4)
    dist.init_process_group("nccl", init_method="env://")
    try:
        t, out = ft.ones(2), [ft.zeros(2)]
        dist.all_reduce(t, op=dist.ReduceOp.SUM), dist.all_gather(out, t), dist.broadcast(t, src=0), dist.barrier()
        assert out[0].tolist() == [1.0, 1.0] and (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (0, 1, "nccl")
        assert dist.all_reduce(t, async_op=True).wait() and dist.new_group([0]).size() == 1
        objects: list[Any] = [None]
        dist.all_gather_object(objects, {"a": 1})
        assert objects == [{"a": 1}]
        with pytest.raises(ValueError, match="trying to initialize the default process group twice"):
            dist.init_process_group("gloo")
        with pytest.raises(ValueError, match="rank of the group, which has 1; got 1"):
            dist.send(t, 1)
    finally:
        dist.destroy_process_group()
    assert not dist.is_initialized()


def test_wrappers_of_several_devices() -> None:
    nn = ft.nn
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), device_ids=None, find_unused_parameters=True)
    assert list(model.state_dict()) == ["module.weight", "module.bias"] and nn.DataParallel(nn.Linear(2, 2))(ft.ones(1, 2)).shape == (1, 2)
    with model.no_sync():
        model(ft.ones(1, 2)).sum().backward()
    assert model.module.weight.grad is not None and model.require_backward_grad_sync
    with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
        nn.parallel.DistributedDataParallel(nn.ReLU())
    parts = nn.parallel.scatter(ft.arange(4.0), ["cpu", "cpu"])
    assert [p.tolist() for p in parts] == [[0.0, 1.0], [2.0, 3.0]] and nn.parallel.gather(parts, "cpu").tolist() == [0.0, 1.0, 2.0, 3.0]
    flat = ft._utils._flatten_dense_tensors([ft.ones(2), ft.zeros(1, 2)])
    assert [t.tolist() for t in ft._utils._unflatten_dense_tensors(flat, [ft.ones(2), ft.zeros(1, 2)])] == [[1.0, 1.0], [[0.0, 0.0]]]


SCRIPT = """
import torch
import torch.backends.cudnn as cudnn
import torch.cuda.amp, torch.jit, torch.fx as fx, torch.overrides, torch.hub, torch.distributed as dist, torch.version, torch.random, torch.types
import torch.utils.benchmark as benchmark, torch.utils._pytree as pytree, torch.utils.checkpoint, torch.utils.hooks, torch.utils.model_zoo
import torch._dynamo, torch._inductor.config, torch._C, torch._utils, torch.ao.quantization, torch.quantization, torch.export, torch.onnx
import torch.library, torch.futures, torch.functional, torch.autograd.graph, torch.autograd.anomaly_mode, torch.nn.parallel.scatter_gather
import torch.xpu, torch.mps, torch.mtia, torch.accelerator, torch.compiler, torch.torch_version, torch.return_types, torch.autograd.variable
from torch.jit import Final, script, is_scripting
from torch.fx import symbolic_trace, wrap
from torch.overrides import handle_torch_function, has_torch_function, TorchFunctionMode
from torch.utils._pytree import tree_map, tree_flatten
from torch.nn.parallel import DistributedDataParallel as DDP, DataParallel
from torch.nn.parallel._functions import Broadcast
from torch.types import Number, Device
from torch.autograd import Variable, detect_anomaly
from torch.autograd.graph import saved_tensors_hooks, register_multi_grad_hook
from torch._utils import _flatten_dense_tensors
from torch.hub import load_state_dict_from_url
from torch.compiler import disable
from torch._C import DisableTorchFunctionSubclass
from torch.distributed import ReduceOp
from torch.ao.quantization import QuantStub, DeQuantStub
from torch.cuda import Event, Stream
torch._C._jit_set_profiling_executor(False), torch._C._jit_set_profiling_mode(False), torch._C._jit_override_can_fuse_on_cpu(True)
cudnn.benchmark = True
assert torch.ops.aten.add(torch.ones(1), 1).item() == 2 and torch._C._get_privateuse1_backend_name() == "privateuseone"
torch._assert(True, "")
assert torch.__version__ >= "2.0" and torch.__version__ >= (2, 13) and torch.version.__version__.startswith("2.13.0+flambeau")
assert torch.fork_rng if hasattr(torch, "fork_rng") else torch.random.fork_rng
print("done")
"""


def test_every_module_under_its_torch_name(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = processes.python("-m", "flambeau", "run", "script.py", cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr


def test_random() -> None:
    ft.manual_seed(3)
    expected = ft.rand(2).tolist()
    ft.manual_seed(3)
    with ft.random.fork_rng():
        ft.rand(5)
    assert ft.rand(2).tolist() == expected
    with pytest.raises(RuntimeError, match="there is no cuda device"), ft.random.fork_rng(devices=[0]):
        pass


def test_names_that_are_left_out_say_why() -> None:
    for name, reason in (("DispatchKey", "C\\+\\+ library"), ("cudnn_convolution", "one library")):
        with pytest.raises(AttributeError, match=f"flambeau leaves out torch.{name}: .*{reason}"):
            getattr(ft, name)
    with pytest.raises(NotImplementedError, match=r"this part of torch\.onnx is not there"):
        ft.onnx.dynamo_export(ft.nn.Linear(1, 1), ft.ones(1))
    stub = ft.ao.quantization.QuantStub()
    x = ft.ones(1)
    assert stub(x) is x


def test_small_names() -> None:
    x = ft.ones(2, 3)
    theirs = torch.ones(2, 3)
    for name in "is_cpu is_ipu is_maia is_mtia is_xla is_vulkan is_mkldnn name".split():
        assert getattr(x, name) == getattr(theirs, name), name
    assert x.dim_order() == theirs.dim_order() and x.t().dim_order() == theirs.t().dim_order()
    nhwc, their_nhwc = (m.ones(2, 3, 4, 5).contiguous(memory_format=m.channels_last) for m in (ft, torch))
    assert nhwc.dim_order() == their_nhwc.dim_order() and x.grad_dtype is ft.float32 and not x.is_inference()
    with pytest.raises(RuntimeError, match=r"deprecated since version 1\.9 and is now removed"):
        x.symeig()
    for m in (ft, torch):
        assert (m.sym_max(1, 2.5), m.sym_min(3, 2), m.sym_int(2.7), m.sym_not(True), m.sym_sum([1, 2]), m.sym_ite(True, 1, 2)) == (2.5, 2, 2, False, 3, 1)
        assert m.cond(True, lambda a: a + 1, lambda a: a - 1, (m.ones(1),)).item() == 2.0 if m is ft else True
    ft.set_default_tensor_type(ft.DoubleTensor)
    try:
        assert ft.ones(1).dtype is ft.float64
    finally:
        ft.set_default_tensor_type("torch.FloatTensor")
    with pytest.raises(TypeError, match="only floating-point types"):
        ft.set_default_tensor_type(ft.LongTensor)
    with ft.Stream() as stream:
        stream.record_event().synchronize()
    a, b = ft.ones(1), ft.zeros(2)
    ft.utils.swap_tensors(a, b)
    assert a.tolist() == [0.0, 0.0] and b.tolist() == [1.0]
    whole = ft.arange(4.0)
    part = whole[:2]
    ft.utils.swap_tensors(a, part)
    assert a._is_view() and not part._is_view() and a.tolist() == [0.0, 1.0] and part.tolist() == [0.0, 0.0]
    assert ft.torch_version.TorchVersion("1.10") > "1.9" and ft.torch_version.TorchVersion("2.1.0") >= (2, 1)


def test_private_names_of_optimizers() -> None:
    from flambeau.optim.optimizer import Optimizer, _default_to_fused_or_foreach, _get_value, _use_grad_for_differentiable, _view_as_real

    class Descent(Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr, "differentiable": False})

        @_use_grad_for_differentiable
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-_get_value(ft.tensor(group["lr"])))

    p = ft.ones(2, requires_grad=True)
    (p * 2).sum().backward()
    Descent([p], 0.25).step()
    assert p.tolist() == [0.5, 0.5] and _default_to_fused_or_foreach([p], False) == (False, False)
    lists = [[ft.ones(1), ft.ones(1).double(), ft.zeros(1)], [ft.ones(2), ft.ones(2).double(), ft.zeros(2)]]
    groups, theirs = (
        m.optim.Optimizer._group_tensors_by_device_and_dtype([[m.tensor(t.tolist(), dtype=getattr(m, str(t.dtype)[6:])) for t in row] for row in lists], True)
        for m in (ft, torch)
    )
    assert {str(k[1]): (len(v[0]), list(v[1])) for k, v in groups.items()} == {str(k[1]): (len(v[0]), list(v[1])) for k, v in theirs.items()}
    column = [ft.ones(1, dtype=ft.complex64)]
    _view_as_real(column)
    assert column[0].shape == (1, 2)
