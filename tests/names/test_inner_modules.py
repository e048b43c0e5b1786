"""PyTorch's modules are there where their names are elsewhere, and those that PyTorch has after its import are attributes without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import flambeau
from tests import processes

# In a process of its own: a module that anybody has imported is an attribute already.
ATTRIBUTES = """
import functools, pathlib, warnings, flambeau
from types import ModuleType
warnings.simplefilter("ignore")
for line in (pathlib.Path(flambeau.__file__).parent / "data" / "torch_modules.txt").read_text().splitlines():
    module = line.split("  ")[0]
    try:
        found = functools.reduce(getattr, module.rstrip("!").split(".")[1:], flambeau)
    except AttributeError:
        found = None
    if (found is None) != module.endswith("!"):
        print(module, found)
"""

# In a process of its own: PyTorch's compiler replaces `torch.jit.trace` at its first use.
HOMES = """
import pathlib, sys, warnings, flambeau
from importlib import import_module
warnings.simplefilter("ignore")
for line in (pathlib.Path(flambeau.__file__).parent / "data" / "torch_modules.txt").read_text().splitlines():
    module, *homes = line.split("  ")
    module = module.rstrip("!")
    for library in ("torch", "flambeau"):
        found = import_module(module.replace("torch", library, 1))
        for text in homes:
            home, _, names = text.replace("torch", library, 1).partition(": ")
            import_module(home)
            for name in names.split():
                if getattr(found, name) is not getattr(sys.modules[home], name):
                    print(f"{found.__name__}.{name} is not that of {home}")
"""

UNDER_TORCH = """
import torch
assert torch.cuda.amp.common and torch.fx.passes.shape_prop
assert not hasattr(torch.optim, "adamw")
from torch.optim.adamw import AdamW
assert AdamW is torch.optim.AdamW and AdamW.__module__.startswith("torch."), AdamW.__module__
import torch.ao.nn.quantized.modules.conv as conv
assert conv.Conv2d is torch.ao.nn.quantized.Conv2d and conv.__name__ == "torch.ao.nn.quantized.modules.conv"
from torch.nn.common_types import _size_2_t
try:
    conv.no_such_name
except AttributeError as error:
    assert "torch.ao.nn.quantized.modules.conv" in str(error), error
try:
    import torch.optim.no_such_module
except ModuleNotFoundError:
    print("done")
"""


def test_modules_are_attributes_where_pytorch_has_them_as_attributes() -> None:
    done = processes.python("-c", ATTRIBUTES, check=True)
    assert done.stdout == "", done.stdout


def test_under_torch(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(UNDER_TORCH)
    done = processes.python("-m", "flambeau", "run", str(program), check=True)
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_what_a_module_is_made_of_is_what_pytorch_has_there() -> None:
    done = processes.python("-c", HOMES, check=True)
    assert done.stdout == "", done.stdout


def test_types_of_sizes_are_pytorchs() -> None:
    from torch.nn import common_types as theirs

    from flambeau.nn import common_types as ours

    for name in [n for n in vars(theirs) if n.endswith("_t")]:
        want = str(getattr(theirs, name)).replace("torch.Tensor", "Tensor").replace("~", "")
        assert _union(str(getattr(ours, name)).replace("flambeau.tensor.Tensor", "Tensor").replace("~", "")) == _union(want), name


def _union(text: str) -> set[str]:
    """The members of a union as either of Python's spellings prints them."""
    words = re.findall(r"\w+|\.\.\.", text.replace("typing.", "").replace("Optional", "None"))
    return {"None" if word == "NoneType" else word.replace("Tuple", "tuple") for word in words} - {"Union"}


def test_a_range_of_nvtx_refuses_when_it_is_entered() -> None:
    for library in (torch, flambeau):

        @library.cuda.nvtx.range("named {}", 1)
        def function() -> None:
            """Never run."""

        with pytest.raises(RuntimeError, match="NVTX functions not installed"):
            function()


def test_names_of_cuda_that_packages_ask_for() -> None:
    for library in (torch, flambeau):
        assert library.cuda.OutOfMemoryError is library.OutOfMemoryError
        assert not library.cuda._initialized and not library.cuda._is_in_bad_fork()
