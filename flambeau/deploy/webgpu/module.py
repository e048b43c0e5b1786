"""The ES module of a model for WebGPU: it makes buffers and pipelines, lays out the arena for the sizes of a call, runs the shaders and reads the results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from flambeau.deploy.interface import Interface
from flambeau.deploy.web_module import ARRAYS, types_of
from flambeau.deploy.webgpu.planning import Variant
from flambeau.deploy.webgpu.shader import Place
from flambeau.deploy.webgpu.size_script import SizeScript, function

WORDS: Final = 64  # numbers of a kernel that is given none: the uniform block's size is a multiple of this, in words of 32 bits


def most_words(variants: Sequence[Variant]) -> int:
    """The words of the uniform block of each kernel."""
    most = max([len(k.words) for v in variants for k in v.kernels], default=0)
    return max(WORDS, -(-most // WORDS) * WORDS)


def shader_text(text: str, words: int) -> str:
    """A shader with the size of its uniform block."""
    return text.replace("vec4<i32>, WORDS>", f"vec4<i32>, {words // 4}>")


def module(x: Interface, variants: Sequence[Variant]) -> str:
    """The text of NAME.mjs."""
    n, words = x.name, most_words(variants)
    texts = list(dict.fromkeys([shader_text(k.text, words) for v in variants for k in v.kernels]))
    number = {text: at for at, text in enumerate(texts)}
    plans = ",\n".join([_plan(v, number, words) for v in variants])
    limits = json.dumps([[s.place, s.lower, s.upper] for s in x.symbols])
    return _TEXT.replace("@NAME@", n).replace("@INPUTS@", _arguments(x.inputs)).replace("@OUTPUTS@", _arguments(x.outputs)).replace(
        "@LIMITS@", limits).replace("@WORDS@", str(words)).replace("@SHADERS@", ",\n".join([json.dumps(t) for t in texts])).replace(
        "@PLANS@", plans).replace("@WEIGHTS@", str(x.weights_bytes))  # fmt: skip


def types(x: Interface) -> str:
    """The text of NAME.d.mts."""
    return types_of(x, "Promise<[{results}]>", "destroy(): void;", "weights?: Source; device?: GPUDevice; adapter?: GPURequestAdapterOptions")


def _arguments(arguments: Sequence[Any]) -> str:
    rows = [f"  {{name: {json.dumps(a.name)}, array: {ARRAYS[a.dtype.name]}, kind: {json.dumps(a.dtype.name)}, dims: {json.dumps(list(a.sizes))}}},"
            for a in arguments]  # fmt: skip
    return "[\n" + "\n".join(rows) + "\n]"


def _plan(v: Variant, number: dict[str, int], words: int) -> str:
    """One plan: where it holds, its blocks, its kernels with their numbers, and where inputs and outputs are."""
    at = {block.root: i for i, block in enumerate(v.blocks)}
    guard, blocks, kernels, shapes = SizeScript(), SizeScript(), SizeScript(), SizeScript()
    also = " || ".join(["(" + " && ".join([f"s[{i}] === {n}" for i, n in enumerate(sizes)]) + ")" for sizes in v.also])
    holds = guard.all_hold(v.guards) + (f" || {also}" if also else "")
    sizes = "[" + ", ".join([f"[{blocks.name(b.words)}, {b.first}, {b.last}]" for b in v.blocks]) + "]"
    calls = []
    for kernel in v.kernels:
        numbers = ", ".join([f"at[{at[word.root]}]" if isinstance(word, Place) else kernels.name(word) for word in kernel.words])
        calls.append(f"[{number[shader_text(kernel.text, words)]}, {kernels.name(kernel.groups)}, [{numbers}]]")
    m = v.recorded
    ins = [f"[{at[v.graph.inputs[p]]}, {_shape(shapes, meta.shape)}]" for p, meta in zip(m.inputs, m.input_metas, strict=True)]
    outs = [f"[{at[root]}, {_shape(shapes, meta.shape)}]" for root, meta in zip(v.graph.outputs, m.output_metas, strict=True)]
    return "\n".join(
        [
            "  {",
            f"    holds: {function('s', guard.lines, holds)},",
            f"    blocks: {function('s', blocks.lines, sizes)},",
            f"    kernels: {function('s, at', kernels.lines, '[' + ', '.join(calls) + ']')},",
            f"    tensors: {function('s', shapes.lines, '[[' + ', '.join(ins) + '], [' + ', '.join(outs) + ']]')},",
            "  }",
        ]
    )


def _shape(script: SizeScript, shape: Sequence[Any]) -> str:
    return "[" + ", ".join([script.name(n) for n in shape]) + "]"


_TEXT: Final = r"""// @NAME@: a model for WebGPU, made by `flambeau build --target webgpu`.
//
//   import {load} from './@NAME@.mjs';
//   const model = await load();
//   const [{data, shape}] = await model.run({data, shape});

