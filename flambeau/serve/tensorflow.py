"""TensorFlow Serving's REST predict form: instances by row or inputs by column, and the status and metadata of a model.

Source: tensorflow.org/tfx/serving/api_rest.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import numpy as np

from flambeau.serve.datatypes import TensorSpec, converted
from flambeau.serve.errors import BadRequest
from flambeau.serve.inference import check_arrays, count_elements, parse_json
from flambeau.serve.programs import Program
from flambeau.serve.versions import Model

_TYPES: Final = {
    "BOOL": "DT_BOOL", "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64", "INT8": "DT_INT8", "INT16": "DT_INT16",
    "INT32": "DT_INT32", "INT64": "DT_INT64", "FP16": "DT_HALF", "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "BYTES": "DT_STRING",
}  # fmt: skip


def read_predict(body: Any, program: Program, most: int) -> tuple[list[Any], bool]:
    """(arrays in the order of the model's inputs, whether they came by row). BadRequest."""
    request = parse_json(body)
    if request.get("signature_name", "serving_default") not in ("serving_default", "", None):
        raise BadRequest(f"there is no signature {request['signature_name']!r}: only serving_default")
    by_row = "instances" in request
    if by_row == ("inputs" in request):
        raise BadRequest("the request must have either instances (by row) or inputs (by column)")
    names = [s.name for s in program.inputs]
    columns: dict[str, Any]
    if by_row:
        rows = request["instances"]
        if type(rows) is not list or not rows:
            raise BadRequest("instances must be a list of at least one instance")
        named = all(type(r) is dict and set(r) != {"b64"} for r in rows)
        if named:
            if any(set(r) != set(names) for r in rows):
                raise BadRequest(f"each instance must have the inputs {', '.join(names)}")
            columns = {n: [r[n] for r in rows] for n in names}
        elif len(names) != 1:
            raise BadRequest(f"the model has {len(names)} inputs: each instance must be an object of {', '.join(names)}")
        else:
            columns = {names[0]: rows}
    else:
        given = request["inputs"]
        if type(given) is dict and set(given) != {"b64"}:
            if set(given) != set(names):
                raise BadRequest(f"inputs must have {', '.join(names)}, got {', '.join(map(str, given))}")
            columns = given
        elif len(names) != 1:
            raise BadRequest(f"the model has {len(names)} inputs: inputs must be an object of {', '.join(names)}")
        else:
            columns = {names[0]: given}
    arrays = [_array(columns[s.name], s, most) for s in program.inputs]
    check_arrays(program, arrays)
    return arrays, by_row


def _array(data: Any, spec: TensorSpec, most: int) -> Any:
    try:
        if spec.datatype == "BYTES":
            a = np.array(_texts(data), object)
        else:
            a = converted(np.array(data), spec)
    except (ValueError, TypeError, OverflowError):
        raise BadRequest(f"input {spec.name!r}: data is no list of numbers with equal lengths at each depth") from None
    spec.check_shape(a.shape)
    count_elements(list(a.shape), spec.name, most)
    return a


def _texts(data: Any) -> Any:
    if isinstance(data, list):
        return [_texts(d) for d in data]
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, dict) and set(data) == {"b64"} and isinstance(data["b64"], str):
        try:
            return base64.b64decode(data["b64"], validate=True)
        except binascii.Error:
            raise BadRequest("b64 is no base64") from None
    raise BadRequest('strings must be strings, or {"b64": ...}')


def _value(a: Any) -> Any:
    """Nested lists; bytes that are no text as {"b64": ...}."""
    if a.dtype.kind not in "OSU":
        return np.ascontiguousarray(a) if a.ndim else a.item()

    def text(t: Any) -> Any:
        if isinstance(t, list):
            return [text(x) for x in t]
        raw = t if isinstance(t, bytes) else str(t).encode()
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return {"b64": base64.b64encode(raw).decode()}

    return text(a.tolist())


def predictions(outputs: list[Any], program: Program, by_row: bool) -> dict[str, Any]:
    """The answer to a predict request."""
    specs = program.outputs
    if not by_row:
        return {"outputs": _value(outputs[0]) if len(specs) == 1 else {s.name: _value(a) for s, a in zip(specs, outputs, strict=True)}}
    if len(specs) == 1:
        return {"predictions": _value(outputs[0])}
    rows = min([a.shape[0] if a.ndim else 1 for a in outputs])
    return {"predictions": [{s.name: _value(np.atleast_1d(a)[i]) for s, a in zip(specs, outputs, strict=True)} for i in range(rows)]}


def status(model: Model, number: str | None) -> dict[str, Any]:
    """The versions of a model and how they are."""
    entries = [{"version": str(n), "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}} for n in sorted(model.versions)]
    entries += [{"version": str(n), "state": "END", "status": {"error_code": "UNKNOWN", "error_message": why}} for n, why in sorted(model.failures.items())]
    if number is not None:
        model.version(number)
        entries = [e for e in entries if e["version"] == number]
    return {"model_version_status": entries}


def metadata(model: Model, number: str | None) -> dict[str, Any]:
    """The signature of a model."""
    version = model.version(number)
    program = version.program
    if program is None:
        raise BadRequest(f"the model {model.name!r} is a language model: it has no predict signature")

    def tensors(specs: list[TensorSpec]) -> dict[str, Any]:
        return {
            s.name: {
                "dtype": _TYPES[s.datatype], "name": s.name,
                "tensor_shape": {"dim": [{"size": str(n), "name": ""} for n in s.shape], "unknown_rank": False},
            }
            for s in specs
        }  # fmt: skip

    signature = {"inputs": tensors(program.inputs), "outputs": tensors(program.outputs), "method_name": "tensorflow/serving/predict"}
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": str(version.number)},
        "metadata": {"signature_def": {"signature_def": {"serving_default": signature}}},
    }
