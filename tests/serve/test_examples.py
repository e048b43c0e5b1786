"""The examples: the manifests are valid Kubernetes objects that fit the command's options; the page's program runs."""

import argparse
import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "examples" / "serving" / "kubernetes.yaml"


def test_a_linter_accepts_the_manifests():
    yaml, validate = pytest.importorskip("yaml"), pytest.importorskip("kubernetes_validate")
    objects = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert [o["kind"] for o in objects] == ["Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler"]
    for o in objects:
        validate.validate(o, "1.30", strict=True)
    broken = {**objects[1], "spec": {"prots": []}}
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.30", strict=True)


def test_the_manifests_words_are_options_of_the_command():
    from flambeau.cli import main

    words = re.search(r"args: (\[.*\])", MANIFEST.read_text())
    assert words is not None
    command = ast.literal_eval(words[1])
    options = main._parser().parse_args(command[1:])
    assert isinstance(options, argparse.Namespace) and options.command == "serve" and options.workers == 2
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", MANIFEST.read_text())[1])
    assert grace > options.drain + 5


def test_the_page_is_followed(tmp_path, monkeypatch):
    from tests.serve.running import Client, running

    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.S)
    (tmp_path / "models" / "digits" / "1").mkdir(parents=True)
    (tmp_path / "models" / "digits" / "config.toml").write_text(re.search(r"```toml\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(), re.S)[1])
    monkeypatch.chdir(tmp_path)
    exec(compile(blocks[0].replace("import torch\nfrom torch", "import flambeau as torch\nfrom flambeau"), "make.py", "exec"), {})
    with running(tmp_path / "models") as server:
        assert Client(server.port).ask("GET", "/v2/models/digits")[1]["outputs"][0]["name"] == "scores"
        printed: list[object] = []
        exec(compile(blocks[1].replace(":8000", f":{server.port}"), "ask.py", "exec"), {"print": lambda x: printed.append(x)})
        assert printed == [[1, 10]]
