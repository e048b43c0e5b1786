"""Libraries as WebAssembly: Node gives the answers of Python, at every size; what is wrong is an error in JavaScript."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.deploy import build
from tests import processes
from tests.deploy import models

NODE = shutil.which("node")
LINKER = importlib.util.find_spec("ziglang") is not None or shutil.which("wasm-ld")
pytestmark = pytest.mark.skipif(not (NODE and LINKER), reason="node and a linker for WebAssembly (ziglang) are wanted")

RUN = """
import fs from 'node:fs';
const {load} = await import(process.argv[2]);
const model = await load();
const answers = [];
for (const {array, data, shape} of JSON.parse(fs.readFileSync(0, 'utf8'))) {
  try {
    const values = array.startsWith('Big') ? data.map(BigInt) : data;
    const results = model.run({data: new globalThis[array](values), shape});
    answers.push(results.map((r) => ({name: r.name, shape: r.shape, data: Array.from(r.data, Number)})));
  } catch (error) {
    answers.push(`${error.name}: ${error.message}`);
  }
}
console.log(JSON.stringify(answers));
"""


PROBE = """
const text = (await import('node:fs')).readFileSync(0, 'utf8');
console.log(WebAssembly.validate(new Uint8Array(JSON.parse(`[${text}]`))));
"""


def _knows_relaxed(flags: list[str]) -> bool:
    """Whether Node has relaxed SIMD with these flags."""
    program = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0, *[65, 1, 253, 15] * 3, 253, 133, 2, 11]
    done = processes.run([str(NODE), *flags, "--input-type=module", "-e", PROBE], input=",".join(map(str, program)), capture_output=True, text=True)
    return done.stdout == "true\n"


def in_node(folder: Path, name: str, calls: list[dict[str, Any]], flags: list[str] | None = None) -> Any:
    """What Node gives for each call, an error as its text."""
    (folder / "run_test.mjs").write_text(RUN)
    command = [str(NODE), *(flags or []), str(folder / "run_test.mjs"), str(folder / f"{name}.mjs")]
    done = processes.run(command, input=json.dumps(calls), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(x: Any) -> dict[str, Any]:
    return {"array": "BigInt64Array" if x.dtype == np.int64 else "Float32Array", "data": x.reshape(-1).tolist(), "shape": list(x.shape)}


def test_the_digits_in_node(tmp_path: Path) -> None:
    program = models.digits()
    files = {p.name: p.stat().st_size for p in build(program, "wasm32", tmp_path, name="digits")}
    assert set(files) == {"digits.wasm", "digits.relaxed.wasm", "digits.mjs", "digits.d.mts", "digits.weights", "package.json"}
    assert files["digits.wasm"] < 100_000
    images = [np.random.default_rng(n).normal(size=(n, 1, 8, 8)).astype("float32") for n in (1, 7, 128, 64, 2)]
    wrong = [{"array": "Float32Array", "data": [0] * 64, "shape": s} for s in ([0, 1, 8, 8], [257, 1, 8, 8], [2, 1, 8, 8], [1, 8, 8])]
    answers = in_node(tmp_path, "digits", [*map(call, images), *wrong, {"array": "Float64Array", "data": [0] * 64, "shape": [1, 1, 8, 8]}, call(images[0])])
    for x, (found,) in zip(images, answers, strict=False):
        with torch.no_grad():
            expected = program.module()(torch.from_numpy(x)).numpy()
        assert found["shape"] == [len(x), 10] and np.abs(np.reshape(found["data"], (-1, 10)) - expected).max() < 1e-5
    zero, many, other, dims, kind, again = answers[len(images) :]
    assert zero == "RangeError: digits: sizes[0], dim 0 of input x, must be from 1 to 256: it is 0" and many.endswith("it is 257")
    assert other == "RangeError: digits: x must have shape [2,1,8,8]; it has [2,1,8,8] and 64 elements"
    assert dims == "RangeError: digits: x has 4 dims" and kind == "TypeError: digits: x.data must be a Float32Array"
    assert again == answers[0]
    relaxed = next((flags for flags in ([], ["--experimental-wasm-relaxed-simd"]) if _knows_relaxed(flags)), None)
    if relaxed is not None:  # the other code is near, and was taken: a product is rounded once there
        near = in_node(tmp_path, "digits", [*map(call, images)], relaxed)
        for (a,), (b,) in zip(near, answers, strict=False):
            assert a["shape"] == b["shape"] and np.abs(np.subtract(a["data"], b["data"])).max() < 1e-5
        assert near != answers[: len(images)]
    package = json.loads((tmp_path / "package.json").read_text())
    assert all((tmp_path / f).exists() for f in package["files"]) and package["type"] == "module"


def test_a_small_gpt_in_node(tmp_path: Path) -> None:
    program = models.gpt()
    build(program, "wasm32", tmp_path, name="gpt", weights_inside=True)
    texts = [np.random.default_rng(n).integers(0, 30, (1, n)) for n in (1, 2, 5, 17, 40)]
    answers = in_node(tmp_path, "gpt", [*map(call, texts), {"array": "BigInt64Array", "data": [30], "shape": [1, 1]}])
    for x, (found,) in zip(texts, answers, strict=False):
        with torch.no_grad():
            expected = program.module()(torch.from_numpy(x)).numpy()
        assert np.abs(np.reshape(found["data"], expected.shape) - expected).max() < 1e-5
    assert answers[-1] == "RangeError: gpt_run: index 30 is out of bounds for dimension with size 30"


class Functions(torch.nn.Module):
    """What needs multiply-adds that are rounded once, on machines that have none."""

    def forward(self, x: Any) -> Any:
        y = x.double()
        return [f(v) for v in (x, y) for f in (torch.exp, torch.sin, torch.cos, torch.tanh, torch.erf, torch.log1p, torch.expm1, torch.lgamma)] + [
            torch.pow(x.abs(), 2.7), torch.pow(y.abs(), 2.7), torch.log(y.abs()), torch.log(x.abs()), torch.tan(x), torch.atan2(x, x.flip(0)),
        ]  # fmt: skip


def test_functions_are_as_exact_as_elsewhere(tmp_path: Path) -> None:
    program = torch.export.export(Functions(), (torch.randn(203),))
    build(program, "wasm32", tmp_path, name="functions")
    x = np.concatenate([np.linspace(-0.9, 30.0, 103), np.random.default_rng(0).uniform(0, 1e4, 100)]).astype("float32")
    (found,) = in_node(tmp_path, "functions", [call(x)])
    with torch.no_grad():
        expected = program.module()(torch.from_numpy(x))
    for i, (f, e) in enumerate(zip(found, expected, strict=True)):
        wanted = e.numpy()
        values = np.array([np.nan if v is None else v for v in f["data"]], wanted.dtype)
        finite = np.isfinite(wanted) & (np.abs(wanted) > 1e-30)
        error = np.abs(values - wanted)[finite] / np.spacing(np.abs(wanted[finite]))
        assert error.max() <= 4, (i, error.max(), x[finite][error.argmax()])


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_of_8_and_4_bits(bits: int, tmp_path: Path) -> None:
    program = models.coded(bits)
    build(program, "wasm32", tmp_path, name="coded")
    inputs = [np.random.default_rng(batch).normal(size=(batch, 100)).astype("float32") for batch in (1, 7, 8, 9, 32)]
    for x, (made,) in zip(inputs, in_node(tmp_path, "coded", [call(x) for x in inputs]), strict=True):
        with torch.no_grad():
            expected = program.module()(torch.from_numpy(x)).numpy()
        assert np.abs(np.array(made["data"]).reshape(made["shape"]) - expected).max() < 1e-4 * np.abs(expected).max()
