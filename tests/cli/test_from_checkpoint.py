"""The README's table "From a checkpoint": each command as it stands there, and the answers of what it has written beside the network's own."""

from __future__ import annotations

import functools
import http.client
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.cli import networks
from tests import processes
from tests.deploy import gpu

ROOT = Path(__file__).resolve().parents[2]
MODELS = ("digits", "gpt")
CHECKPOINTS = {"digits": "flambeau-demo/model.pt", "gpt": "flambeau-demo/gpt.pt"}
SHORT = {"digits": ["--epochs", "2"], "gpt": ["--steps", "30"]}  # of the trainings, which the page leaves whole
PACKAGES = {"ONNX": "onnx", "page": "ziglang", "AArch64": "ziglang", "HTTP": "httptools", "checkpoint": "tqdm"}


@functools.cache
def rows() -> dict[str, dict[str, list[str]]]:
    """{what: {model: the words of the command}}."""
    part = (ROOT / "README.md").read_text().partition("### From a checkpoint\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+) \| `flambeau ([^|]+)` \| `flambeau ([^|]+)` \|$", part, re.M)
    return {what: dict(zip(MODELS, [digits.split(), gpt.split()], strict=True)) for what, digits, gpt in found}


def command(word: str, model: str) -> list[str]:
    """The command of the row whose text has a word."""
    for part, package in PACKAGES.items():
        if part == word:
            pytest.importorskip(package)
    (what,) = [w for w in rows() if word in w]
    return rows()[what][model]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}