const INPUTS = @INPUTS@; // `dims`: the number of the dynamic size that a dim is
const OUTPUTS = @OUTPUTS@;
const LIMITS = @LIMITS@; // of each dynamic size: where it is met, the least and the greatest
const WORDS = @WORDS@; // numbers of a kernel, in its uniform block
const SHADERS = [
@SHADERS@
];
// Each plan: the sizes that it holds for, its blocks of memory (words, first and last kernel that needs it), its kernels (shader, workgroups, numbers), and
// of inputs and outputs the block and the shape.
const PLANS = [
@PLANS@
];

const product = (shape) => shape.reduce((a, b) => a * b, 1);

async function content(source) {
  if (source instanceof ArrayBuffer) return source;
  if (ArrayBuffer.isView(source)) return source.buffer.slice(source.byteOffset, source.byteOffset + source.byteLength);
  const url = new URL(source, import.meta.url);
  if (url.protocol === 'file:' && typeof process !== 'undefined') {
    const file = await (await import('node:fs/promises')).readFile(url);
    return file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
  }
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`@NAME@: ${url}: ${answer.status} ${answer.statusText}`);
  return answer.arrayBuffer();
}

/** The place of each block: one may lie where another has lain whose last kernel has run. In units of 64 words. */
export function layOut(blocks) {
  const places = new Array(blocks.length);
  const order = blocks.map((_, i) => i).sort((a, b) => blocks[a][1] - blocks[b][1] || blocks[b][0] - blocks[a][0]);
  let living = [];
  let total = 64;
  for (const i of order) {
    const [words, first, last] = blocks[i];
    const length = Math.max(64, Math.ceil(words / 64) * 64);
    living = living.filter((l) => l.last >= first).sort((a, b) => a.at - b.at);
    let at = 0;
    for (const l of living) {
      if (l.at - at >= length) break;
      at = Math.max(at, l.at + l.length);
    }
    living.push({at, length, last});
    places[i] = at;
    total = Math.max(total, at + length);
  }
  return [places, total];
}

/** Elements as words of 32 bits. */
function toWords(data, {name, kind}) {
  if (kind === 'float32' || kind === 'int32') return data;
  if (kind === 'int64') {
    return Int32Array.from(data, (n) => {
      if (n !== BigInt.asIntN(32, n)) throw new RangeError(`@NAME@: ${name} has ${n}, which needs more than the 32 bits that integers have on a GPU`);
      return Number(n);
    });
  }
  return kind === 'bool' ? Int32Array.from(data, (n) => (n ? 1 : 0)) : Int32Array.from(data);
}

function fromWords(buffer, from, count, {array, kind}) {
  const words = new (kind === 'float32' ? Float32Array : Int32Array)(buffer, from, count);
  return kind === 'int64' ? BigInt64Array.from(words, BigInt) : array.from(words);
}

/** The model. `run` answers later; calls are done one after the other. */
export class Model {
  #device;
  #layout;
  #pipelines = new Array(SHADERS.length);
  #weights;
  #errors;
  #arena = null;
  #words = null;
  #readable = null;
  #group = null;
  #ready = null; // what was made for the sizes of the last call
  #last = Promise.resolve();

