"""The file of a pipeline: each thing that can be wrong in it is said before a step runs; what a step's key depends on; the order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flambeau.cli.main import main
from flambeau.pipeline import StepFailed, conditions, order, read, run
from flambeau.pipeline.hashes import code_files, of_path

COPY = """
[parameters]
times = 2
[steps.copy]
command = ["python", "copy.py", "{source}", "{target}", "{times}"]
inputs = { source = "in.txt" }
outputs = { target = "out/copied.txt" }
parameters = ["times"]
"""
PROGRAM = """
import sys, helper
open(sys.argv[2], "w").write(helper.change(open(sys.argv[1]).read()) * int(sys.argv[3]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in.txt").write_text("text ")
    (tmp_path / "copy.py").write_text(PROGRAM)
    (tmp_path / "helper.py").write_text("def change(text): return text.upper()\n")
    (tmp_path / "pipeline.toml").write_text(COPY)
    return tmp_path


def states(folder: Path, **options: object) -> list[str]:
    return [r.state for r in run(read(folder / "pipeline.toml"), **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change, expected",
    [
        (("in.txt", "other "), "OTHER OTHER "),
        (("helper.py", "def change(text): return text.title()\n"), "Text Text "),
        (("pipeline.toml", COPY.replace("times = 2", "times = 3")), "TEXT TEXT TEXT "),
        (("out/copied.txt", "spoilt"), "TEXT TEXT "),
        (("out/copied.txt", None), "TEXT TEXT "),
        (("unrelated.py", "1\n"), None),
    ],
)
def test_a_step_runs_when_what_it_depends_on_has_changed(
    folder: Path, change: tuple[str, str | None], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # as it is for users: stale bytecode of a helper would be run
    assert states(folder, dry=True) == ["would run"] and not (folder / "out").exists()
    assert states(folder) == ["run"] and states(folder) == ["skipped"]
    assert (folder / "out" / "copied.txt").read_text() == "TEXT TEXT "
    name, text = change
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    assert states(folder) == ["skipped" if expected is None else "run"]
    if expected is not None:
        assert (folder / "out" / "copied.txt").read_text() == expected
    assert states(folder, force=True) == ["run"]


def test_a_failed_step_leaves_its_old_outputs_and_is_run_again(folder: Path) -> None:
    assert states(folder) == ["run"]
    (folder / "helper.py").write_text("def change(text): return text[None]\n")
    for _ in range(2):
        with pytest.raises(StepFailed, match="step copy has ended with status 1"):
            states(folder)
    assert (folder / "out" / "copied.txt").read_text() == "TEXT TEXT " and len(list((folder / "out").iterdir())) == 1
    (folder / "copy.py").write_text("")
    with pytest.raises(StepFailed, match="not written its output target"):
        states(folder)


def test_a_pipeline_that_was_moved_is_up_to_date(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert states(folder) == ["run"]
    moved = folder.rename(tmp_path_factory.mktemp("elsewhere") / "moved")
    assert states(moved) == ["skipped"]
    moved.rename(folder)


STEP = "[steps.a]\ncommand = 'true'\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "there are no steps"),
        ("steps = 1", "[steps] must be a table"),
        ("[step.a]\ncommand = 'true'", "unknown key 'step'; known: mlflow, parameters, steps. Did you mean steps?"),
        (STEP + "input = { x = 'in.txt' }", "[steps.a] has the unknown key 'input'"),
        (STEP + "input = { x = 'in.txt' }", "Did you mean inputs?"),
        ("[steps.a]", "must have one of function, command and push, has none"),
        (STEP + "push = 'models'", "has command and push"),
        ("[steps.a]\nfunction = 'copy.py'", "FILE.py:NAME"),
        ("[steps.a]\nfunction = 'nothing.py:f'", "nothing.py"),
        ("[steps.a]\ncommand = 'cp {sorce} x'\ninputs = { source = 'in.txt' }", "there are scratch, source. Did you mean source?"),
        (STEP + "inputs = { x = 'on.txt' }", "no step has it among its outputs"),
        (STEP + "inputs = ['in.txt']", "must be a table of paths by name"),
        (STEP + "inputs = { class = 'in.txt' }", "'class' cannot be the name"),
        (STEP + "inputs = { x = 'in.txt' }\noutputs = { x = 'out' }", "the name x stands twice"),
        (STEP + "parameters = ['rate']", "there is no parameter rate; [parameters] has none"),
        ("[parameters]\nrate = 1\n" + STEP, "no step has the parameter rate"),
        ("[parameters]\nwhen = 2020-01-01\n" + STEP, "parameter when"),
        (STEP + "require = ['accuracy >= 0.9']", "require needs metrics"),
        (STEP + "metrics = 'm.json'\nrequire = ['accuracy is good']", "NAME COMPARISON NUMBER"),
        (STEP + "after = ['b']", "there is no step b; there are a"),
        (STEP + "outputs = { x = 'o' }\n" + STEP.replace("a]", "b]") + "outputs = { y = './o' }", "both write"),
        (STEP + "inputs = { x = 'p' }\noutputs = { y = 'q' }\n" + STEP.replace("a]", "b]") + "inputs = { x = 'q' }\noutputs = { y = 'p' }", "a -> b -> a"),
        (STEP + "inputs = { x = 'p' }\noutputs = { y = 'p' }", "in a circle: a -> a"),
        (STEP + "after = ['a']", "in a circle: a -> a"),
        ("[steps.a]\npush = 'models'", "push takes one input"),
        ("[steps.a]\npush = 'models'\ninputs = { model = 'in.txt' }", ".pt2, .onnx, .py"),
        (STEP + "[mlflow]\nurl = 'http://x'", "Did you mean uri?"),
        ("[steps.a", "pipeline.toml: "),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_said(folder: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pipeline.toml").write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        read(folder / "pipeline.toml")
    assert str(folder / "pipeline.toml") in str(caught.value)
    assert main(["pipeline", str(folder / "pipeline.toml")]) == 2
    assert message in capsys.readouterr().err


def test_what_is_wrong_in_the_call_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(folder / "pipeline.toml")
    for words, message in (
        (["nowhere.toml"], "no such file: nowhere.toml"), ([str(folder)], "this is a folder"), ([file, "cpy"], "Did you mean copy?"),
        ([file, "--set", "time=3"], "Did you mean times?"), ([file, "--set", "times"], "NAME=VALUE"),
    ):  # fmt: skip
        assert main(["pipeline", *words]) == 2
        assert message in capsys.readouterr().err
    assert not (folder / ".flambeau-pipeline").exists()


@pytest.mark.parametrize(
    "program, message",
    [
        ("def made(target): pass", "has no function make; it has made. Did you mean made?"),
        ("def make(goal): pass", "make(goal) is called with target"),
        ("def make(target): return {'loss': None}", "the metric loss must be a number, got None"),
        ("def make(target): pass", "metrics must be a table of numbers by name, got NoneType"),
        ("def make(target): target.write_text(''); return {'losses': 1}", "needs the metric loss; there are: losses. Did you mean losses?"),
        ("def make(target): target.write_text(''); return {'loss': float('nan')}", "loss <= 1 (it is nan) does not hold"),
    ],
)
def test_what_is_wrong_in_a_function_is_said(tmp_path: Path, program: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.py").write_text(program)
    (tmp_path / "pipeline.toml").write_text("[steps.a]\nfunction = 'f.py:make'\noutputs = { target = 'x' }\nmetrics = 'm.json'\nrequire = ['loss <= 1']")
    assert main(["pipeline", str(tmp_path / "pipeline.toml")]) == 1
    assert message in capfd.readouterr().err


def test_a_push_waits_for_all_conditions_but_those_of_steps_that_need_it(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_text("")
    (tmp_path / "pipeline.toml").write_text("""
[steps.push]
push = "models"
inputs = { model = "m.onnx" }
[steps.smoke]
command = "true"
after = ["push"]
metrics = "smoke.json"
require = ["ok == 1"]
[steps.evaluate]
command = "true"
metrics = "evaluate.json"
require = ["accuracy >= 0.9"]
""")
    assert list(read(tmp_path / "pipeline.toml").steps) == ["evaluate", "push", "smoke"]


@pytest.mark.parametrize("text, value, holds", [
    ("a >= 1", 1.0, True), ("a > 1", 1.0, False), ("a<=1e-3", 0.001, True), ("a < -1", -2.0, True), ("a == 1", 1.5, False), ("a != 1", 1.5, True),
    ("a != 1", float("nan"), False), ("a < inf", 3.0, True),
])  # fmt: skip
def test_conditions(text: str, value: float, holds: bool) -> None:
    assert conditions.parse(text).holds({"a": value}) is holds
    for wrong in ("", "a", "a >=", ">= 1", "a => 1", "a >= b", "a >= nan", "a >= 1 and b"):
        with pytest.raises(ValueError, match="NAME COMPARISON NUMBER"):
            conditions.parse(wrong)


def test_code_is_a_program_with_what_it_imports_beside_it(tmp_path: Path) -> None:
    for name, text in {
        "main.py": "import numpy, one\nfrom package import part\n", "one.py": "from package.deep import x\n", "other.py": "", "package/__init__.py": "",
        "package/part.py": "from . import sibling\nimport main\n", "package/sibling.py": "", "package/deep.py": "", "package/unused.py": "",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {str(p.relative_to(tmp_path)) for p in code_files([tmp_path / "main.py"])}
    assert found == {"main.py", "one.py", "package/__init__.py", "package/part.py", "package/sibling.py", "package/deep.py"}


def test_hashes_of_folders_see_names_and_contents(tmp_path: Path) -> None:
    seen = set()
    for files in ({"a": "1"}, {"b": "1"}, {"a": "2"}, {"a": "1", "c/a": "1"}, {}):
        folder = tmp_path / str(len(seen))
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        folder.mkdir(exist_ok=True)
        seen.add(of_path(folder))
        (folder / ".hidden").write_text("")
        assert of_path(folder) in seen
    assert len(seen) == 5


def test_of_the_steps_that_can_run_next_the_first_written_comes() -> None:
    assert order.ordered({"d": ["b"], "c": [], "b": ["a"], "a": []}) == ["c", "a", "b", "d"]
    with pytest.raises(ValueError, match=r"a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c"):
        order.ordered({"a": ["b"], "b": ["c"], "c": ["a"]})
