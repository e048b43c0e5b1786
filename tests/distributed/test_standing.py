"""A timeout names who has not come, how far each of those is, and, with the flight recorder, where in the program; and each rank's file says what it did."""

from __future__ import annotations

import pickle

import pytest

from tests.distributed.ranks import started


@pytest.mark.parametrize("how", ["plain", "stop", "debug", "recorder"])
def test_timeouts_say_where_ranks_stand(how, tmp_path):
    settings = {
        "debug": {"TORCH_DISTRIBUTED_DEBUG": "INFO"},
        "recorder": {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "trace_")},
    }.get(how, {})
    with started("standing.py", 3, tmp_path, [how], **settings) as processes:
        for rank in (0, 2):
            _, errors = processes[rank].communicate(timeout=120)
            assert processes[rank].returncode == 0, errors
            text, level = pickle.loads((tmp_path / f"standing.py-True-{rank}").read_bytes())
            assert "Timed out waiting 3000ms for rank 1, which did not come; all others did: rank 1 " in text
            assert "is 1 behind, its last one was all_reduce(SUM) of float32 (3,)" in text
            assert ("it is at" in text) == (how in ("debug", "recorder"))
            if how == "stop":
                assert f"its process {processes[1].pid} is stopped (SIGSTOP)" in text
            if how in ("debug", "recorder"):
                assert any(f"standing.py:{line} in busy" in text for line in (21, 22, 23, 24))
            assert level == ("INFO" if how == "debug" else "OFF")
    found = {path.name: pickle.loads(path.read_bytes()) for path in tmp_path.glob("trace_*")}
    assert sorted(found) == (["trace_0", "trace_1", "trace_2"] if how == "recorder" else [])
    for name, kept in found.items():
        names = [entry["profiling_name"] for entry in kept["entries"]]
        states = [entry["state"] for entry in kept["entries"]]
        if name == "trace_1":
            assert names == ["gloo:barrier", "gloo:all_reduce"] and states == ["completed", "completed"]
            assert "standing.py:" in kept["stack"] and kept["stack"].endswith(" in busy")
        else:
            assert names == ["gloo:all_reduce", "gloo:broadcast"] and states == ["completed", "started"]
            assert kept["entries"][-1]["frames"][0]["filename"].endswith("standing.py")
            assert kept["pg_status"]["0"] == {"last_enqueued_collective": 3, "last_started_collective": 3, "last_completed_collective": 2}
