"""The Open Inference Protocol over gRPC, on the same event loop, models and queues as HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import math
from time import monotonic
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.serve.batching import Job
from flambeau.serve.datatypes import TensorSpec, from_bytes, to_bytes
from flambeau.serve.errors import BadRequest, ServeError, Unauthorized
from flambeau.serve.grpc_messages import METHODS, SERVICE, messages
from flambeau.serve.inference import check_arrays, count_elements, model_metadata
from flambeau.serve.packages import package
from flambeau.serve.settings import ServerSettings

log = logging.getLogger("flambeau.serve")
_CODES: Final = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 413: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL",
    503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_FIELDS: Final = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents", "UINT8": "uint_contents",
    "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}  # fmt: skip


def _array(tensor: Any, spec: TensorSpec, raw: bytes | None, most: int) -> Any:
    """An input's array, from its raw bytes or its typed contents. BadRequest."""
    shape = list(tensor.shape)
    if any(n < 0 for n in shape):
        raise BadRequest(f"input {spec.name!r}: shape {shape} must be a list of sizes")
    if tensor.datatype != spec.datatype:
        raise BadRequest(f"input {spec.name!r}: the model takes {spec.datatype}, got {tensor.datatype!r}")
    spec.check_shape(shape)
    count = count_elements(shape, spec.name, most)
    if raw is not None:
        if tensor.HasField("contents"):
            raise BadRequest(f"input {spec.name!r} has both contents and raw_input_contents")
        return from_bytes(raw, spec, shape)
    field = _FIELDS.get(spec.datatype)
    if field is None:
        raise BadRequest(f"input {spec.name!r}: {spec.datatype} is sent as raw_input_contents only")
    values = getattr(tensor.contents, field)
    if len(values) != count:
        raise BadRequest(f"input {spec.name!r}: shape {shape} has {count} elements, {field} has {len(values)}")
    if spec.datatype == "BYTES":
        made = np.empty(count, object)
        made[:] = list(values)
        return made.reshape(shape)
    wide = np.array(values, np.float64 if spec.dtype.kind == "f" else bool if spec.dtype.kind == "b" else object if not count else None)
    made = wide.astype(spec.dtype)
    if spec.dtype.kind in "iu" and count and not np.array_equal(made, wide):
        raise BadRequest(f"input {spec.name!r}: data of {spec.datatype} must lie between {np.iinfo(spec.dtype).min} and {np.iinfo(spec.dtype).max}")
    return made.reshape(shape)


