"""torch.distributed.elastic beside the launcher: events, metrics, errors, stores, ports, loggers, samplers; as PyTorch's where both can be asked."""

from __future__ import annotations

import json
import logging
import sys
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flambeau.distributed as dist
from flambeau.distributed.elastic import events, metrics
from flambeau.distributed.elastic.metrics import api
from flambeau.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from flambeau.distributed.elastic.utils import data, distributed, macros
from flambeau.distributed.elastic.utils import logging as loggers
from flambeau.distributed.elastic.utils import store as meeting
from flambeau.distributed.run import config_from_args, main, parse_args
from tests import processes
from tests.distributed.ranks import HERE, ROOT, environment


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 39), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_samplers_are_pytorch_s(size, ranks, start, epoch):
    pytest.importorskip("torch")
    from torch.distributed.elastic.utils.data import ElasticDistributedSampler

    assume(start >= size or 2 * (size - start) >= -(-(size - start) // ranks) * ranks)  # PyTorch repeats them once at most
    for rank in range(ranks):
        found = []
        for kind in (data.ElasticDistributedSampler, ElasticDistributedSampler):
            try:
                sampler = kind(range(size), ranks, rank, start)
                sampler.set_epoch(epoch)
                found.append((len(sampler), len(list(sampler)), sorted(sampler) if ranks == 1 else None))
            except ValueError as error:
                found.append(("ValueError", str(error)))
        assert found[0] == found[1]


def test_ranks_of_a_sampler_have_all_from_the_start():
    got = sorted(i for rank in range(3) for i in data.ElasticDistributedSampler(range(20), 3, rank, 5))
    assert set(got) == set(range(5, 20)) and len(got) == 15


def test_epochs_follow_each_other():
    found = list(data.CyclingIterator(4, lambda epoch: iter(range(3 * epoch, 3 * epoch + epoch)), 1))
    assert found == [3, 6, 7, 9, 10, 11]


@pytest.mark.parametrize("name, values", [
    ("Event", ("a", "AGENT", 3, {"x": 1, "y": None})), ("RdzvEvent", ("a", "run", "text", "host", 5, "RUNNING", "there", 1, None, "trace")),
])  # fmt: skip
def test_events_are_pytorch_s(name, values):
    pytest.importorskip("torch")
    from torch.distributed.elastic import events as theirs

    texts = []
    for module in (events, theirs):
        kinds = {"AGENT": module.EventSource.AGENT, "RUNNING": module.NodeState.RUNNING}
        event = getattr(module, name)(*[kinds.get(v, v) if isinstance(v, str) else v for v in values])
        assert getattr(module, name).deserialize(str(event)) == event
        texts.append(event.serialize())
    assert texts[0] == texts[1]


def test_events_of_machines_are_told_to_who_listens(monkeypatch):
    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(json.loads(record.getMessage()))
    monkeypatch.setitem(events.handlers._log_handlers, "dynamic_rendezvous", handler)
    monkeypatch.setitem(events._loggers, "dynamic_rendezvous", logging.Logger("told"))
    events._loggers["dynamic_rendezvous"].addHandler(handler)
    events.construct_and_record_rdzv_event("run", "came", events.NodeState.FAILED, rank=2)
    (found,) = told
    assert found["name"].endswith("test_elastic_parts.py:test_events_of_machines_are_told_to_who_listens") and found["rank"] == 2


def test_the_launcher_tells_how_a_run_has_ended(tmp_path):
    command = [sys.executable, "-m", "flambeau", "launch", "--event-log-handler", "console", "--nproc-per-node=2", "--shutdown-timeout=5", "--no-python"]
    for program, state in (("true", "SUCCEEDED"), ("false", "FAILED")):
        done = processes.run([*command, program], env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=200)
        (event,) = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"name": "torchelastic.worker.status.')]
        assert event["name"].endswith(state) and event["metadata"]["state"] == state and event["metadata"]["role"] == "default"


def test_a_launcher_in_a_launcher_hands_its_failure_on(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "outer.json"))
    with pytest.raises(ChildFailedError, match="a mistake of rank 1"):
        main(["--nproc_per_node=2", "--shutdown-timeout=5", str(HERE / "launched.py"), "raise", str(tmp_path)])
    assert "a mistake of rank 1" in json.loads((tmp_path / "outer.json").read_text())["message"]["message"]


def test_arguments_as_torchrun_takes_them():
    with pytest.raises(ValueError, match="at the same time"):
        main(["--no-python", "--module", "x"])
    with pytest.raises(ValueError, match="no entry point 'absent'"):
        main(["--logs-specs=absent", "x.py"])
    config = config_from_args(parse_args(["--rdzv-conf='timeout=7'", "--max-rest=2", "x.py"]))[0]
    assert (config.join_timeout(), config.max_restarts) == (7.0, 2)


def test_a_failure_whose_file_is_gone_is_handed_on(tmp_path):
    first = tmp_path / "first.json"
    first.write_text(json.dumps({"message": {"message": "it broke", "extraInfo": {"timestamp": "7"}}}))
    failure = ProcessFailure(0, 1, 3, str(first))
    first.unlink()
    handed = []

    class Handler:
        def initialize(self):
            pass

        def dump_error_file(self, path, code):
            handed.append((json.loads(Path(path).read_text())["message"]["message"], code))

    def fails():
        raise ChildFailedError("x", {0: failure})

    with pytest.raises(ChildFailedError):
        record(fails, Handler())()
    assert handed == [("it broke", 3)]
    assert "elastic/errors.html" in ProcessFailure(0, 1, 3, str(first)).message


def test_metrics(capsys, monkeypatch):
    monkeypatch.setattr(api, "_handlers", {})
    monkeypatch.setattr(api, "_default", [metrics.NullMetricHandler()])
    metrics.put_metric("nowhere", 1)
    metrics.configure(metrics.ConsoleMetricHandler(), "mine")

    @metrics.prof(group="mine")
    def call(fails):
        if fails:
            raise KeyError

    call(False)
    with pytest.raises(KeyError):
        call(True)
    with pytest.warns(FutureWarning):
        metrics.publish_metric("mine", "older", 3)
    lines = [line.split("]: ")[1].split(".")[-1] for line in capsys.readouterr().out.splitlines()]
    assert [line.split("=")[0] for line in lines] == ["success", "ms", "failure", "ms", "older"]


def test_meeting_by_a_store():
    store = distributed.create_c10d_store(True, "localhost", 0, timeout=20)
    with ThreadPool(3) as pool:
        assert pool.map(lambda i: meeting.synchronize(store, f"{i}", i, 3, "a"), range(3)) == [[b"0", b"1", b"2"]] * 3
        assert pool.map(lambda i: meeting.barrier(store, 3, "b"), range(3)) == [None] * 3
    alone = dist.HashStore()
    with pytest.raises(dist.DistStoreError, match=r"missing_ranks=\[machine 1\]"):
        meeting.barrier(alone, 2, "c", 0.05, 0, "machine {}".format, 0.05)
    with pytest.raises(ValueError, match="server_port must be specified"):
        distributed.create_c10d_store(True, "localhost", world_size=2)
    assert 0 < distributed.get_free_port() < 65536


def test_names_and_loggers(monkeypatch):
    monkeypatch.setenv("LOGLEVEL", "INFO")
    assert loggers.get_logger().name == __name__ and loggers.get_logger("x").level == logging.INFO
    assert macros.substitute(["--rank=${local_rank}", "${other}"], "3") == ["--rank=3", "${other}"]
