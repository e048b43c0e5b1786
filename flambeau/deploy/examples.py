"""Example programs of a library in C and in Rust: they read inputs from the standard input and write outputs to the standard output."""

from __future__ import annotations

from flambeau.deploy.interface import TYPES, Interface


def in_c(x: Interface) -> str:
    """The text of example.c."""
    n, upper = x.name, x.name.upper()
    in_bytes = ", ".join([f"sizeof({TYPES[a.dtype.name][0]})" for a in x.inputs] or ["0"])
    out_bytes = ", ".join([f"sizeof({TYPES[a.dtype.name][0]})" for a in x.outputs])
    return f"""/* Runs {n} once: ./example {n}.weights SIZE... < inputs > outputs
 *
 * It takes {len(x.symbols)} sizes; inputs and outputs are raw, one tensor after the other.
 *
 * cc example.c -o example -L. -l{n} -Wl,-rpath,'$ORIGIN'       or, in one file: cc example.c lib{n}.a -o example
 */
#include <stdio.h>
#include <stdlib.h>

#include "{n}.h"

static const size_t input_bytes[] = {{{in_bytes}}}, output_bytes[] = {{{out_bytes}}}; /* of one element */

static int64_t elements(int32_t dims, const int64_t *shape) {{
  int64_t count = 1;
  for (int32_t d = 0; d < dims; d++) count *= shape[d];
  return count;
}}

static void *read_file(const char *path, int64_t *bytes) {{
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  *bytes = ftell(file);
  rewind(file);
  void *content = malloc((size_t)*bytes);
  if (content && fread(content, 1, (size_t)*bytes, file) != (size_t)*bytes) {{
    free(content);
    content = NULL;
  }}
  fclose(file);
  return content;
}}

int main(int count, char **words) {{
  int64_t sizes[{upper}_SIZES + 1], shape[{upper}_MOST_DIMS + 1], bytes = 0;
  void *inputs[{upper}_INPUTS + 1], *outputs[{upper}_OUTPUTS + 1], *weights = NULL;
  if (count != 2 + {upper}_SIZES) {{
    fprintf(stderr, "usage: %s {n}.weights (or - where they are inside), and {len(x.symbols)} sizes\\n", words[0]);
    return 2;
  }}
  for (int i = 0; i < {upper}_SIZES; i++) sizes[i] = atoll(words[2 + i]);
  if (words[1][0] != '-' && !(weights = read_file(words[1], &bytes))) {{
    fprintf(stderr, "cannot read %s\\n", words[1]);
    return 1;
  }}
  {n} *model;
  int32_t status = {n}_create(weights, bytes, &model);
  if (status != {upper}_OK) {{
    fprintf(stderr, "{n}_create: %s\\n", {n}_status_text(status));
    return 1;
  }}
  status = {n}_reserve(model, sizes); /* also checks the sizes, before memory is asked for by them */
  for (int i = 0; status == {upper}_OK && i < {upper}_INPUTS; i++) {{
    size_t need = input_bytes[i] * (size_t)elements({n}_input_shape(i, sizes, shape), shape);
    inputs[i] = malloc(need + 1);
    if (!inputs[i] || fread(inputs[i], 1, need, stdin) != need) {{
      fprintf(stderr, "input %d wants %zu bytes\\n", i, need);
      return 1;
    }}
  }}
  for (int i = 0; status == {upper}_OK && i < {upper}_OUTPUTS; i++)
    outputs[i] = malloc(output_bytes[i] * (size_t)elements({n}_output_shape(i, sizes, shape), shape) + 1);
  if (status == {upper}_OK) status = {n}_run(model, sizes, (const void *const *)inputs, outputs);
  if (status != {upper}_OK) {{
    fprintf(stderr, "%s (%s)\\n", {n}_error(model), {n}_status_text(status));
    return 1;
  }}
  for (int i = 0; i < {upper}_OUTPUTS; i++)
    fwrite(outputs[i], output_bytes[i], (size_t)elements({n}_output_shape(i, sizes, shape), shape), stdout);
  {n}_destroy(model);
  return 0;
}}
"""