class Service:
    """The methods of the service. Each gets a message and gives one; a ServeError becomes a status."""

    def __init__(self, application: Any, made: dict[str, Any]) -> None:
        self.application, self.messages = application, made

    async def ServerLive(self, request: Any, context: Any) -> Any:
        """Whether the server runs."""
        return self.messages["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        """Whether it takes requests."""
        return self.messages["ServerReadyResponse"](ready=self.application.ready())

    async def ModelReady(self, request: Any, context: Any) -> Any:
        """Whether a model takes requests."""
        try:
            self.application.repository.model(request.name).version(request.version or None)
        except ServeError:
            return self.messages["ModelReadyResponse"](ready=False)
        return self.messages["ModelReadyResponse"](ready=self.application.ready())

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        """Name and version."""
        return self.messages["ServerMetadataResponse"](name="flambeau", version=flambeau.__version__, extensions=[])

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        """Inputs and outputs of a model."""
        version, _ = self.application.version(request.name, request.version or None)
        found = model_metadata(request.name, sorted(self.application.repository.models[request.name].versions), version.program)
        return self.messages["ModelMetadataResponse"](**found)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        """Run a model."""
        application = self.application
        begun = monotonic()
        version, settings = application.version(request.model_name, request.model_version or None)
        application.check_open()
        program = version.program
        given = {t.name: i for i, t in enumerate(request.inputs)}
        names = [s.name for s in program.inputs]
        if len(given) != len(request.inputs) or set(given) != set(names):
            raise BadRequest(f"the model takes the inputs {', '.join(names)}, each once; got {', '.join([t.name for t in request.inputs]) or 'none'}")
        raw = request.raw_input_contents
        if raw and len(raw) != len(request.inputs):
            raise BadRequest(f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs")
        arrays = [_array(request.inputs[given[s.name]], s, raw[given[s.name]] if raw else None, settings.max_elements) for s in program.inputs]
        check_arrays(program, arrays)
        outputs = [s.name for s in program.outputs]
        wanted = [o.name for o in request.outputs] or outputs
        for name in wanted:
            if name not in outputs:
                raise BadRequest(f"the model has no output {name!r}; it has {', '.join(outputs)}")
        limit = settings.timeout_ms / 1000
        left = context.time_remaining()
        limit = min(limit, left) if left is not None and math.isfinite(left) else limit
        if "timeout" in request.parameters and request.parameters["timeout"].int64_param > 0:
            limit = min(limit, request.parameters["timeout"].int64_param / 1e6)
        future: asyncio.Future[Job] = application.loop.create_future()

        def done(job: Job) -> None:
            if not future.done():
                future.set_result(job)

        job = Job(arrays, arrays[0].shape[0] if arrays[0].ndim else 1, begun + limit, done)
        version.batcher.submit(job)
        try:
            await future
        except asyncio.CancelledError:  # the client has left
            job.cancel()
            application.metrics.cancelled.inc()
            raise
        if job.error is not None:
            raise job.error
        made = self.messages["ModelInferResponse"](model_name=request.model_name, model_version=str(version.number), id=request.id)
        for name in wanted:
            a, spec = job.outputs[outputs.index(name)], program.outputs[outputs.index(name)]
            made.outputs.add(name=name, datatype=spec.datatype, shape=a.shape)
            made.raw_output_contents.append(to_bytes(a))
        return made


async def start(application: Any, settings: ServerSettings) -> tuple[Any, int]:
    """A running gRPC server, and its port."""
    grpc: Any = package("grpc", "flambeau serve --grpc-port")
    aio: Any = package("grpc.aio", "flambeau serve --grpc-port")
    made = messages()
    service = Service(application, made)
    tokens = [hashlib.sha256(t.encode()).digest() for t in settings.tokens]

    def check_token(context: Any) -> None:
        given = dict(context.invocation_metadata() or ()).get("authorization", "")
        scheme, _, token = given.partition(" ")
        digest = hashlib.sha256(token.strip().encode()).digest()
        known = [hmac.compare_digest(digest, t) for t in tokens]
        if scheme.lower() != "bearer" or not any(known):
            raise Unauthorized("this server asks for a token: authorization: Bearer TOKEN")

    def handler(name: str) -> Any:
        method = getattr(service, name)

        async def call(request: Any, context: Any) -> Any:
            begun = monotonic()
            code, error = 200, ""
            try:
                if tokens and name not in ("ServerLive", "ServerReady", "ServerMetadata"):
                    check_token(context)
                return await method(request, context)
            except ServeError as e:
                code, error = e.status, e.message
            except asyncio.CancelledError:
                code = 499
                raise
            except Exception as e:
                log.exception("grpc request failed", extra={"fields": {"method": name}})
                code, error = 500, f"the server failed ({type(e).__name__})"
            finally:
                model = getattr(request, "model_name", "")
                found = application.repository.models.get(model)
                if name == "ModelInfer" and found is not None:
                    number = request.model_version
                    version = int(number) if number.isdecimal() and int(number) in found.versions else max(found.versions, default=0)
                    application.metrics.answered(model, version, "grpc", code, monotonic() - begun)
            await context.abort(getattr(grpc.StatusCode, _CODES.get(code, "UNKNOWN")), error)

        return grpc.unary_unary_rpc_method_handler(
            call, request_deserializer=made[f"{name}Request"].FromString, response_serializer=made[f"{name}Response"].SerializeToString
        )

    options = [("grpc.max_receive_message_length", settings.max_body), ("grpc.max_send_message_length", -1), ("grpc.so_reuseport", int(settings.workers > 1))]
    server = aio.server(options=options, maximum_concurrent_rpcs=settings.max_connections * 4)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {name: handler(name) for name in METHODS}),))
    address = f"{f'[{settings.host}]' if ':' in settings.host else settings.host}:{settings.grpc_port}"
    if settings.certificate is not None and settings.key is not None:
        with open(settings.certificate, "rb") as c, open(settings.key, "rb") as k:
            port = server.add_secure_port(address, grpc.ssl_server_credentials([(k.read(), c.read())]))
    else:
        port = server.add_insecure_port(address)
    await server.start()
    log.info("listening", extra={"fields": {"host": settings.host, "grpc_port": port}})
    return server, port
