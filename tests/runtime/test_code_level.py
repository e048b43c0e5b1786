"""FLAMBEAU_CODE_LEVEL: less work for LLVM's code generator, the same bits; other levels' code is not found in the cache."""

from __future__ import annotations

import os

import pytest

from flambeau.runtime import target
from tests import processes

PROGRAM = """
import hashlib
import flambeau as torch
torch.manual_seed(1)
digest = hashlib.sha256()
for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.complex64):
    x = (torch.randn(37, 19) * 3).to(dtype)
    made = [x * x + x, x.sum(0), x @ x.T, x.cumsum(1)]
    if dtype not in (torch.int32, torch.complex64):
        w = x.clone().requires_grad_()
        made += [f(x) for f in (torch.exp, torch.sin, torch.tanh, torch.lgamma, torch.erf)] + [x.softmax(1), x.sort(1).values, x.var(0)]
        (torch.nn.functional.gelu(w) * w.sigmoid()).sum().backward()
        made.append(w.grad)
    for y in made:
        digest.update(bytes(y.detach().contiguous().reshape(-1).view(torch.uint8).numpy()))
print(digest.hexdigest())
"""


def bits(level: str) -> str:
    environment = {**os.environ, "FLAMBEAU_CODE_LEVEL": level, "FLAMBEAU_COMPILE_PROCESSES": "1"}
    done = processes.python("-c", PROGRAM, env=environment, check=True, timeout=300)
    return done.stdout


def test_bits_are_those_of_the_usual_code() -> None:
    assert bits("0") == bits("") != ""


def test_entries_of_the_cache_are_of_one_level(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = target.fingerprint()
    for level, same in (("3", True), ("0", False)):
        monkeypatch.setenv("FLAMBEAU_CODE_LEVEL", level)
        target.code_level.cache_clear()
        assert (target.fingerprint.__wrapped__() == usual) is same
    monkeypatch.setenv("FLAMBEAU_CODE_LEVEL", "fast")
    target.code_level.cache_clear()
    with pytest.raises(ValueError, match="FLAMBEAU_CODE_LEVEL is 'fast'; it must be 0, 1, 2 or 3"):
        target.code_level()
    monkeypatch.undo()
    target.code_level.cache_clear()
