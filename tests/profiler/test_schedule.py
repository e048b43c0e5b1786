"""schedule, step, on_trace_ready, handlers, exported traces and the older interface."""

from __future__ import annotations

import gzip
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch as pytorch

import flambeau as torch
from flambeau.profiler import ProfilerAction, profile, record_function, schedule, tensorboard_trace_handler

ARGUMENTS = [
    {"wait": 1, "warmup": 1, "active": 2}, {"wait": 0, "warmup": 1, "active": 1, "repeat": 2}, {"wait": 2, "warmup": 0, "active": 3, "skip_first": 2},
    {"wait": 3, "warmup": 1, "active": 2, "skip_first": 1, "skip_first_wait": 1},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_schedule_is_pytorchs(arguments: dict[str, int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, theirs = schedule(**arguments), pytorch.profiler.schedule(**arguments)
    assert [ours(i).name for i in range(20)] == [theirs(i).name for i in range(20)]


def test_schedule_errors() -> None:
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=0, warmup=0, active=0)
    with pytest.warns(UserWarning, match="warmup"):
        schedule(wait=0, warmup=0, active=1)
    with pytest.raises(AssertionError, match="non-negative"):
        schedule(wait=0, warmup=1, active=1)(-1)


def rounds(module: Any, steps: int, **arguments: int) -> list[list[str]]:
    """The ranges named by hand and the steps, of each finished round."""
    found: list[list[str]] = []

    def ready(prof: Any) -> None:
        found.append(sorted({e.name for e in prof.events() if e.name.startswith(("ProfilerStep", "mine"))}))

    with module.profiler.profile(schedule=module.profiler.schedule(**arguments), on_trace_ready=ready) as prof:
        for i in range(steps):
            with module.profiler.record_function(f"mine {i}"):
                module.ones(4).sum().item()
            prof.step()
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("steps", [3, 9])
def test_rounds_are_pytorchs(arguments: dict[str, int], steps: int) -> None:
    assert rounds(torch, steps, **arguments) == rounds(pytorch, steps, **arguments)


def train(steps: int, prof: Any) -> None:
    layer = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(8, 16)
    for _ in range(steps):
        optimizer.zero_grad()
        with record_function("forward"):
            loss = layer(x).square().mean()
        with record_function("backward"):
            loss.backward()
        optimizer.step()
        prof.step()


def check_trace(content: dict[str, Any]) -> list[dict[str, Any]]:
    """What the format asks for: every event has its fields, and events of one thread are nested or apart."""
    events = content["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    for e in events:
        assert e["ph"] in "XMi" and isinstance(e["name"], str) and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        assert isinstance(e["ts"], (int, float)) and (e["ph"] != "X" or e["dur"] >= 0)
    for tid in {e["tid"] for e in complete}:
        stack: list[float] = []
        for e in sorted((e for e in complete if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])):
            while stack and stack[-1] <= e["ts"] + 0.002:
                stack.pop()
            assert not stack or e["ts"] + e["dur"] <= stack[-1] + 0.002, e
            stack.append(e["ts"] + e["dur"])
    return complete


def test_chrome_trace(tmp_path: Path) -> None:
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        train(3, prof)
    prof.add_metadata("note", 'a "quoted" word')
    prof.add_metadata_json("numbers", "[1, 2]")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    content = json.loads((tmp_path / "trace.json").read_text())
    complete = check_trace(content)
    assert {e["cat"] for e in complete} >= {"user_annotation", "cpu_op", "kernel"}
    assert content["note"] == 'a "quoted" word' and content["numbers"] == [1, 2]
    kernel = next(e for e in complete if e["cat"] == "kernel")
    assert {"bytes", "operations", "floor us", "share of floor", "recorded as"} <= set(kernel["args"])
    prof.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        assert len(json.load(file)["traceEvents"]) == len(content["traceEvents"])


def test_tensorboard_handler(tmp_path: Path) -> None:
    handler = tensorboard_trace_handler(str(tmp_path / "deep" / "log"), worker_name="w")
    with profile(schedule=schedule(wait=0, warmup=1, active=2, repeat=2), on_trace_ready=handler) as prof:
        train(7, prof)
    files = sorted((tmp_path / "deep" / "log").iterdir())
    assert len(files) == 2 and all(f.name.startswith("w.") and f.name.endswith(".pt.trace.json") for f in files)
    for file in files:
        names = {e["name"] for e in check_trace(json.loads(file.read_text()))}
        assert {"forward", "backward"} <= names and any(n.startswith("ProfilerStep#") for n in names)


def test_stacks(tmp_path: Path) -> None:
    with profile(with_stack=True) as prof:
        train(2, prof)
    prof.export_stacks(str(tmp_path / "stacks"))
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert lines and all(line.rpartition(" ")[2].isdigit() for line in lines) and any("train" in line for line in lines)
    with profile() as plain:
        pass
    with pytest.raises(AssertionError, match="with_stack"):
        plain.export_stacks(str(tmp_path / "none"))


def test_table_options() -> None:
    with profile() as prof:
        train(3, prof)
    averages = prof.key_averages()
    table = averages.table(sort_by="count", row_limit=2, header="Head", max_name_column_width=8)
    lines = table.splitlines()
    assert lines[0] == "Head" and len([line for line in lines if not line.startswith("-")]) == 6  # header, names, 2 rows, 2 sums
    assert "ms" in averages.table(time_unit="ms") and "us" not in averages.table(time_unit="ms").replace("Bytes", "").split("Recorded")[0]
    assert str(averages).startswith("-")
    with pytest.raises(AttributeError):
        averages.table(sort_by="no_such_column")
    top = prof.events().table(top_level_events_only=True)
    assert len(top.splitlines()) < len(prof.events().table().splitlines())
    assert averages.table(sort_by="cuda_time_total")


def test_older_interface(tmp_path: Path) -> None:
    with torch.autograd.profiler.profile(use_cpu=True, record_shapes=True) as prof:
        with torch.autograd.profiler.record_function("here"):
            torch.ones(5).sum().item()
        with pytest.raises(RuntimeError, match="didn't finish"):
            prof.key_averages()
    assert "here" in prof.table() and "here" in str(prof) and prof.self_cpu_time_total > 0
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    check_trace(json.loads((tmp_path / "t.json").read_text()))
    with torch.autograd.profiler.profile(enabled=False) as off:
        assert off is None
    with pytest.raises(RuntimeError, match="reentrant"):
        prof.__enter__()


def test_no_round_yet() -> None:
    prof = profile(schedule=lambda step: ProfilerAction.NONE)
    with prof:
        torch.ones(3).sum().item()
        prof.step()
    with pytest.raises(AssertionError, match="initialized before accessing"):
        prof.events()
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])
