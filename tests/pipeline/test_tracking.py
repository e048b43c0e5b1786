"""Runs of a pipeline in MLflow, where it is installed; the error that names the extra where it is not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flambeau.cli.main import main
from flambeau.pipeline import StepFailed, read, run

FILE = """
[parameters]
rate = 0.5
[steps.train]
function = "f.py:train"
parameters = ["rate"]
metrics = "m.json"
require = ["loss <= 1"]
[mlflow]
experiment = "tries"
uri = "URI"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "f.py").write_text("def train(rate): return {'loss': rate * 1.5, 'test': {'loss': 2}}")
    (tmp_path / "pipeline.toml").write_text(FILE.replace("URI", (tmp_path / "runs").as_uri()))
    return tmp_path / "pipeline.toml"


def test_the_extra_is_named(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    assert main(["pipeline", str(file)]) == 2
    assert "pip install 'flambeau[mlflow]'" in capsys.readouterr().err
    assert not (file.parent / "m.json").exists()


def test_runs_are_logged(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 wants a database or a server; a folder of files does for a test
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(file.parent / "runs").as_uri())
    run(read(file))
    run(read(file))
    with pytest.raises(StepFailed, match="loss <= 1"):
        run(read(file, {"rate": 2.0}))
    experiment = client.get_experiment_by_name("tries")
    failed, again, first = client.search_runs([experiment.experiment_id])
    assert [r.info.status for r in (first, again, failed)] == ["FINISHED", "FINISHED", "FAILED"]
    assert [r.data.params for r in (first, failed)] == [{"rate": "0.5"}, {"rate": "2.0"}]
    assert [r.data.tags["flambeau.train"] for r in (first, again, failed)] == ["run", "skipped", "run"]
    assert {n: v for n, v in first.data.metrics.items() if n != "train.seconds"} == {"train.loss": 0.75, "train.test.loss": 2.0}
    assert [a.path for a in client.list_artifacts(first.info.run_id, "train")] == ["train/m.json"]


def test_what_mlflow_refuses_is_said(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mlflow")
    file.write_text(FILE.replace("URI", "nothing-known://x"))
    assert main(["pipeline", str(file)]) == 2
    assert "MLflow at nothing-known://x refuses" in capsys.readouterr().err