def run(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = processes.python("-m", "flambeau", *words, cwd=folder, env=environment(), timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where both trainings have left their checkpoints."""
    made = tmp_path_factory.mktemp("user")
    pytest.importorskip("matplotlib")
    for model in MODELS:
        run(made, *command("a checkpoint", model), *SHORT[model])
    return made


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def given(model: str) -> Any:
    random = np.random.default_rng(7)
    return random.random((7, 1, 8, 8), np.float32) if model == "digits" else random.integers(0, 90, (3, 41))


@functools.cache
def _answers(checkpoint: Path, model: str) -> Any:
    trained = networks.read(str(checkpoint))
    assert trained.name == model
    return trained.call({trained.form.inputs[0].name: flambeau.from_numpy(given(model))}).numpy()


def check(folder: Path, model: str, found: Any, most: float = 1e-5) -> None:
    """Answers for `given` are those of the network, but for `most` of the greatest."""
    wanted = _answers(folder / CHECKPOINTS[model], model)
    found = np.asarray(found, wanted.dtype)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < most * np.abs(wanted).max()
    assert np.isfinite(found).all()


def test_the_table_has_a_row_for_each() -> None:
    assert len(rows()) == 10
    for commands in rows().values():
        for name, words in commands.items():
            assert words[0] in ("demo", "export", "build", "serve") and (words[0] == "demo" or words[1] == CHECKPOINTS[name])


# .pt2 and its kin: what --to is, and how far the answers may be.
@pytest.mark.parametrize(("word", "ending", "most"), [("program", "", 1e-5), ("8 bits", "-int8", 0.03), ("4 bits", "-int4", 0.3)])
def test_programs_that_pytorch_loads(folder: Path, model: str, word: str, ending: str, most: float) -> None:
    said = run(folder, *command(word, model)).stdout
    file = folder / f"{model}{ending}.pt2"
    assert f"{file.stat().st_size:,} bytes" in said and "batch: any size from 1 to" in said
    with flambeau.no_grad():
        ours = flambeau.export.load(file).module()(flambeau.from_numpy(given(model))).numpy()
    check(folder, model, ours, most)
    if ending:
        full, small = (sum([t.nbytes for t in flambeau.export.load(f).state_dict.values()]) for f in (folder / f"{model}.pt2", file))
        assert small < (0.5 if ending == "-int8" else 0.45) * full
    torch = pytest.importorskip("torch")
    theirs = torch.export.load(file).module()(torch.from_numpy(given(model))).detach().numpy()
    assert np.abs(ours - theirs).max() < 1e-4 * np.abs(theirs).max()


def test_an_onnx_model(folder: Path, model: str) -> None:
    run(folder, *command("ONNX", model))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(folder / f"{model}.onnx"), providers=["CPUExecutionProvider"])
    (x,) = session.get_inputs()
    assert (x.name, x.shape[0]) == ({"digits": "x", "gpt": "tokens"}[model], "batch")
    check(folder, model, session.run(None, {x.name: given(model)})[0])
    run(folder, *command("4 bits", model), "-o", "small.onnx")
    assert (folder / "small.onnx").stat().st_size < 0.45 * (folder / f"{model}.onnx").stat().st_size
    check(folder, model, runtime.InferenceSession(str(folder / "small.onnx")).run(None, {x.name: given(model)})[0], 0.3)


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is wanted")
def test_a_library_called_from_c(folder: Path, model: str) -> None:
    run(folder, *command("this machine", model))
    at, x = folder / model, given(model)
    processes.run(["cc", "example.c", "-o", "example", "-L.", f"-l{model}", "-Wl,-rpath,$ORIGIN"], cwd=at, check=True)
    sizes = [str(n) for n in (x.shape[:1] if model == "digits" else x.shape)]
    done = processes.run([str(at / "example"), str(at / f"{model}.weights"), *sizes], input=x.tobytes(), capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    check(folder, model, np.frombuffer(done.stdout, np.float32).reshape(_answers(folder / CHECKPOINTS[model], model).shape))


def test_a_library_for_aarch64(folder: Path) -> None:  # of one model: tests/deploy run such libraries
    run(folder, *command("AArch64", "digits"))
    head = (folder / "digits-arm" / "libdigits.so").read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and int.from_bytes(head[18:20], "little") == 183  # EM_AARCH64
    assert rows()["the same on AArch64"]["gpt"] == [w.replace("model.pt", "gpt.pt").replace("digits", "gpt") for w in command("AArch64", "digits")]


def test_shaders_for_webgpu(folder: Path, model: str) -> None:
    run(folder, *command("WebGPU", model))
    assert {p.name for p in (folder / f"{model}-gpu").iterdir()} == {f"{model}.mjs", f"{model}.d.mts", f"{model}.weights", "package.json"}
    if gpu.device() is not None:  # tests/deploy/test_webgpu_page.py runs such modules
        check(folder, model, gpu.Model(networks.read(str(folder / CHECKPOINTS[model])).exported())(given(model))[0])


def test_a_page(folder: Path, model: str) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is wanted")
    run(folder, *command("page", model))
    text = (folder / f"{model}.html").read_text()
    begin = text.index('<script type="module">') + len('<script type="module">')
    x = given(model)
    if model == "gpt":
        x = x[:1]  # a page writes one text
    kind, items = ("Float32Array", "") if model == "digits" else ("BigInt64Array", "n")
    data = ", ".join([f"{n}{items}" for n in x.ravel().tolist()])
    ask = f"const [y] = globalThis.model.run({{data: new {kind}([{data}]), shape: {list(x.shape)}}});\nconsole.log(JSON.stringify([y.shape, ...y.data]));\n"
    ends = "globalThis.model = model;\n"
    (folder / "page.mjs").write_text(text[begin : text.index(ends) + len(ends)] + ask)
    done = processes.run([node, "page.mjs"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    shape, *found = json.loads(done.stdout)
    made = np.array(found, np.float32).reshape(shape)
    check(folder, model, made if model == "digits" else np.concatenate([made, _answers(folder / CHECKPOINTS[model], model)[1:]]), 1e-4)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def test_a_server(folder: Path, model: str) -> None:
    for package in ("httptools", "uvloop", "orjson", "prometheus_client"):
        pytest.importorskip(package)
    port, x = free_port(), given(model)
    words = [sys.executable, "-m", "flambeau", *command("HTTP", model), "--port", str(port)]

    def ask(method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"{}")

    with processes.started(words, cwd=folder, env=environment(), stderr=subprocess.DEVNULL) as server:
        end = time.monotonic() + 200
        while True:
            try:
                if ask("GET", "/v2/health/ready")[0] == 200:
                    break
            except OSError:
                pass
            assert server.poll() is None and time.monotonic() < end
            time.sleep(0.2)
        name, kind = ("x", "FP32") if model == "digits" else ("tokens", "INT64")
        found = []
        for part in (x[:1], x[1:]):
            sent = {"inputs": [{"name": name, "shape": list(part.shape), "datatype": kind, "data": part.ravel().tolist()}]}
            status, answer = ask("POST", f"/v2/models/{model}/infer", sent)
            assert status == 200, answer
            found.append(np.array(answer["outputs"][0]["data"], np.float32).reshape(answer["outputs"][0]["shape"]))
        assert ask("GET", f"/v2/models/{model}/config")[1]["max_batch_size"] > 1
        check(folder, model, np.concatenate(found))
        if model == "gpt":
            status, answer = ask("POST", "/v1/completions", {"model": "gpt", "prompt": "The", "max_tokens": 5, "temperature": 0})
            assert (status, answer["choices"][0]["text"]) == (200, goes_on(folder / CHECKPOINTS["gpt"], "The", 5)), answer
        server.terminate()
        assert server.wait(60) == 0  # and it takes its folder away


def goes_on(checkpoint: Path, text: str, count: int) -> str:
    """The likeliest letters after a text, by the network itself."""
    trained = networks.read(str(checkpoint))
    letters, made = trained.facts["letters"], text
    for _ in range(count):
        made += letters[int(trained.call({"tokens": flambeau.tensor([[letters.index(c) for c in made]])})[0, -1].argmax())]
    return made[len(text) :]


NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.table, self.layer = nn.Embedding(9, width), nn.Linear(width, 2)

    def forward(self, ids, weight=None, *, scale):
        x = self.layer(self.table(ids)).sum(1)
        return {"y": x * scale, "n": ids.sum(1)}

number = 3
"""


SAVE = """
import torch, net
state = net.Net().state_dict()
torch.save({"epoch": 3, "model": {f"module.{k}": v for k, v in state.items()}}, "w.pt")  # as a wrapped module leaves it
torch.save({"network": "net.py:Net", "model": state}, "says.pt")
torch.save({"arguments": {"width": 5}, "model": state}, "wide.pt")
torch.save([1, 2], "list.pt")
torch.save({"a": torch.ones(2)}, "other.pt")
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of the user's, and checkpoints of it."""
    made = tmp_path_factory.mktemp("own")
    (made / "net.py").write_text(NET)
    (made / "save.py").write_text(SAVE)
    run(made, "run", "save.py")
    return made


def test_a_network_of_ones_own(own: Path) -> None:
    named = ["--network", "net.py:Net", "--input", "ids:batch,length:int64", "--input", "scale:batch,2", "--range", "length=1..7"]
    said = run(own, "export", "w.pt", "--to", "pt2", *named).stdout
    assert "length: any size from 1 to 7" in said and "differs from the network by 0.0e+00" in said
    module = flambeau.export.load(own / "w.pt2").module()
    ids, scale = flambeau.tensor([[1, 2, 3], [4, 5, 6]]), flambeau.ones(2, 2)
    assert module(ids, scale=scale)["n"].tolist() == [6, 15]
    if importlib.util.find_spec("onnx"):
        run(own, "export", "w.pt2", "--to", "onnx", "-o", "again.onnx")  # a program can be exported on
        model = flambeau.onnx.load(str(own / "again.onnx"))
        assert flambeau.allclose(model(ids, scale)[0], module(ids, scale=scale)["y"], atol=1e-6)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["none.pt", "--to", "pt2"], "No such file"),
        ([".", "--to", "pt2"], ". is a folder; give the file of a checkpoint"),
        (["net.py", "--to", "pt2"], "net.py is no checkpoint that can be read without executing it"),
        (["list.pt", "--to", "pt2"], "list.pt holds no state_dict (itself, or under 'model', 'state_dict', 'model_state_dict'), but list"),
        (["w.pt", "--to", "pt2"], "has the weights of none of digits, mnist, gpt: give --network FILE.py:CLASS"),
        (["says.pt", "--to", "pt2"], "says that it belongs to 'net.py:Net'; there is no network 'net.py:Net'"),  # nothing that a file names is executed
        (["wide.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "ids:2,3:int64"], "table.weight: the network has (9, 5), the checkpoint (9, 4)"),
        (["w.pt", "--to", "pt2", "--network", "resnet"], "there is no network 'resnet': give one of digits, mnist, gpt, or FILE.py:CLASS"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Net"], "give each of ids, weight, scale as --input NAME:SIZES[:DTYPE]"),
        (["w.pt", "--to", "pt2", "--network", "nut.py:Net"], "no such file: nut.py"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Nut"], "net.py has no 'Nut'"),
        (["w.pt", "--to", "pt2", "--network", "net.py:number"], "it must be a class of a torch.nn.Module, or a function that makes one"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "idx:batch"], "takes ids, weight, scale, not 'idx'"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "ids:batch:int65"], "there is no dtype 'int65'"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "ids:-1"], "a size must be a number, or a name if it is dynamic; got '-1'"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "ids:batch", "--range", "b=1..2"], "the dynamic sizes are batch"),
        (["w.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "ids:batch", "--range", "batch=3..2"], "write NAME=LEAST..MOST"),
        (["other.pt", "--to", "pt2", "--network", "net.py:Net", "--input", "ids:2,3:int64"], "the checkpoint has no layer.bias, layer.weight, table.weight"),
        (["w.pt", "--to", "page", "--network", "net.py:Net", "--input", "ids:2,3:int64"], "there are pages for the networks digits and gpt, not for w"),
        (["w.pt", "--to", "pt2", "--group", "32", "--network", "net.py:Net", "--input", "ids:2,3:int64"], "--group is of --to int8 and int4, not of pt2"),
    ],
)
def test_what_is_wrong_is_said(own: Path, words: list[str], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if "--network" in words and "net.py" in " ".join(words):  # runs Python as torch: in a process of its own
        said = run(own, "export", *words, code=1).stderr
    else:
        from flambeau.cli.main import main

        monkeypatch.chdir(own)
        assert main(["export", *words]) == 1
        said = capsys.readouterr().err
    assert text in said and said.startswith("flambeau export: ") and said.count("\n") == 1
