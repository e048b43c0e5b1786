"""The Open Inference Protocol v2 (KServe, Triton) over REST: infer requests become arrays, results become answers; JSON and the binary tensor extension.

Sources: github.com/kserve/open-inference-protocol (specification/protocol/inference_rest.md) and Triton's protocol/extension_binary_data.md.
"""

from __future__ import annotations

import math
from typing import Any, Final

from flambeau.serve.datatypes import TensorSpec, from_bytes, from_json, to_bytes, to_json
from flambeau.serve.errors import BadRequest
from flambeau.serve.packages import package
from flambeau.serve.programs import Program

orjson: Any = package("orjson", "flambeau.serve")
_dumps = orjson.dumps
_loads = orjson.loads
_NUMPY: Final = orjson.OPT_SERIALIZE_NUMPY
_MOST_DIMS: Final = 32


class Inference:
    """A request that has been read: arrays in the order of the model's inputs, and which outputs are wanted in which form."""

    __slots__ = ("arrays", "id", "rows", "timeout", "wanted")

    def __init__(self, arrays: list[Any], wanted: list[tuple[int, bool]], id: str | None, timeout: float | None) -> None:
        self.arrays, self.wanted, self.id, self.timeout = arrays, wanted, id, timeout
        self.rows = arrays[0].shape[0] if arrays and arrays[0].ndim else 1


def parse_json(body: Any) -> dict[str, Any]:
    """A JSON object. BadRequest for anything else."""
    try:
        found = _loads(body)
    except ValueError as error:
        raise BadRequest(f"the body is no JSON: {error}") from None
    if type(found) is not dict:
        raise BadRequest("the body must be a JSON object")
    return found


def shape_of(given: Any, name: Any) -> list[int]:
    """A list of sizes. BadRequest for anything else."""
    if type(given) is not list or len(given) > _MOST_DIMS:
        raise BadRequest(f"input {name!r}: shape must be a list of at most {_MOST_DIMS} sizes")
    for n in given:
        if type(n) is not int or n < 0:
            raise BadRequest(f"input {name!r}: shape {given} must be a list of sizes")
    return given


def check_arrays(program: Program, arrays: list[Any]) -> None:
    """BadRequest where the inputs' batches differ, or the program does not hold for the sizes."""
    if program.batched:
        rows = arrays[0].shape[0]
        for a in arrays:
            if a.shape[0] != rows:
                raise BadRequest(f"the inputs' first sizes differ: {[x.shape[0] for x in arrays]}; they are one batch")
        if not rows:
            raise BadRequest("a batch must have at least one row")
    check = getattr(program, "check", None)
    if check is not None:
        check(arrays)


def count_elements(shape: list[int], name: Any, most: int) -> int:
    """How many elements a shape has; BadRequest for more than the model's limit."""
    n = math.prod(shape)
    if n > most:
        raise BadRequest(f"input {name!r}: shape {shape} has {n} elements, more than the {most} that are allowed")
    return n


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    found = parameters.get(name, default)
    if type(found) is not bool:
        raise BadRequest(f"the parameter {name} must be true or false")
    return found


def _parameters(holder: dict[str, Any], what: str) -> dict[str, Any]:
    found = holder.get("parameters")
    if found is None:
        return {}
    if type(found) is not dict:
        raise BadRequest(f"{what}: parameters must be an object")
    return found