def in_rust(x: Interface) -> str:
    """The text of example.rs."""
    n = x.name
    camel = "".join([part.capitalize() for part in n.split("_")])
    in_bytes = ", ".join([str(a.dtype.itemsize) for a in x.inputs])
    out_bytes = ", ".join([str(a.dtype.itemsize) for a in x.outputs])
    most = max([len(a.shape) for a in (*x.inputs, *x.outputs)])
    return f"""//! Runs {n} once: ./example {n}.weights SIZE... < inputs > outputs
//!
//! It takes {len(x.symbols)} sizes; inputs and outputs are raw, one tensor after the other.
//!
//! rustc -O example.rs -L . -l {n} -C link-arg=-Wl,-rpath,'$ORIGIN'
use std::ffi::{{c_char, c_void, CStr}};
use std::io::{{Read, Write}};

#[repr(C)]
struct Instance {{
    _private: [u8; 0],
}}

extern "C" {{
    fn {n}_create(weights: *const c_void, bytes: i64, instance: *mut *mut Instance) -> i32;
    fn {n}_destroy(instance: *mut Instance);
    fn {n}_run(instance: *mut Instance, sizes: *const i64, inputs: *const *const c_void, outputs: *const *mut c_void) -> i32;
    fn {n}_reserve(instance: *mut Instance, sizes: *const i64) -> i32;
    fn {n}_error(instance: *const Instance) -> *const c_char;
    fn {n}_status_text(status: i32) -> *const c_char;
    fn {n}_input_shape(input: i32, sizes: *const i64, shape: *mut i64) -> i32;
    fn {n}_output_shape(output: i32, sizes: *const i64, shape: *mut i64) -> i32;
}}

const INPUT_BYTES: [usize; {len(x.inputs)}] = [{in_bytes}]; // of one element
const OUTPUT_BYTES: [usize; {len(x.outputs)}] = [{out_bytes}];

/// The model, for one thread at a time. The weights live as long as it does.
pub struct {camel} {{
    instance: *mut Instance,
    _weights: Vec<u8>,
}}

unsafe impl Send for {camel} {{}}

fn text(of: *const c_char) -> String {{
    unsafe {{ CStr::from_ptr(of) }}.to_string_lossy().into_owned()
}}

fn elements(shape_of: unsafe extern "C" fn(i32, *const i64, *mut i64) -> i32, number: usize, sizes: &[i64]) -> usize {{
    let mut shape = [1i64; {most + 1}];
    let dims = unsafe {{ shape_of(number as i32, sizes.as_ptr(), shape.as_mut_ptr()) }};
    shape[..dims as usize].iter().product::<i64>() as usize
}}

impl {camel} {{
    /// `weights`: the content of {n}.weights; empty where they are inside of the library.
    pub fn new(weights: Vec<u8>) -> Result<Self, String> {{
        let mut instance = std::ptr::null_mut();
        let at = if weights.is_empty() {{ std::ptr::null() }} else {{ weights.as_ptr() as *const c_void }};
        match unsafe {{ {n}_create(at, weights.len() as i64, &mut instance) }} {{
            0 => Ok(Self {{ instance, _weights: weights }}),
            status => Err(text(unsafe {{ {n}_status_text(status) }})),
        }}
    }}

    /// The outputs of these inputs, each as the bytes of a dense tensor.
    pub fn run(&mut self, sizes: &[i64; {len(x.symbols)}], inputs: &[Vec<u8>; {len(x.inputs)}]) -> Result<Vec<Vec<u8>>, String> {{
        if unsafe {{ {n}_reserve(self.instance, sizes.as_ptr()) }} != 0 {{
            return Err(text(unsafe {{ {n}_error(self.instance) }}));
        }}
        for (i, bytes) in inputs.iter().enumerate() {{
            let want = elements({n}_input_shape, i, sizes) * INPUT_BYTES[i];
            if bytes.len() != want {{
                return Err(format!("input {{i}} wants {{want}} bytes, got {{}}", bytes.len()));
            }}
        }}
        let mut outputs: Vec<Vec<u8>> = (0..{len(x.outputs)}).map(|i| vec![0; elements({n}_output_shape, i, sizes) * OUTPUT_BYTES[i]]).collect();
        let given: Vec<*const c_void> = inputs.iter().map(|x| x.as_ptr() as *const c_void).collect();
        let made: Vec<*mut c_void> = outputs.iter_mut().map(|x| x.as_mut_ptr() as *mut c_void).collect();
        match unsafe {{ {n}_run(self.instance, sizes.as_ptr(), given.as_ptr(), made.as_ptr()) }} {{
            0 => Ok(outputs),
            _ => Err(text(unsafe {{ {n}_error(self.instance) }})),
        }}
    }}

    /// The bytes of an input for these sizes.
    pub fn input_bytes(number: usize, sizes: &[i64; {len(x.symbols)}]) -> usize {{
        elements({n}_input_shape, number, sizes) * INPUT_BYTES[number]
    }}
}}

impl Drop for {camel} {{
    fn drop(&mut self) {{
        unsafe {{ {n}_destroy(self.instance) }}
    }}
}}

fn example() -> Result<(), String> {{
    let words: Vec<String> = std::env::args().collect();
    if words.len() != 2 + {len(x.symbols)} {{
        return Err(format!("usage: {{}} {n}.weights (or - where they are inside), and {len(x.symbols)} sizes", words[0]));
    }}
    let mut sizes = [0i64; {len(x.symbols)}];
    for (size, word) in sizes.iter_mut().zip(&words[2..]) {{
        *size = word.parse().map_err(|_| format!("{{word}} is no size"))?;
    }}
    let weights = if words[1] == "-" {{ Vec::new() }} else {{ std::fs::read(&words[1]).map_err(|e| format!("{{}}: {{e}}", words[1]))? }};
    let mut model = {camel}::new(weights)?;
    if unsafe {{ {n}_reserve(model.instance, sizes.as_ptr()) }} != 0 {{
        return Err(text(unsafe {{ {n}_error(model.instance) }}));
    }}
    let mut inputs: [Vec<u8>; {len(x.inputs)}] = Default::default();
    for (i, bytes) in inputs.iter_mut().enumerate() {{
        bytes.resize({camel}::input_bytes(i, &sizes), 0);
        std::io::stdin().read_exact(bytes).map_err(|e| format!("input {{i}}: {{e}}"))?;
    }}
    for output in model.run(&sizes, &inputs)? {{
        std::io::stdout().write_all(&output).map_err(|e| e.to_string())?;
    }}
    Ok(())
}}

fn main() {{
    if let Err(error) = example() {{
        eprintln!("{{error}}");
        std::process::exit(1);
    }}
}}
"""