  constructor(device, weights) {
    this.#device = device;
    const kinds = ['uniform', 'read-only-storage', 'storage', 'storage'];
    const entries = kinds.map((type, binding) => ({binding, visibility: GPUShaderStage.COMPUTE, buffer: {type, hasDynamicOffset: binding === 0}}));
    this.#layout = device.createBindGroupLayout({entries});
    this.#weights = this.#buffer(Math.max(256, Math.ceil(weights.byteLength / 4) * 4), GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST);
    device.queue.writeBuffer(this.#weights, 0, weights);
    this.#errors = this.#buffer(16, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC);
  }

  #buffer(size, usage) {
    const {maxBufferSize, maxStorageBufferBindingSize} = this.#device.limits;
    const most = Math.min(maxBufferSize, usage & GPUBufferUsage.STORAGE ? maxStorageBufferBindingSize : maxBufferSize);
    if (size > most) throw new RangeError(`@NAME@: a buffer of ${size} bytes is wanted, and this GPU has at most ${most}`);
    return this.#device.createBuffer({size, usage});
  }

  /** A buffer of at least so many bytes: the one that is there, or a new one. */
  #atLeast(old, size, usage) {
    if (old && old.size >= size) return old;
    old?.destroy();
    this.#group = null;
    return this.#buffer(size, usage);
  }

  #pipeline(number) {
    if (!this.#pipelines[number]) {
      const module = this.#device.createShaderModule({code: SHADERS[number]});
      const layout = this.#device.createPipelineLayout({bindGroupLayouts: [this.#layout]});
      this.#pipelines[number] = this.#device.createComputePipeline({layout, compute: {module, entryPoint: 'main'}});
    }
    return this.#pipelines[number];
  }

  #prepare(sizes) {
    if (this.#ready && this.#ready.sizes.every((n, i) => n === sizes[i])) return this.#ready;
    this.#ready = null;
    const plan = PLANS.find((p) => p.holds(sizes));
    if (!plan) throw new RangeError(`@NAME@: no plan holds for the sizes ${sizes}`);
    const [places, total] = layOut(plan.blocks(sizes));
    const kernels = plan.kernels(sizes, places);
    const stride = Math.ceil((4 * WORDS) / 256) * 256;
    const table = new ArrayBuffer(Math.max(1, kernels.length) * stride);
    kernels.forEach(([, , numbers], i) => new Int32Array(table, i * stride, WORDS).set(numbers));
    const [inputs, outputs] = plan.tensors(sizes);
    const bytes = outputs.reduce((sum, [, shape]) => sum + 4 * product(shape), 16);
    const {STORAGE, COPY_DST, COPY_SRC, UNIFORM, MAP_READ} = GPUBufferUsage;
    this.#arena = this.#atLeast(this.#arena, 4 * total, STORAGE | COPY_DST | COPY_SRC);
    this.#words = this.#atLeast(this.#words, table.byteLength, UNIFORM | COPY_DST);
    this.#readable = this.#atLeast(this.#readable, bytes, MAP_READ | COPY_DST);
    this.#device.queue.writeBuffer(this.#words, 0, table);
    const buffers = [{buffer: this.#words, size: 4 * WORDS}, {buffer: this.#weights}, {buffer: this.#arena}, {buffer: this.#errors}];
    const entries = buffers.map((resource, binding) => ({binding, resource}));
    this.#group ??= this.#device.createBindGroup({layout: this.#layout, entries});
    const pipelines = kernels.map(([number]) => this.#pipeline(number));
    this.#ready = {sizes, places, kernels, pipelines, inputs, outputs, bytes, stride};
    return this.#ready;
  }

  /** The outputs of inputs {data, shape}, in order. TypeError for another number or kind of arrays, RangeError for shapes that the model does not take. */
  run(...inputs) {
    const next = this.#last.then(() => this.#run(inputs));
    this.#last = next.catch(() => {});
    return next;
  }

  async #run(inputs) {
    if (inputs.length !== INPUTS.length) throw new TypeError(`@NAME@: run takes ${INPUTS.length} inputs, got ${inputs.length}`);
    const sizes = new Array(LIMITS.length).fill(0);
    INPUTS.forEach((input, i) => {
      const {data, shape} = inputs[i];
      if (!(data instanceof input.array)) throw new TypeError(`@NAME@: ${input.name}.data must be a ${input.array.name}`);
      if (!Array.isArray(shape) || shape.length !== input.dims.length) throw new RangeError(`@NAME@: ${input.name} has ${input.dims.length} dims`);
      input.dims.forEach((number, d) => { if (number !== null) sizes[number] ||= Math.trunc(shape[d]) || 0; });
    });
    LIMITS.forEach(([place, least, most], i) => {
      if (!(sizes[i] >= least && sizes[i] <= most)) throw new RangeError(`@NAME@: sizes[${i}], ${place}, must be from ${least} to ${most}: it is ${sizes[i]}`);
    });
    const ready = this.#prepare(sizes);
    const {queue} = this.#device;
    ready.inputs.forEach(([block, shape], i) => {
      const given = inputs[i];
      if (shape.some((n, d) => n !== given.shape[d]) || product(shape) !== given.data.length)
        throw new RangeError(`@NAME@: ${INPUTS[i].name} must have shape [${shape}]; it has [${given.shape}] and ${given.data.length} elements`);
      if (given.data.length) queue.writeBuffer(this.#arena, 4 * ready.places[block], toWords(given.data, INPUTS[i]));
    });
    queue.writeBuffer(this.#errors, 0, new Int32Array(4));
    const encoder = this.#device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    const row = this.#device.limits.maxComputeWorkgroupsPerDimension;
    ready.kernels.forEach(([, groups], i) => {
      pass.setPipeline(ready.pipelines[i]);
      pass.setBindGroup(0, this.#group, [i * ready.stride]);
      const rows = Math.ceil(groups / row);
      if (groups > 0) pass.dispatchWorkgroups(Math.ceil(groups / rows), rows);
    });
    pass.end();
    encoder.copyBufferToBuffer(this.#errors, 0, this.#readable, 0, 16);
    let at = 16;
    for (const [block, shape] of ready.outputs) {
      if (product(shape)) encoder.copyBufferToBuffer(this.#arena, 4 * ready.places[block], this.#readable, at, 4 * product(shape));
      at += 4 * product(shape);
    }
    queue.submit([encoder.finish()]);
    await this.#readable.mapAsync(GPUMapMode.READ, 0, ready.bytes);
    try {
      const bytes = this.#readable.getMappedRange(0, ready.bytes);
      const [wrong, index, bound] = new Int32Array(bytes, 0, 3);
      if (wrong) throw new RangeError(`@NAME@: index ${index} is out of bounds for dimension with size ${bound}`);
      let from = 16;
      return ready.outputs.map(([, shape], i) => {
        const data = fromWords(bytes, from, product(shape), OUTPUTS[i]);
        from += 4 * product(shape);
        return {name: OUTPUTS[i].name, shape, data};
      });
    } finally {
      this.#readable.unmap();
    }
  }

  /** Give the GPU's memory back. */
  destroy() {
    for (const buffer of [this.#weights, this.#errors, this.#arena, this.#words, this.#readable]) buffer?.destroy();
  }
}

/**
 * Load the model: from the file of weights beside this one, or from {weights} (a URL or bytes). {device}: a GPUDevice of the page's own; {adapter}: what
 * requestAdapter is asked for. An Error where there is no WebGPU.
 */
export async function load(given = {}) {
  const weights = await content(given.weights ?? new URL('./@NAME@.weights', import.meta.url));
  if (weights.byteLength !== @WEIGHTS@) throw new Error(`@NAME@: the weights have ${weights.byteLength} bytes, not @WEIGHTS@: they are another model's`);
  let device = given.device;
  if (!device) {
    const adapter = await globalThis.navigator?.gpu?.requestAdapter(given.adapter);
    if (!adapter) throw new Error('@NAME@: this browser has no WebGPU, or no GPU for it; the target wasm32 needs none');
    const {maxBufferSize, maxStorageBufferBindingSize} = adapter.limits;
    device = await adapter.requestDevice({requiredLimits: {maxBufferSize, maxStorageBufferBindingSize}});
  }
  return new Model(device, weights);
}
"""
