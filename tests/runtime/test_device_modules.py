"""torch.backends, torch.cpu and torch.cuda.amp: scripts written for any machine read, set and go on."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch as pytorch

import flambeau as torch


@pytest.mark.parametrize("library", ["cudnn", "mkl", "mkldnn", "mps", "openmp"])
def test_nothing_foreign_is_available(library: str) -> None:
    assert getattr(torch.backends, library).is_available() is False


def test_settings_are_kept() -> None:
    cudnn = torch.backends.cudnn
    assert (cudnn.benchmark, cudnn.deterministic, cudnn.version()) == (False, False, None)
    with cudnn.flags(enabled=True, benchmark=True):
        assert cudnn.benchmark
    assert not cudnn.benchmark
    cudnn.deterministic = True
    assert cudnn.deterministic
    cudnn.deterministic = False
    with torch.backends.mkldnn.flags(enabled=False):
        assert not torch.backends.mkldnn.enabled
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    with pytest.raises(AttributeError, match="no setting 'alow_tf32'"):
        torch.backends.cuda.matmul.alow_tf32 = True
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(False)
        assert getattr(torch.backends.cuda, f"{name}_sdp_enabled")() is False
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(True)


def test_capability_is_pytorchs_on_this_machine() -> None:
    assert torch.backends.cpu.get_cpu_capability() == pytorch.backends.cpu.get_cpu_capability()


def test_cpu_as_a_device() -> None:
    assert torch.cpu.is_available() and torch.cpu.device_count() == pytorch.cpu.device_count()
    assert torch.cpu.current_device() == pytorch.cpu.current_device()
    x = torch.ones(3) + 1
    torch.cpu.synchronize()
    with torch.cpu.stream(torch.cpu.current_stream()):
        assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_script_for_cuda_runs_without_it() -> None:
    """PyTorch's old recipe: everything is disabled, with warnings, and the results are float32."""

    def train(module: Any) -> list[float]:
        w = module.nn.Parameter(module.ones(2, 2))
        optimizer = module.optim.SGD([w], lr=0.1)
        scaler = module.cuda.amp.GradScaler()
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            with module.cuda.amp.autocast():
                loss = (module.ones(2, 2) @ w).sum()
            assert loss.dtype == module.float32
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.item())
        return losses

    with warnings.catch_warnings(record=True) as ours:
        warnings.simplefilter("always")
        got = train(torch)
    with warnings.catch_warnings(record=True) as theirs:
        warnings.simplefilter("always")
        expected = train(pytorch)
    assert got == expected
    assert {w.category for w in ours} == {w.category for w in theirs} == {UserWarning, FutureWarning}


def test_custom_functions_for_cuda() -> None:
    importlib.import_module("flambeau.cuda.amp.autocast_mode")  # whose name is that of a module of torch.amp, too

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    with pytest.warns(FutureWarning):
        Double.forward = staticmethod(torch.cuda.amp.custom_fwd(Double.forward))  # type: ignore[method-assign]
    with pytest.warns(FutureWarning):
        Double.backward = staticmethod(torch.cuda.amp.custom_bwd(Double.backward))  # type: ignore[method-assign]
    x = torch.ones(2, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]
