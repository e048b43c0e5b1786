"""The ES module of WebGPU in headless Chromium, whose software adapter computes: the digits' network and a small GPT give Python's answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.deploy import build
from flambeau.export import ExportedProgram
from tests.deploy import chromium, models

PAGE = """<!doctype html><body><script type="module">
globalThis.state = 'starting';
try {
  const adapter = await navigator.gpu?.requestAdapter();
  globalThis.state = adapter ? 'ready' : 'none';
} catch (error) { globalThis.state = `${error}`; }
</script>"""
MODEL = """<!doctype html><body><script type="module">
MODULE
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
globalThis.kinds = {Float32Array, Float64Array, BigInt64Array};
try {
  globalThis.model = await load({weights: bytes('WEIGHTS')});
  globalThis.ask = async ({array, data, shape}) => {
    try {
      const values = array.startsWith('Big') ? data.map(BigInt) : data;
      const results = await model.run({data: new kinds[array](values), shape});
      return results.map((r) => ({name: r.name, shape: r.shape, data: Array.from(r.data, Number)}));
    } catch (error) { return `${error.name}: ${error.message}`; }
  };
  globalThis.layOut = layOut;
  globalThis.state = 'ready';
} catch (error) { globalThis.state = `${error}`; }
</script>"""


@cache
def has_gpu() -> bool:
    """Whether there is a Chromium whose pages find an adapter."""
    if chromium.PROGRAM is None:
        return False
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.html"
        path.write_text(PAGE)
        page = chromium.Page(path.as_uri(), gpu=True)
        try:
            page.wait("!!globalThis.state && state !== 'starting'")
            return bool(page.value("state") == "ready")
        finally:
            page.close()


@pytest.fixture
def gpu_page(tmp_path: Path) -> Iterator[Any]:
    if not has_gpu():
        pytest.skip("a Chromium with WebGPU (SwiftShader does) is wanted")
    pages: list[chromium.Page] = []

    def opened(program: ExportedProgram, name: str) -> chromium.Page:
        build(program, "webgpu", tmp_path, name=name)
        module = (tmp_path / f"{name}.mjs").read_text().replace("export class", "class").replace("export async", "async").replace("export function", "function")
        weights = base64.b64encode((tmp_path / f"{name}.weights").read_bytes()).decode()
        (tmp_path / f"{name}.html").write_text(MODEL.replace("MODULE", module).replace("WEIGHTS", weights))
        page = chromium.Page((tmp_path / f"{name}.html").as_uri(), gpu=True)
        pages.append(page)
        page.wait("!!globalThis.state")
        assert page.value("state") == "ready"
        return page

    yield opened
    for page in pages:
        page.close()


def ask(page: chromium.Page, array: str, data: list[Any], shape: list[int]) -> Any:
    return page.value(f"ask({json.dumps({'array': array, 'data': data, 'shape': shape})})")


def test_the_digits(gpu_page: Any) -> None:
    program = models.digits()
    page = gpu_page(program, "digits")
    for n in (1, 7, 64, 2, 10):
        x = np.random.default_rng(n).normal(size=(n, 1, 8, 8)).astype("float32")
        with torch.no_grad():
            expected = program.module()(torch.from_numpy(x)).numpy()
        (found,) = ask(page, "Float32Array", x.reshape(-1).tolist(), list(x.shape))
        assert found["shape"] == [n, 10] and np.abs(np.reshape(found["data"], (n, 10)) - expected).max() < 1e-5
    zeros = [0] * 64
    assert ask(page, "Float32Array", zeros, [0, 1, 8, 8]) == "RangeError: digits: sizes[0], dim 0 of input x, must be from 1 to 256: it is 0"
    assert ask(page, "Float32Array", zeros, [2, 1, 8, 8]) == "RangeError: digits: x must have shape [2,1,8,8]; it has [2,1,8,8] and 64 elements"
    assert ask(page, "Float32Array", zeros, [1, 8, 8]) == "RangeError: digits: x has 4 dims"
    assert ask(page, "Float64Array", zeros, [1, 1, 8, 8]) == "TypeError: digits: x.data must be a Float32Array"
    assert ask(page, "Float32Array", zeros, [1, 1, 8, 8])[0]["shape"] == [1, 10]
    # Blocks that live at the same time lie apart, and memory is used again.
    assert page.value("layOut([[100, -1, 3], [100, 0, 1], [100, 1, 2], [100, 2, 3]])") == [[0, 128, 256, 128], 384]


def test_a_small_gpt(gpu_page: Any) -> None:
    program = models.gpt(batches=True)
    page = gpu_page(program, "gpt")
    for batch, length in ((1, 1), (1, 2), (3, 17), (8, 40)):
        x = np.random.default_rng(length).integers(0, 30, (batch, length))
        with torch.no_grad():
            expected = program.module()(torch.from_numpy(x)).numpy()
        (found,) = ask(page, "BigInt64Array", x.reshape(-1).tolist(), list(x.shape))
        assert np.abs(np.reshape(found["data"], expected.shape) - expected).max() < 1e-5
    assert ask(page, "BigInt64Array", [30], [1, 1]) == "RangeError: gpt: index 30 is out of bounds for dimension with size 30"
    assert ask(page, "BigInt64Array", [1 << 40], [1, 1]).startswith("RangeError: gpt: tokens has 1099511627776, which needs more than the 32 bits")
    assert len(ask(page, "BigInt64Array", [3], [1, 1])[0]["data"]) == 30
