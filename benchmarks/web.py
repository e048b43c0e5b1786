"""Models as WebAssembly in Node against TensorFlow.js and ONNX Runtime Web, on one thread: `python benchmarks/web.py FOLDER [--rounds 20] [--flag FLAG]`.

FOLDER has the two: `npm install onnxruntime-web @tensorflow/tfjs-core @tensorflow/tfjs-backend-wasm` there. Each side has the same weights and
inputs, and gives its result as an array; the results are compared first. TensorFlow.js gets its inputs as tensors that it holds already, the others
copy them at each call. Printed is Node's processor time of a call, the least of the rounds, which go by turns. `--flag
--experimental-wasm-relaxed-simd` is what Node 20 needs for relaxed SIMD.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import flambeau as torch
from flambeau import nn
from flambeau.cli.demo import DigitNet
from flambeau.deploy import build


class Product(nn.Module):
    """A product of two matrices."""

    def forward(self, a: Any, b: Any) -> Any:
        return a @ b


def models() -> list[tuple[str, str, nn.Module, tuple[Any, ...], float]]:
    """(name, words, module, inputs, floating-point operations)."""
    torch.manual_seed(0)
    product = (torch.randn(512, 512), torch.randn(512, 512))
    cases: list[tuple[str, str, nn.Module, tuple[Any, ...], float]] = [("matmul", "product of 512 x 512", Product(), product, 2 * 512**3)]
    for channels, size in ((64, 56), (256, 14)):
        words = f"convolution 3x3, {channels} channels, {size} x {size}"
        layer = nn.Conv2d(channels, channels, 3, padding=1)
        cases.append((f"conv{channels}", words, layer, (torch.randn(1, channels, size, size),), 2 * 9 * channels**2 * size**2))
    for batch in (1, 16):
        cases.append((f"digits{batch}", f"digits' network, batch {batch}", DigitNet().eval(), (torch.randn(batch, 1, 8, 8),), batch * 2.7e6))
    return cases


NODE = r"""
import fs from 'node:fs';
import {createRequire} from 'node:module';
const [packages, rounds] = [process.argv[2], Number(process.argv[3])];
const require = createRequire(packages + '/');
const ort = require('onnxruntime-web/wasm');
ort.env.wasm.numThreads = 1;
const tf = require('@tensorflow/tfjs-core');
const wasm = require('@tensorflow/tfjs-backend-wasm');
wasm.setWasmPaths(packages + '/node_modules/@tensorflow/tfjs-backend-wasm/wasm-out/');
tf.env().set('WASM_HAS_MULTITHREAD_SUPPORT', false);
await tf.setBackend('wasm');
const numbers = (path) => { const b = fs.readFileSync(path); return new Float32Array(b.buffer, b.byteOffset, b.byteLength / 4); };
const nhwc = (t) => tf.transpose(t, [0, 2, 3, 1]);
const hwio = (t) => tf.transpose(t, [2, 3, 1, 0]);

// The function of each model over tensors of TensorFlow.js, whose images have their channels last.
function theirs(name, tensors, weights) {
  if (name === 'matmul') return () => tf.matMul(tensors[0], tensors[1]);
  const x = nhwc(tensors[0]);
  const conv = (x, w, b, activation) => tf.fused.conv2d({x, filter: w, strides: 1, pad: 'same', bias: b, activation});
  if (name.startsWith('conv')) {
    const w = hwio(weights.weight);
    return () => conv(x, w, weights.bias, 'linear');
  }
  const [w1, w2] = [hwio(weights['conv1.weight']), hwio(weights['conv2.weight'])];
  const f1 = tf.reshape(tf.transpose(tf.reshape(weights['fc1.weight'], [128, 64, 4, 4]), [2, 3, 1, 0]), [1024, 128]);
  const f2 = tf.transpose(weights['fc2.weight']); // 4.22 leaves transposeB of the fused product out
  return () => {
    let y = conv(conv(x, w1, weights['conv1.bias'], 'relu'), w2, weights['conv2.bias'], 'relu');
    y = tf.reshape(tf.maxPool(y, 2, 2, 'valid'), [-1, 1024]);
    y = tf.fused.matMul({a: y, b: f1, bias: weights['fc1.bias'], activation: 'relu'});
    return tf.logSoftmax(tf.fused.matMul({a: y, b: f2, bias: weights['fc2.bias']}));
  };
}

