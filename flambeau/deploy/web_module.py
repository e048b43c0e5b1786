"""The ES module of a WebAssembly library, with its types and its package.json: for browsers and Node, without other packages."""

from __future__ import annotations

import json
from typing import Final

from flambeau.deploy.interface import Argument, Interface

# By the dtype's name: the typed array that holds it.
ARRAYS: Final = {
    "float32": "Float32Array", "float64": "Float64Array", "int64": "BigInt64Array", "int32": "Int32Array", "int16": "Int16Array", "int8": "Int8Array",
    "uint8": "Uint8Array", "bool": "Uint8Array", "float16": "Uint16Array", "bfloat16": "Uint16Array",
}  # fmt: skip


def _rows(arguments: tuple[Argument, ...]) -> str:
    rows = [f"  {{name: {json.dumps(a.name)}, array: {ARRAYS[a.dtype.name]}, dims: {json.dumps(list(a.sizes))}}}," for a in arguments]
    return "[\n" + "\n".join(rows) + "\n]"


def module(x: Interface, relaxed: bool) -> str:
    """The text of NAME.mjs. `relaxed`: whether there is code with relaxed multiply-adds, too."""
    n = x.name
    read = "null" if x.inside else f"await content(given.weights ?? new URL('./{n}.weights', import.meta.url))"
    choice = "given.relaxed !== false && WebAssembly.validate(RELAXED)" if relaxed else "false"
    return f"""// {n}: a model as WebAssembly, made by `flambeau build`. It needs a browser or Node with SIMD, and nothing else.
//
//   import {{load}} from './{n}.mjs';
//   const model = await load();
//   const [{{data, shape}}] = model.run({{data, shape}});

const INPUTS = {_rows(x.inputs)}; // `dims`: the number of the dynamic size that a dim is
const OUTPUTS = {_rows(x.outputs)};
const SIZES = {len(x.symbols)};
const MOST_DIMS = {max([len(a.shape) for a in (*x.inputs, *x.outputs)])};

// A module with one f32x4.relaxed_madd: engines that know it take the code that has them.
const RELAXED = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 19, 1, 17, 0,
  65, 1, 253, 15, 65, 1, 253, 15, 65, 1, 253, 15, 253, 133, 2, 11,
]);

async function content(source) {{
  if (source instanceof ArrayBuffer) return source;
  if (ArrayBuffer.isView(source)) return source.buffer.slice(source.byteOffset, source.byteOffset + source.byteLength);
  const url = new URL(source, import.meta.url);
  if (url.protocol === 'file:' && typeof process !== 'undefined') {{
    const file = await (await import('node:fs/promises')).readFile(url);
    return file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);
  }}
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`{n}: ${{url}}: ${{answer.status}} ${{answer.statusText}}`);
  return answer.arrayBuffer();
}}

/** The model. `run` is synchronous; the arrays that it returns are the caller's. */
export class Model {{
  #f;
  #memory;
  #instance;
  #words; // sizes, then a shape
  #lists; // pointers to inputs, then outputs
  #block = 0; // memory for inputs and outputs
  #room = 0;

  constructor(instance, weights) {{
    this.#f = instance.exports;
    this.#memory = this.#f.memory;
    let at = 0;
    let bytes = 0;
    if (weights) {{
      bytes = weights.byteLength;
      at = this.#take(bytes);
      new Uint8Array(this.#memory.buffer, at, bytes).set(new Uint8Array(weights));
    }}
    this.#words = this.#take(8 * (SIZES + MOST_DIMS + 1));
    this.#lists = this.#take(4 * (INPUTS.length + OUTPUTS.length + 1));
    const status = this.#f.{n}_create(at, BigInt(bytes), this.#lists);
    if (status) throw new Error(`{n}: ${{this.#text(this.#f.{n}_status_text(status))}}`);
    this.#instance = new DataView(this.#memory.buffer).getUint32(this.#lists, true);
  }}

  #take(bytes) {{
    const at = this.#f.{n}_take(BigInt(bytes));
    if (!at) throw new RangeError(`{n}: there is no memory for ${{bytes}} bytes`);
    return at;
  }}

  #text(at) {{
    const bytes = new Uint8Array(this.#memory.buffer, at);
    return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)));
  }}

  #shape(of, number) {{
    const at = this.#words + 8 * SIZES;
    const dims = of(number, this.#words, at);
    return Array.from(new BigInt64Array(this.#memory.buffer, at, dims), Number);
  }}

  /** The outputs of inputs {{data, shape}}, in order. TypeError for another number or kind of arrays, RangeError for shapes that the model does not take. */
  run(...inputs) {{
    if (inputs.length !== INPUTS.length) throw new TypeError(`{n}: run takes ${{INPUTS.length}} inputs, got ${{inputs.length}}`);
    const sizes = new Array(SIZES).fill(0);
    INPUTS.forEach((input, i) => {{
      const {{data, shape}} = inputs[i];
      if (!(data instanceof input.array)) throw new TypeError(`{n}: ${{input.name}}.data must be a ${{input.array.name}}`);
      if (!Array.isArray(shape) || shape.length !== input.dims.length) throw new RangeError(`{n}: ${{input.name}} has ${{input.dims.length}} dims`);
      input.dims.forEach((number, d) => {{ if (number !== null) sizes[number] ||= shape[d]; }});
    }});
    new BigInt64Array(this.#memory.buffer, this.#words, SIZES).set(sizes.map((n) => BigInt(Math.trunc(n) || 0)));
    if (this.#f.{n}_reserve(this.#instance, this.#words)) throw new RangeError(this.#text(this.#f.{n}_error(this.#instance)));
    let need = 0;
    const place = (array, shape) => {{
      const at = need;
      need += Math.ceil((shape.reduce((a, b) => a * b, 1) * array.BYTES_PER_ELEMENT + 256) / 64) * 64;
      return at;
    }};
    const ins = INPUTS.map((input, i) => {{
      const shape = this.#shape(this.#f.{n}_input_shape, i);
      if (shape.some((n, d) => n !== inputs[i].shape[d]) || shape.reduce((a, b) => a * b, 1) !== inputs[i].data.length)
        throw new RangeError(`{n}: ${{input.name}} must have shape [${{shape}}]; it has [${{inputs[i].shape}}] and ${{inputs[i].data.length}} elements`);
      return place(input.array, shape);
    }});
    const shapes = OUTPUTS.map((_, i) => this.#shape(this.#f.{n}_output_shape, i));
    const outs = OUTPUTS.map((output, i) => place(output.array, shapes[i]));
    if (need > this.#room) {{
      this.#block = this.#take(need);
      this.#room = need;
    }}
    const pointers = new Uint32Array(this.#memory.buffer, this.#lists, ins.length + outs.length);
    [...ins, ...outs].forEach((at, i) => {{ pointers[i] = this.#block + at; }});
    INPUTS.forEach((input, i) => new input.array(this.#memory.buffer, this.#block + ins[i], inputs[i].data.length).set(inputs[i].data));
    const status = this.#f.{n}_run(this.#instance, this.#words, this.#lists, this.#lists + 4 * ins.length);
    if (status) throw new RangeError(this.#text(this.#f.{n}_error(this.#instance)));
    return OUTPUTS.map((output, i) => {{
      const count = shapes[i].reduce((a, b) => a * b, 1);
      return {{name: output.name, shape: shapes[i], data: new output.array(this.#memory.buffer, this.#block + outs[i], count).slice()}};
    }});
  }}
}}

/** Load the model: from the files beside this one, or from {{wasm, weights}} (URLs or bytes). {{relaxed: false}}: the same bits on every machine. */
export async function load(given = {{}}) {{
  const file = {choice} ? './{n}.relaxed.wasm' : './{n}.wasm';
  const [code, weights] = [await content(given.wasm ?? new URL(file, import.meta.url)), {read}];
  const {{instance}} = await WebAssembly.instantiate(code, {{}});
  return new Model(instance, weights);
}}
"""


