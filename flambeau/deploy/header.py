"""The C header of a library, and the CMake file that hands it to a program."""

from __future__ import annotations

from flambeau.deploy.interface import TYPES, Argument, Interface
from flambeau.deploy.library_code import STATUS_TEXTS

_NAMES = ("OK", "WRONG_SIZES", "WRONG_INDEX", "NO_MEMORY", "WRONG_WEIGHTS", "BUSY", "NULL_ARGUMENT", "NO_MATRIX_UNIT")


def _listed(kind: str, arguments: tuple[Argument, ...]) -> str:
    return "\n".join([f" *   {kind}[{i}]: {a.name}, {TYPES[a.dtype.name][0]} ({a.dtype.name}), shape {a.layout}" for i, a in enumerate(arguments)])


def header(x: Interface) -> str:
    """The text of NAME.h."""
    n, upper = x.name, x.name.upper()
    sizes = "\n".join([f" *   sizes[{s.number}] ({upper}_{s.name.upper()}): {s.place}, from {s.lower} to {s.upper}" for s in x.symbols])
    numbers = "".join([f"#define {upper}_{s.name.upper()} {s.number} /* in sizes: {s.place} */\n" for s in x.symbols])
    statuses = ",\n".join([f"  {upper}_{name} = {i} /* {text} */" for i, (name, text) in enumerate(zip(_NAMES, STATUS_TEXTS, strict=True))])
    weights = (
        "The weights are inside of the library: give NULL and 0. Another set of weights of the same model may be given instead."
        if x.inside
        else f"The weights are the content of {n}.weights ({x.weights_bytes} bytes), read or mapped by the caller, at any address."
    )
    return f"""/* {n}: a model as a library, made by `flambeau build` for {x.target}. Nothing here needs Python or flambeau.
 *
 * Dynamic sizes, of which a run is given all in one array:
{sizes or " *   none: give NULL"}
 *
 * Tensors are dense and row-major. 16-bit floats are given as their bits.
{_listed("inputs", x.inputs) or " *   no inputs"}
{_listed("outputs", x.outputs)}
 *
 * Threads: an instance serves one thread at a time (a second one gets {upper}_BUSY); several instances share the weights
 * and run at once. A run uses the thread that calls it and no other. It allocates memory when sizes need more than any
 * before, and never otherwise. The library takes malloc and free from the program; one that uses the matrix unit takes syscall, too, and asks
 * the system for the unit in {n}_create.
 */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define {upper}_SIZES {len(x.symbols)}   /* dynamic sizes */
#define {upper}_INPUTS {len(x.inputs)}
#define {upper}_OUTPUTS {len(x.outputs)}
#define {upper}_MOST_DIMS {max([len(a.shape) for a in (*x.inputs, *x.outputs)])}
#define {upper}_WEIGHTS_BYTES {x.weights_bytes}
{numbers}
enum {n}_status {{
{statuses}
}};

/* An instance: memory for intermediate values, and the sizes of its last run. */
typedef struct {n} {n};

/* Make an instance. {weights}
 * They must stay where they are until the instance is destroyed; nothing writes to them. *instance is NULL unless the result is {upper}_OK. */
int32_t {n}_create(const void *weights, int64_t bytes, {n} **instance);

/* End an instance. NULL is allowed; an instance that runs is not. */
void {n}_destroy({n} *instance);

/* Have the memory for these sizes ready, so that the first run with them allocates nothing. */
int32_t {n}_reserve({n} *instance, const int64_t *sizes);

/* Compute the outputs of these inputs: {upper}_INPUTS and {upper}_OUTPUTS pointers, aligned for their types. If the result is not {upper}_OK, the outputs
 * are undefined, and {n}_error says what was wrong; the instance can go on being used. */
int32_t {n}_run({n} *instance, const int64_t *sizes, const void *const *inputs, void *const *outputs);

/* What was wrong in the instance's last call that failed, in English; "" if its last run was right. Valid until the next call. */
const char *{n}_error(const {n} *instance);

/* What a status means, in a few words. */
const char *{n}_status_text(int32_t status);

/* The number of dims of an input or output, or -1 if there is none of this number; its shape for these sizes is written to `shape` unless that is NULL. */
int32_t {n}_input_shape(int32_t input, const int64_t *sizes, int64_t *shape);
int32_t {n}_output_shape(int32_t output, const int64_t *sizes, int64_t *shape);

#ifdef __cplusplus
}}
#endif
#endif
"""


def cmake(x: Interface, library: str) -> str:
    """The text of CMakeLists.txt: the library as a target, and the example."""
    n = x.name
    return f"""# {n}: `add_subdirectory` this folder and link with {n} (shared) or {n}_static; alone it builds the example.
cmake_minimum_required(VERSION 3.10)
project({n}_library C)

add_library({n} SHARED IMPORTED GLOBAL)
set_target_properties({n} PROPERTIES
  IMPORTED_LOCATION "${{CMAKE_CURRENT_SOURCE_DIR}}/{library}"
  INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_SOURCE_DIR}}")
add_library({n}_static STATIC IMPORTED GLOBAL)
set_target_properties({n}_static PROPERTIES
  IMPORTED_LOCATION "${{CMAKE_CURRENT_SOURCE_DIR}}/lib{n}.a"
  INTERFACE_INCLUDE_DIRECTORIES "${{CMAKE_CURRENT_SOURCE_DIR}}")

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  add_executable(example example.c)
  target_link_libraries(example PRIVATE {n})
endif()
"""
