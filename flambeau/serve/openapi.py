"""The OpenAPI 3.1 document of what is served: paths with the models' names, and schemas of their tensors."""

from __future__ import annotations

import math
from typing import Any, Final

import flambeau
from flambeau.serve.datatypes import TensorSpec
from flambeau.serve.programs import Program

_JSON: Final = "application/json"
_INTEGERS: Final = {f"{sign}INT{bits}": bits for sign in ("", "U") for bits in (8, 16, 32, 64)}
_ERRORS: Final = {
    "400": "The request is malformed, or its tensors are not what the model takes.", "401": "No token, or an unknown one.", "404": "No such model or version.",
    "405": "Not for this method.", "408": "The request came too slowly.", "413": "The body or a tensor is over its limit.",
    "415": "The body's content-encoding is neither gzip nor deflate.", "429": "The model's queue is full.", "431": "The head is over its limit.",
    "500": "The model failed.", "503": "The model is not ready, or the server is going down.", "504": "The deadline has passed.",
}  # fmt: skip


def _error(text: str, openai: bool = False) -> dict[str, Any]:
    return {"description": text, "content": {_JSON: {"schema": {"$ref": f"#/components/schemas/{'OpenAIError' if openai else 'Error'}"}}}}


def _operation(
    summary: str, tag: str, answer: Any, codes: str, *, body: Any = None, kind: str = _JSON, openai: bool = False, id: str = ""
) -> dict[str, Any]:  # fmt: skip
    made: dict[str, Any] = {
        "summary": summary, "tags": [tag], "operationId": id or summary.lower().replace(" ", "-"),
        "responses": {"200": {"description": "Done.", "content": {kind: {"schema": answer}}}, **{c: _error(_ERRORS[c], openai) for c in codes.split()}},
    }  # fmt: skip
    if body is not None:
        made["requestBody"] = {"required": True, "content": {_JSON: {"schema": body}}}
    return made


def _element(spec: TensorSpec) -> dict[str, Any]:
    if spec.datatype == "BYTES":
        return {"type": "string"}
    if spec.datatype == "BOOL":
        return {"type": "boolean"}
    if spec.datatype in _INTEGERS:
        bits = _INTEGERS[spec.datatype]
        low, high = (0, (1 << bits) - 1) if spec.datatype[0] == "U" else (-(1 << bits - 1), (1 << bits - 1) - 1)
        return {"type": "integer", "minimum": low, "maximum": high}
    return {"type": "number"}


def _sample(spec: TensorSpec) -> tuple[list[int], list[Any]]:
    shape = [1 if n < 0 else n for n in spec.shape]
    value: Any = "" if spec.datatype == "BYTES" else False if spec.datatype == "BOOL" else 0
    return shape, [value] * min(math.prod(shape), 4096)


def _tensor(spec: TensorSpec, given: bool, batched: bool) -> dict[str, Any]:
    sizes = [{"type": "integer", "minimum": 1 if batched and d == 0 else 0} if n < 0 else {"const": n} for d, n in enumerate(spec.shape)]
    shape: dict[str, Any] = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": len(sizes), "maxItems": len(sizes)}
    if given:
        shape |= {"prefixItems": sizes, "items": False}
    data: dict[str, Any] = {"type": "array", "description": "All elements in row-major order, flat or nested as the shape."}
    if not given:
        data["items"] = {"anyOf": [_element(spec), {"type": "null"}]} if spec.datatype.startswith("FP") else _element(spec)
    return {
        "type": "object", "required": ["name", "datatype", "shape"] + (["data"] if given else []),
        "properties": {
            "name": {"const": spec.name}, "datatype": {"const": spec.datatype}, "shape": shape, "data": data, "parameters": {"type": ["object", "null"]},
        },
    }  # fmt: skip


def _infer(program: Program) -> tuple[dict[str, Any], dict[str, Any]]:
    def inputs(specs: list[TensorSpec], given: bool) -> dict[str, Any]:
        one = [_tensor(s, given, program.batched) for s in specs]
        return {"type": "array", "items": one[0] if len(one) == 1 else {"anyOf": one}, "minItems": len(one) if given else 0, "maxItems": len(one)}

    flag = {"type": ["object", "null"], "properties": {"binary_data": {"type": "boolean"}, "classification": False}}
    output = {"type": "object", "required": ["name"], "properties": {"name": {"enum": [s.name for s in program.outputs]}, "parameters": flag}}
    names = {"type": ["array", "null"], "items": output}
    timeout = {"type": "integer", "minimum": 0, "description": "Microseconds."}
    example = []
    for s in program.inputs:
        shape, data = _sample(s)
        example.append({"name": s.name, "datatype": s.datatype, "shape": shape, "data": data})
    request = {
        "type": "object", "required": ["inputs"], "example": {"inputs": example},
        "properties": {
            "id": {"type": ["string", "null"]}, "inputs": inputs(program.inputs, True), "outputs": names,
            "parameters": {"type": ["object", "null"], "properties": {"timeout": timeout, "binary_data_output": {"type": "boolean"}}},
        },
    }  # fmt: skip
    answer = {
        "type": "object", "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"type": "string"}, "model_version": {"type": "string"}, "id": {"type": "string"},
            "outputs": inputs(program.outputs, False),
        },
    }  # fmt: skip
    return request, answer