def types(x: Interface) -> str:
    """The text of NAME.d.mts."""
    note = " `relaxed: false`: without relaxed SIMD, with the same bits on every machine."
    return types_of(x, "[{results}]", "", "wasm?: Source; weights?: Source; relaxed?: boolean", note)


def types_of(x: Interface, made: str, more: str, options: str, note: str = "") -> str:
    """The types of a module. `made`: what `run` gives, around {results}; `more`: what else a model has; `options`, `note`: what `load` takes."""
    given = ", ".join([f"{a.name}: Tensor<{ARRAYS[a.dtype.name]}>" for a in x.inputs])
    results = ", ".join([f"Result<{ARRAYS[a.dtype.name]}>" for a in x.outputs])
    notes = "\n".join([f"   * {a.name}: {a.dtype.name}, shape {a.layout}" for a in (*x.inputs, *x.outputs)])
    sizes = "\n".join([f"   * sizes[{s.number}]: {s.place}, from {s.lower} to {s.upper}" for s in x.symbols])
    return f"""/** A dense, row-major tensor. */
export interface Tensor<A> {{ data: A; shape: number[]; }}
export interface Result<A> extends Tensor<A> {{ name: string; }}

export declare class Model {{
  private constructor();
  /**
{notes}
{sizes or "   * all sizes are fixed"}
   */
  run({given}): {made.format(results=results)};{f"{chr(10)}  {more}" if more else ""}
}}

type Source = string | URL | ArrayBuffer | ArrayBufferView;
/** Load the model: from the files beside this module, or from URLs or bytes.{note} */
export declare function load(given?: {{ {options} }}): Promise<Model>;
"""


def package(x: Interface, files: list[str], kind: str = "as WebAssembly") -> str:
    """The text of package.json: what `npm pack` and `npm install` take."""
    n = x.name
    exports = {".": {"types": f"./{n}.d.mts", "default": f"./{n}.mjs"}, **{f"./{f}": f"./{f}" for f in files if not f.endswith("mts")}}
    return json.dumps({"name": n.replace("_", "-"), "version": "1.0.0", "description": f"A model {kind}, made by flambeau build", "type": "module",
                       "main": f"./{n}.mjs", "types": f"./{n}.d.mts", "exports": exports, "files": files}, indent=2) + "\n"  # fmt: skip
