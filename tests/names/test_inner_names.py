"""Names that PyTorch does not document and that packages use all the same: each answers as PyTorch's does."""

from __future__ import annotations

import importlib

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

# Questions of torch.utils.collect_env that take a function which runs a command.
QUESTIONS = "get_cpu_info get_gpu_info get_gcc_version get_clang_version get_cmake_version get_nvidia_driver_version get_running_cuda_version get_os".split()


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_about_the_environment(name: str) -> None:
    ours, theirs = (importlib.import_module(f"{m}.utils.collect_env") for m in ("flambeau", "torch"))
    answers = {
        "lscpu": (0, "Model name: x", ""), "gcc --version": (0, "gcc (GCC) 13.1\nmore", ""), "nvidia-smi -L": (0, "GPU 0: X (UUID: GPU-1)", ""),
        "nvidia-smi": (0, "| Driver Version: 1.2 |", ""), "cmake --version": (0, "cmake version 3", ""),
    }  # fmt: skip

    def answer(command: str) -> tuple[int, str, str]:
        return answers.get(command, (127, "", "not found"))

    if name != "get_gpu_info":  # PyTorch asks its own CUDA first
        if name != "get_os":
            assert getattr(ours, name)(answer) == getattr(theirs, name)(answer)
        assert isinstance(getattr(ours, name)(ours.run), str | None)
    else:
        assert ours.get_gpu_info(answer) == "GPU 0: X"
    assert ours.run("echo a; exit 3") == theirs.run("echo a; exit 3") == (3, "a", "")


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "amax", "min", "amin", "prod"])
def test_segment_reduce_by_all_names(reduce: str) -> None:
    x, lengths = [[1.0, 2], [3, 4], [5, 7]], [2, 1]
    ours, theirs = (m._segment_reduce(m.tensor(x), reduce, lengths=m.tensor(lengths)).tolist() for m in (ft, torch))
    assert ours == theirs and ft._segment_reduce is ft.segment_reduce


def test_cdata_tells_tensors_apart() -> None:
    for m in (ft, torch):
        x = m.ones(2)
        layer = m.nn.Linear(2, 2)
        assert x._cdata == x._cdata and isinstance(x._cdata, int)
        others = [x, layer.weight, layer.bias]
        assert len({t._cdata for t in [*others, x]}) == 3
        assert layer.weight._cdata == layer.weight._cdata != layer.bias._cdata


def test_an_inner_name_that_is_missing() -> None:
    with pytest.raises(AttributeError, match="'_no_such_name' in flambeau"):
        ft._no_such_name
