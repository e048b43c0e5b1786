"""Processes that want the same code and plans at the same time make each once; one that dies or stands still keeps nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.runtime import claims, object_cache
from tests import processes

pytestmark = pytest.mark.skipif(claims._SET is None, reason="the system has no locks of open files")

_TOGETHER = """
import os, sys, time
import flambeau as torch
from flambeau import nn
from flambeau.statistics import counters

open(f"{sys.argv[1]}/{os.getpid()}", "w").close()
while len(os.listdir(sys.argv[1])) < int(sys.argv[2]):  # all begin at once
    time.sleep(0.001)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 12), nn.LayerNorm(12), nn.GELU(), nn.Linear(12, 4), nn.Softmax(-1))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 8)).square().sum()
    loss.backward()
    optimizer.step()
print(loss.item(), counters.kernels_compiled, counters.kernels_from_disk)
"""
_HOLD = """
import sys
from flambeau.runtime import claims
print(claims.claim("key"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    object_cache._trusted.cache_clear()
    claims._after_fork()  # nothing is open of another folder
    return tmp_path


def _holder() -> subprocess.Popen[str]:
    process = processes.popen([sys.executable, "-c", _HOLD], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert processes.line_of(process).strip() == "True"
    return process


@pytest.mark.parametrize("helpers", ["1", "2"])
def test_each_kernel_is_made_once(_folder: Path, helpers: str) -> None:
    (_folder / "here").mkdir()
    own = {**os.environ, "FLAMBEAU_COMPILE_PROCESSES": helpers, "FLAMBEAU_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _TOGETHER, str(_folder / "here"), "3"]
    ranks = [processes.popen(command, env=own, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    said = [out.split() for out, _ in processes.outputs(ranks)]
    assert [rank.returncode for rank in ranks] == [0] * 3 and len({words[0] for words in said}) == 1
    made = sum(int(words[1]) for words in said)
    wanted = {int(words[1]) + int(words[2]) for words in said}
    if helpers == "1":  # else some have plain code first, which each process makes for itself
        assert len(wanted) == 1 and made == len(object_cache.entries()) >= 5


def test_a_claim_goes_with_its_process(_folder: Path) -> None:
    process = _holder()
    try:
        assert not claims.claim("key") and claims.claim("another")
        os.kill(process.pid, signal.SIGKILL)
        assert claims.wait("key") and not object_cache.entries()
    finally:
        processes.end(process)
        claims.release("key")


def test_a_process_that_stands_still_is_not_waited_for(_folder: Path) -> None:
    process = _holder()
    try:
        os.kill(process.pid, signal.SIGSTOP)
        start = time.monotonic()
        assert not claims.wait("key", 0.2) and time.monotonic() - start >= 0.2
    finally:
        processes.end(process)


def test_a_forked_child_has_no_claims_of_its_parent(_folder: Path) -> None:
    assert claims.claim("key")
    child = os.fork()
    if child == 0:
        os._exit(10 + claims.claim("key"))
    assert processes.exit_code_of_child(child) == 10
    claims.release("key")
    child = os.fork()
    if child == 0:
        os._exit(10 + claims.claim("key"))
    assert processes.exit_code_of_child(child) == 11
    assert claims.claim("key")  # what the child had went with it
    claims.release("key")


def test_claims_hold_in_a_cache_that_was_emptied(_folder: Path) -> None:
    assert claims.claim("key")
    claims.release("key")
    assert object_cache.clear() == 0 and not list((_folder / "cache").iterdir())
    process = _holder()
    try:
        assert not claims.claim("key")
    finally:
        processes.end(process)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_without_a_folder_everybody_makes_everything(_folder: Path) -> None:
    _folder.chmod(0o500)
    try:
        assert claims.claim("key") and claims.wait("key")
        claims.release("key")
    finally:
        _folder.chmod(0o700)


@given(st.lists(st.text(), min_size=2, max_size=8, unique=True))
def test_keys_have_places_of_their_own(keys: list[str]) -> None:
    assert len({claims._place(key) for key in keys}) == len(keys)
