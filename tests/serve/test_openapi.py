"""schemathesis reads the server's OpenAPI document and finds no answer that contradicts it."""

import json
import sys
from pathlib import Path

import pytest

import flambeau as torch
from flambeau.export.archive import VOCABULARY
from tests import processes
from tests.serve.running import Affine, put, running
from tests.serve.test_language import _MODEL
from tests.serve.test_text import LETTERS, MODEL, exported

# JSON Schema cannot say that data has as many elements as shape says: such requests are valid by the document, and rightly refused. A timeout of 1 microsecond
# rightly ends in 504.
_CONFIG = """
[[operations]]
include-path-regex = "(/infer|:predict)$"
checks.positive_data_acceptance.enabled = false
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "504"]
[[operations]]
include-path-regex = "^/v1/(chat/)?completions$"
checks.positive_data_acceptance.enabled = false
"""


def test_schemathesis_finds_nothing(tmp_path):
    pytest.importorskip("schemathesis")
    put(tmp_path / "models", "affine", 1, Affine())
    (tmp_path / "models" / "letters" / "1").mkdir(parents=True)
    (tmp_path / "models" / "letters" / "1" / "model.py").write_text(_MODEL.replace('ord("!")', "-1"))  # which fails on purpose
    at = tmp_path / "models" / "words" / "1"  # tensors and texts
    at.mkdir(parents=True)
    torch.export.save(exported(MODEL), str(at / "model.pt2"), extra_files={VOCABULARY: json.dumps({"tokens": list(LETTERS)})})
    (tmp_path / "schemathesis.toml").write_text(_CONFIG)
    tool = Path(sys.executable).parent / "schemathesis"
    with running(tmp_path / "models", allow_code=True) as server:
        command = [
            str(tool), "--config-file", str(tmp_path / "schemathesis.toml"), "run", f"http://127.0.0.1:{server.port}/openapi.json", "--max-examples", "8",
            "--phases", "examples,coverage,fuzzing", "--seed", "1", "--no-color", "--max-failures", "5",
        ]  # fmt: skip
        made = processes.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)  # where it leaves what it remembers
    assert made.returncode == 0, made.stdout[-6000:] + made.stderr[-2000:]