def _completion(chat: bool, models: list[str]) -> dict[str, Any]:
    number = {"type": "number"}
    stop = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 4}, {"type": "null"}]}
    properties: dict[str, Any] = {
        "model": {"enum": models}, "stream": {"type": "boolean"}, "max_tokens": {"type": "integer", "minimum": 1, "maximum": 1 << 20},
        "temperature": {**number, "minimum": 0, "maximum": 2}, "top_p": {**number, "minimum": 0, "maximum": 1}, "stop": stop,
        "seed": {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}, "n": {"type": "integer", "minimum": 1, "maximum": 16},
        "presence_penalty": {**number, "minimum": -2, "maximum": 2}, "frequency_penalty": {**number, "minimum": -2, "maximum": 2},
    }  # fmt: skip
    if chat:
        message = {
            "type": "object", "required": ["role", "content"],
            "properties": {"role": {"enum": ["system", "developer", "user", "assistant"]}, "content": {"type": "string"}},
        }  # fmt: skip
        properties["messages"] = {"type": "array", "minItems": 1, "items": message}
    else:
        properties["prompt"] = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 16}]}
    return {"type": "object", "required": ["model", "messages" if chat else "prompt"], "properties": properties, "additionalProperties": False}


def document(repository: Any, tokens: bool) -> dict[str, Any]:
    """The document for the models that are ready now."""
    thing: dict[str, Any] = {"type": "object"}
    paths: dict[str, Any] = {
        "/v2": {"get": _operation("Server metadata", "server", thing, "400")},
        "/v2/health/live": {"get": _operation("Whether the server runs", "server", thing, "400")},
        "/v2/health/ready": {"get": _operation("Whether the server takes requests", "server", thing, "400 503")},
        "/v2/repository/index": {
            "post": _operation("Models and their states", "server", {"type": "array", "items": thing}, "400 413 415 401",
                               body={"type": "object", "properties": {"ready": {"type": "boolean"}}}),
        },
        "/metrics": {"get": _operation("Prometheus metrics", "server", {"type": "string"}, "400 401", kind="text/plain")},
    }  # fmt: skip
    paths["/v2/repository/index"]["post"]["requestBody"]["required"] = False
    language: list[str] = []
    for name, model in repository.models.items():
        newest = model.versions[max(model.versions)] if model.versions else None
        if newest is None:
            continue
        if newest.language is not None:
            language.append(name)
        if newest.program is None:
            continue
        request, answer = _infer(newest.program)
        at = f"/v2/models/{name}"
        common = "400 401 404 503"
        run = "400 401 404 408 413 415 429 500 503 504"
        paths[at] = {"get": _operation("Inputs and outputs", name, thing, common, id=f"{name}-metadata")}
        paths[f"{at}/ready"] = {"get": _operation("Whether the model is ready", name, thing, common, id=f"{name}-ready")}
        paths[f"{at}/config"] = {"get": _operation("Settings", name, thing, common, id=f"{name}-config")}
        paths[f"{at}/stats"] = {"get": _operation("What waits", name, thing, common, id=f"{name}-stats")}
        paths[f"{at}/infer"] = {
            "post": _operation("Run the model", name, answer, run, body=request, id=f"{name}-infer")}  # fmt: skip
        binary = {"schema": {"type": "string", "format": "binary", "description": "JSON, then the binary tensors (Inference-Header-Content-Length)."}}
        paths[f"{at}/infer"]["post"]["responses"]["200"]["content"]["application/octet-stream"] = binary
        row = {"anyOf": [{"required": ["instances"]}, {"required": ["inputs"]}]}
        predict = {"type": "object", "properties": {"instances": {"type": "array", "minItems": 1}, "inputs": {"type": ["array", "object"]}}, **row}
        paths[f"/v1/models/{name}:predict"] = {
            "post": _operation("Run the model (TensorFlow Serving)", name, thing, run, body=predict, id=f"{name}-predict"),
        }  # fmt: skip
        paths[f"/v1/models/{name}"] = {"get": _operation("States of the versions (TensorFlow Serving)", name, thing, common, id=f"{name}-status")}
        paths[f"/v1/models/{name}/metadata"] = {"get": _operation("Signature (TensorFlow Serving)", name, thing, common, id=f"{name}-signature")}
    if language:
        codes = "400 401 404 408 413 415 429 500 503 504"
        for path, chat in (("/v1/completions", False), ("/v1/chat/completions", True)):
            operation = _operation("Chat" if chat else "Complete a text", "language models", thing, codes, body=_completion(chat, language), openai=True)
            operation["responses"]["200"]["content"]["text/event-stream"] = {"schema": {}}
            paths[path] = {"post": operation}
        paths["/v1/models"] = {"get": _operation("Language models", "language models", thing, "400 401")}
    made: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "flambeau serve", "version": flambeau.__version__, "description": "The Open Inference Protocol v2, TensorFlow Serving's predict, "
                 "OpenAI's completions."},
        "paths": paths,
        "components": {"schemas": {
            "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
            "OpenAIError": {"type": "object", "required": ["error"], "properties": {"error": {"type": "object"}}},
        }},
    }  # fmt: skip
    if tokens:
        made["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}]
    return made