def read_request(body: Any, header_length: int | None, program: Program, most: int) -> Inference:
    """An infer request. `header_length`: of the JSON at the beginning, where binary tensors follow it. BadRequest."""
    binary: Any = b""
    if header_length is not None:
        if header_length > len(body):
            raise BadRequest(f"Inference-Header-Content-Length is {header_length}, the body has {len(body)} bytes")
        body, binary = body[:header_length], memoryview(body)[header_length:]
    request = parse_json(body)
    given = request.get("inputs")
    if type(given) is not list:
        raise BadRequest("the request has no list of inputs")
    specs = program.inputs
    found: dict[str, Any] = {}
    at = 0
    for entry in given:
        if type(entry) is not dict:
            raise BadRequest("an input must be an object")
        name = entry.get("name")
        spec: TensorSpec | None = None
        for s in specs:
            if s.name == name:
                spec = s
        if spec is None:
            raise BadRequest(f"the model has no input {name!r}; it has {', '.join([s.name for s in specs])}")
        if name in found:
            raise BadRequest(f"input {name!r} is given twice")
        if entry.get("datatype") != spec.datatype:
            raise BadRequest(f"input {name!r}: the model takes {spec.datatype}, got {entry.get('datatype')!r}")
        shape = shape_of(entry.get("shape"), name)
        spec.check_shape(shape)
        count_elements(shape, name, most)
        size = _parameters(entry, f"input {name!r}").get("binary_data_size")
        if size is not None:
            if type(size) is not int or size < 0 or at + size > len(binary):
                raise BadRequest(f"input {name!r}: binary_data_size {size!r} is more than the {len(binary) - at} bytes that are left")
            if "data" in entry:
                raise BadRequest(f"input {name!r} has both data and binary_data_size")
            found[spec.name] = from_bytes(binary[at : at + size], spec, shape)
            at += size
        elif "data" in entry:
            found[spec.name] = from_json(entry["data"], spec, shape)
        else:
            raise BadRequest(f"input {name!r} has no data")
    if len(found) != len(specs):
        missing = next(s.name for s in specs if s.name not in found)
        raise BadRequest(f"input {missing!r} is missing; the model takes {', '.join([s.name for s in specs])}")
    if at != len(binary):
        raise BadRequest(f"{len(binary) - at} bytes at the end of the body belong to no input")
    arrays = [found[s.name] for s in specs] if len(specs) > 1 else list(found.values())
    check_arrays(program, arrays)
    parameters = _parameters(request, "the request")
    wanted = _wanted(request.get("outputs"), program.outputs, _flag(parameters, "binary_data_output", False))
    id = request.get("id")
    if id is not None and type(id) is not str:
        raise BadRequest("id must be a string")
    timeout = None
    if "timeout" in parameters:
        timeout = parameters["timeout"]
        if type(timeout) is not int or timeout < 0:
            raise BadRequest(f"the parameter timeout must be a number of microseconds, got {timeout!r}")
        timeout = timeout / 1e6 or None
    return Inference(arrays, wanted, id, timeout)


def _wanted(given: Any, outputs: list[TensorSpec], binary: bool) -> list[tuple[int, bool]]:
    if given is None:
        return [(i, binary) for i in range(len(outputs))]
    if type(given) is not list:
        raise BadRequest("outputs must be a list")
    names = [s.name for s in outputs]
    found = []
    for entry in given:
        if type(entry) is not dict:
            raise BadRequest("an output must be an object")
        if entry.get("name") not in names:
            raise BadRequest(f"the model has no output {entry.get('name')!r}; it has {', '.join(names)}")
        parameters = _parameters(entry, f"output {entry['name']!r}")
        if "classification" in parameters:
            raise BadRequest("the classification extension is not there: ask for the tensor")
        found.append((names.index(entry["name"]), _flag(parameters, "binary_data", binary)))
    return found or [(i, binary) for i in range(len(outputs))]


def answer(inference: Inference, outputs: list[Any], program: Program, model: str, version: int) -> tuple[bytes, int | None]:
    """The body of an answer, and the length of its JSON where binary tensors follow. In JSON, NaN and infinities are null."""
    described: list[dict[str, Any]] = []
    tail: list[bytes] = []
    specs = program.outputs
    for i, binary in inference.wanted:
        a, spec = outputs[i], specs[i]
        if binary:
            raw = to_bytes(a)
            tail.append(raw)
            described.append({"name": spec.name, "datatype": spec.datatype, "shape": a.shape, "parameters": {"binary_data_size": len(raw)}})
        else:
            described.append({"name": spec.name, "datatype": spec.datatype, "shape": a.shape, "data": to_json(a)})
    found: dict[str, Any] = {"model_name": model, "model_version": str(version), "outputs": described}
    if inference.id is not None:
        found["id"] = inference.id
    body: bytes = _dumps(found, option=_NUMPY)
    if tail:
        return b"".join([body, *tail]), len(body)
    return body, None


def model_metadata(name: str, versions: list[int], program: Program) -> dict[str, Any]:
    """What the protocol says of a model."""
    return {
        "name": name, "versions": [str(n) for n in versions], "platform": program.platform,
        "inputs": [s.described() for s in program.inputs], "outputs": [s.described() for s in program.outputs],
    }  # fmt: skip
