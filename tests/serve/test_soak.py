"""The short form of `benchmarks/serving.py --soak`: reloads, a killed worker, malformed bodies, slow and vanishing clients, and no wrong answer."""

import importlib.util
import json
from pathlib import Path

import tests.serve.running  # skips where a package is missing  # noqa: F401


def test_no_answer_is_wrong_and_none_is_lost(tmp_path, capsys):
    path = Path(__file__).parents[2] / "benchmarks" / "serving.py"
    spec = importlib.util.spec_from_file_location("serving_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "models").mkdir()
    assert module.soak(tmp_path / "models", 8.0) == 0
    counts = json.loads(capsys.readouterr().out.partition("}")[0] + "}")
    assert counts["right"] > 100 and counts["reloads"] and counts["kills"] and counts["malformed"] and counts["vanished"] and counts["slow"], counts