for (const {name, inputs, weights, shape} of JSON.parse(fs.readFileSync('cases.json', 'utf8'))) {
  const arrays = inputs.map(({path, shape}) => ({data: numbers(path), shape}));
  const {load} = await import(`${process.cwd()}/${name}/${name}.mjs`);
  const sides = [];
  for (const relaxed of [false, true]) {
    const model = await load({relaxed: relaxed && undefined});
    sides.push(() => model.run(...arrays)[0].data);
  }
  const session = await ort.InferenceSession.create(fs.readFileSync(`${name}.onnx`), {executionProviders: ['wasm']});
  const feeds = () => Object.fromEntries(session.inputNames.map((n, i) => [n, new ort.Tensor('float32', arrays[i].data, arrays[i].shape)]));
  sides.push(async () => (await session.run(feeds()))[session.outputNames[0]].data);
  const tensors = arrays.map(({data, shape}) => tf.tensor(data, shape));
  const made = theirs(name, tensors, Object.fromEntries(weights.map(({name, path, shape}) => [name, tf.tensor(numbers(path), shape)])));
  const data = () => { const y = tf.tidy(made); const found = y.dataSync(); y.dispose(); return found; };
  sides.push(data);
  let expected = numbers(`${name}.expected`);
  const differences = [];
  for (const [i, side] of sides.entries()) {
    let found = await side();
    if (i === 3 && name.startsWith('conv')) found = tf.transpose(tf.tensor(found, [shape[0], shape[2], shape[3], shape[1]]), [0, 3, 1, 2]).dataSync();
    let most = 0, greatest = 0;
    for (let j = 0; j < expected.length; j++) { most = Math.max(most, Math.abs(found[j] - expected[j])); greatest = Math.max(greatest, Math.abs(expected[j])); }
    differences.push(most / greatest);
  }
  const least = sides.map(() => Infinity);
  for (let round = 0; round < rounds; round++) for (const [i, side] of sides.entries()) {
    let calls = 0;
    const [from, start] = [performance.now(), process.cpuUsage()];
    do { await side(); calls++; } while (performance.now() - from < 60);
    const used = process.cpuUsage(start);
    if (round > 1) least[i] = Math.min(least[i], (used.user + used.system) / calls);
  }
  console.log(JSON.stringify({name, least, differences}));
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--flag", action="append", default=[], help="of Node")
    given = parser.parse_args()
    cases = models()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        described = []
        for name, _, module, inputs, _ in cases:
            build(torch.export.export(module, inputs), "wasm32", folder / name, name=name)
            torch.onnx.export(module, inputs, folder / f"{name}.onnx", external_data=False)
            with torch.no_grad():
                result = module(*inputs)

            def write(path: str, tensor: Any) -> dict[str, Any]:
                np.ascontiguousarray(tensor.detach().numpy()).tofile(folder / path)
                return {"path": path, "shape": list(tensor.shape)}

            write(f"{name}.expected", result)
            files = [write(f"{name}.{i}", x) for i, x in enumerate(inputs)]
            weights = [{"name": n, **write(f"{name}.{n}", w)} for n, w in module.state_dict().items()]
            described.append({"name": name, "inputs": files, "weights": weights, "shape": list(result.shape)})
        (folder / "cases.json").write_text(json.dumps(described))
        (folder / "run.mjs").write_text(NODE)
        node = [shutil.which("node") or "node", *given.flag, "run.mjs", str(given.packages.resolve()), str(given.rounds)]
        lines = subprocess.run(node, cwd=folder, check=True, capture_output=True, text=True).stdout.splitlines()
    print("| model | flambeau | with relaxed SIMD | ONNX Runtime Web | TensorFlow.js | theirs over ours: plain; relaxed |\n|---|---|---|---|---|---|")
    for line in lines:
        found = json.loads(line)
        _, words, _, _, operations = next(case for case in cases if case[0] == found["name"])
        assert max(found["differences"]) < 1e-4, found
        shown = [f"{us / 1000:.3g} ms ({operations / us / 1000:.1f})" for us in found["least"]]
        plain, relaxed, ort, tensorflow = found["least"]
        print(f"| {words} | {' | '.join(shown)} | {ort / plain:.2f}, {tensorflow / plain:.2f}; {ort / relaxed:.2f}, {tensorflow / relaxed:.2f} |")


if __name__ == "__main__":
    main()
