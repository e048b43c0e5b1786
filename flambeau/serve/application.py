"""Paths and what they do: the Open Inference Protocol, TensorFlow Serving's predict, OpenAI's completions, metrics, the page, the document."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import zlib
from collections.abc import Callable
from time import monotonic
from typing import Any, Final
from urllib.parse import unquote

import flambeau
from flambeau.serve import inference, openai, openapi, page, tensorflow
from flambeau.serve.batching import Job
from flambeau.serve.connection import Request
from flambeau.serve.errors import BadRequest, MethodNotAllowed, NotFound, ServeError, TooLarge, Unauthorized, Unavailable
from flambeau.serve.metrics import Metrics
from flambeau.serve.packages import package
from flambeau.serve.repository import Repository
from flambeau.serve.settings import ModelSettings, ServerSettings
from flambeau.serve.versions import Version

orjson: Any = package("orjson", "flambeau serve")
log = logging.getLogger("flambeau.serve")
Handler = Callable[[Request], None]
_ROUTES: Final = 512  # paths that are remembered
_OPEN: Final = frozenset((b"/v2/health/live", b"/v2/health/ready", b"/v2"))  # without a token: for whoever watches the server
_EXTENSIONS: Final = ["binary_tensor_data", "model_repository", "statistics"]


class Application:
    """Answers requests. Everything here runs in the event loop's thread and does not wait."""

    def __init__(self, settings: ServerSettings, repository: Repository, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self.settings, self.repository, self.metrics, self.loop = settings, repository, metrics, loop
        self.draining = False
        self.outstanding = 0
        self._routes: dict[tuple[bytes, bytes], Handler] = {}
        self._tokens = [hashlib.sha256(t.encode()).digest() for t in settings.tokens]
        self._encode = orjson.dumps

    # -- what connections call ----------------------------------------------------------------------------------
    def handle(self, request: Request) -> None:
        """Answer, now or later."""
        try:
            if request.error is not None:
                raise request.error
            if self._tokens and request.path not in _OPEN:
                self._check_token(request)
            if b"content-encoding" in request.headers:
                self._decompress(request)
            key = request.method, request.path
            handler = self._routes.get(key)
            if handler is None:
                handler = self._resolve(request.method, request.path)
                if len(self._routes) >= _ROUTES:
                    self._routes.clear()
                self._routes[key] = handler
            handler(request)
        except ServeError as error:
            request.fail(error)
        except Exception as error:
            log.exception("request failed", extra={"fields": {"request": request.id, "path": request.path.decode(errors="replace")}})
            request.fail(ServeError(f"the server failed ({type(error).__name__}); its log has the request {request.id}"))

    def fail(self, request: Request, error: ServeError) -> None:
        """Answer with an error."""
        headers = b""
        if error.status in (429, 503):
            headers = b"retry-after: 1\r\n"
        elif error.status == 401:
            headers = b'www-authenticate: Bearer realm="flambeau"\r\n'
        elif isinstance(error, MethodNotAllowed):
            headers = b"allow: " + str(error.__cause__ or error.args[-1]).encode() + b"\r\n"
        if request.protocol == "openai" or request.path in (b"/v1/completions", b"/v1/chat/completions"):
            body = self._encode(openai.error(error))
        else:
            body = self._encode({"error": error.message})
        if error.status in (408, 431):
            request.keep_alive = False
        request.answer(error.status, body, headers=headers)

    def answered(self, request: Request, status: int) -> None:
        """A request has its answer: count and log it."""
        seconds = monotonic() - request.began
        if request.protocol:
            self.metrics.answered(request.model, request.version, request.protocol, status, seconds)
        if self.settings.log_requests or status >= 500:
            fields = {
                "request": request.id, "method": request.method.decode(errors="replace"), "path": request.path.decode(errors="replace")[:256], "status": status,
                "milliseconds": round(seconds * 1000, 3),
            }  # fmt: skip
            if request.error is not None:
                fields["error"] = request.error.message[:500]
            log.log(logging.WARNING if status >= 500 else logging.INFO, "request", extra={"fields": fields})

    def cancelled(self, request: Request) -> None:
        """The client has left before its answer."""
        self.metrics.cancelled.inc()
        if self.settings.log_requests:
            log.info("request cancelled", extra={"fields": {"request": request.id, "path": request.path.decode(errors="replace")[:256]}})

    def json(self, request: Request, found: Any, status: int = 200) -> None:
        """Answer with JSON."""
        request.answer(status, self._encode(found, option=orjson.OPT_SERIALIZE_NUMPY))

    def _check_token(self, request: Request) -> None:
        scheme, _, token = request.headers.get(b"authorization", b"").partition(b" ")
        given = hashlib.sha256(token.strip()).digest()
        known = [hmac.compare_digest(given, t) for t in self._tokens]
        if scheme.lower() != b"bearer" or not any(known):
            raise Unauthorized("this server asks for a token: Authorization: Bearer TOKEN")

    def _decompress(self, request: Request) -> None:
        coding = request.headers[b"content-encoding"].strip().lower()
        if coding in (b"identity", b""):
            return
        if coding not in (b"gzip", b"deflate"):
            raise ServeError(f"the body's content-encoding {coding.decode(errors='replace')[:50]!r} is neither gzip nor deflate", 415)
        unpacker = zlib.decompressobj(wbits=47 if coding == b"gzip" else 15)
        try:
            body = unpacker.decompress(request.body, self.settings.max_body + 1)
        except zlib.error as error:
            raise BadRequest(f"the body is no {coding.decode()}: {error}") from None
        if len(body) > self.settings.max_body:
            raise TooLarge(f"the body is over {self.settings.max_body} bytes")
        if not unpacker.eof:
            raise BadRequest(f"the body's {coding.decode()} ends in the middle")
        request.body = body

    # -- paths --------------------------------------------------------------------------------------------------
    def _resolve(self, method: bytes, path: bytes) -> Handler:
        try:
            parts = [unquote(p, errors="strict") for p in path.decode("ascii").strip("/").split("/")]
        except UnicodeDecodeError:
            raise NotFound("there is no such path") from None
        found = self._paths(parts)
        if not found:
            raise NotFound(f"there is no path {path.decode(errors='replace')[:200]}; GET /openapi.json lists them")
        name = "GET" if method == b"HEAD" else method.decode(errors="replace")
        if name not in found:
            allowed = ", ".join(found)
            raise MethodNotAllowed(f"{path.decode(errors='replace')[:200]} takes {allowed}, not {name[:20]}") from ValueError(allowed)
        return found[name]

    def _paths(self, parts: list[str]) -> dict[str, Handler]:
        if parts == [""]:
            return {"GET": self._page}
        if parts == ["metrics"]:
            return {"GET": self._metrics}
        if parts == ["openapi.json"]:
            return {"GET": self._openapi}
        if parts[0] == "v2":
            return self._v2(parts[1:])
        if parts[0] == "v1":
            return self._v1(parts[1:])
        return {}

    def _v2(self, parts: list[str]) -> dict[str, Handler]:
        if not parts:
            return {"GET": self._server_metadata}
        if parts == ["health", "live"]:
            return {"GET": lambda r: self.json(r, {"live": True})}
        if parts == ["health", "ready"]:
            return {"GET": self._ready}
        if parts == ["repository", "index"]:
            return {"POST": self._index}
        if parts == ["models", "stats"]:
            return {"GET": self._statistics("", None)}
        if parts[0] != "models" or len(parts) < 2:
            return {}
        name, rest, number = parts[1], parts[2:], None
        if rest[:1] == ["versions"] and len(rest) >= 2:
            number, rest = rest[1], rest[2:]
        if not rest:
            return {"GET": self._metadata(name, number)}
        if rest == ["ready"]:
            return {"GET": self._model_ready(name, number)}
        if rest == ["config"]:
            return {"GET": self._config(name, number)}
        if rest == ["stats"]:
            return {"GET": self._statistics(name, number)}
        if rest == ["infer"]:
            return {"POST": self._infer(name, number)}
        return {}

    def _v1(self, parts: list[str]) -> dict[str, Handler]:
        if parts == ["completions"]:
            return {"POST": lambda r: openai.completions(self, r, False)}
        if parts == ["chat", "completions"]:
            return {"POST": lambda r: openai.completions(self, r, True)}
        if parts == ["models"]:
            return {"GET": lambda r: self.json(r, openai.models(self.repository))}
        if parts[:1] != ["models"] or len(parts) not in (2, 3, 4, 5):
            return {}
        name, rest, number = parts[1], parts[2:], None
        last, _, verb = parts[-1].rpartition(":") if ":" in parts[-1] else (parts[-1], "", "")
        if len(parts) == 2:
            name = last
        elif rest[0] == "versions" and len(rest) >= 2:
            number = last if len(rest) == 2 else rest[1]
            rest = rest[2:]
        if verb:
            return {"POST": self._predict(name, number)} if verb == "predict" and (len(parts) == 2 or (number is not None and not rest)) else {}
        if rest == ["metadata"]:
            return {"GET": lambda r: self.json(r, tensorflow.metadata(self.repository.model(name), number))}
        if rest:
            return {}
        return {"GET": lambda r: self._status(r, name, number)}

    # -- the server and its models ------------------------------------------------------------------------------
    def ready(self) -> bool:
        """Whether the server takes requests: all models that were there at the start have been tried, and it is not going down."""
        return self.repository.loaded and not self.draining

    def _ready(self, request: Request) -> None:
        self.json(request, {"ready": self.ready()}, 200 if self.ready() else 503)

    def _server_metadata(self, request: Request) -> None:
        self.json(request, {"name": "flambeau", "version": flambeau.__version__, "extensions": _EXTENSIONS})

    def _page(self, request: Request) -> None:
        request.answer(200, page.page(self.repository), "text/html; charset=utf-8", page.HEADERS)

    def _metrics(self, request: Request) -> None:
        body, kind = self.metrics.page()
        request.answer(200, body, kind)

    def _openapi(self, request: Request) -> None:
        self.json(request, openapi.document(self.repository, bool(self._tokens)))

    def _index(self, request: Request) -> None:
        ready_only = False
        if request.body:
            ready_only = inference.parse_json(request.body).get("ready", False)
            if type(ready_only) is not bool:
                raise BadRequest("ready must be true or false")
        found = []
        for name, model in self.repository.models.items():
            found += [{"name": name, "version": str(n), "state": "READY", "reason": ""} for n in sorted(model.versions)]
            if not ready_only:
                found += [{"name": name, "version": str(n), "state": "UNAVAILABLE", "reason": why} for n, why in sorted(model.failures.items())]
                if model.failure and not model.versions:
                    found.append({"name": name, "version": "", "state": "UNAVAILABLE", "reason": model.failure})
        self.json(request, found)

    def version(self, name: str, number: str | None) -> tuple[Version, ModelSettings]:
        """The version of a request for tensors."""
        model = self.repository.model(name)
        found = model.version(number)
        if found.batcher is None:
            raise BadRequest(f"{name!r} is a language model without tensors: use /v1/completions or /v1/chat/completions")
        return found, model.settings

    def _metadata(self, name: str, number: str | None) -> Handler:
        def handler(request: Request) -> None:
            version, _ = self.version(name, number)
            assert version.program is not None
            self.json(request, inference.model_metadata(name, sorted(self.repository.models[name].versions), version.program))

        return handler

    def _model_ready(self, name: str, number: str | None) -> Handler:
        def handler(request: Request) -> None:
            self.repository.model(name).version(number)
            self.json(request, {"name": name, "ready": not self.draining}, 503 if self.draining else 200)

        return handler

    def _config(self, name: str, number: str | None) -> Handler:
        def handler(request: Request) -> None:
            version, settings = self.version(name, number)
            program = version.program
            assert program is not None and version.batcher is not None

            def tensors(specs: Any) -> list[dict[str, Any]]:
                drop = 1 if program.batched else 0
                return [{"name": s.name, "data_type": f"TYPE_{'STRING' if s.datatype == 'BYTES' else s.datatype}", "dims": list(s.shape[drop:])} for s in specs]

            self.json(request, {
                "name": name, "platform": program.platform, "backend": "flambeau", "max_batch_size": version.batcher.most if program.batched else 0,
                "input": tensors(program.inputs), "output": tensors(program.outputs),
                "dynamic_batching": {"max_queue_delay_microseconds": int(settings.max_delay_ms * 1000)},
            })  # fmt: skip

        return handler

    def _statistics(self, name: str, number: str | None) -> Handler:
        def handler(request: Request) -> None:
            models = [self.repository.model(name)] if name else list(self.repository.models.values())
            if number is not None:
                models[0].version(number)
            found = [
                {"name": m.name, "version": str(v.number), "queue": v.outstanding, "run_seconds": v.seconds}
                for m in models for v in m.versions.values() if number is None or str(v.number) == number
            ]  # fmt: skip
            self.json(request, {"model_stats": found})

        return handler

    def _status(self, request: Request, name: str, number: str | None) -> None:
        model = self.repository.model(name)
        if number is None and any(v.language is not None for v in model.versions.values()):
            self.json(request, openai.described(model))
            return
        self.json(request, tensorflow.status(model, number))

    # -- tensors ------------------------------------------------------------------------------------------------
    def check_open(self) -> None:
        """Unavailable while the server goes down."""
        if self.draining:
            raise Unavailable("the server is going down")

    def submit(
        self, request: Request, version: Version, settings: ModelSettings, arrays: list[Any], rows: int, timeout: float | None, done: Callable[[Job], None]
    ) -> None:  # fmt: skip
        """Queue arrays; `done` answers. An error answers itself."""

        def finished(job: Job) -> None:
            request.cancel = None
            error = job.error
            if error is not None:
                request.fail(error if isinstance(error, ServeError) else ServeError(str(error)))
                return
            try:
                done(job)
            except Exception:
                log.exception("answer failed", extra={"fields": {"request": request.id}})
                request.fail(ServeError(f"the answer could not be written; the log has the request {request.id}"))

        limit = settings.timeout_ms / 1000
        header = request.headers.get(b"x-request-timeout-ms")
        if header is not None:
            try:
                timeout = float(header) / 1000
            except ValueError:
                timeout = -1.0
            if not 0 < timeout < 1e9:
                raise BadRequest("X-Request-Timeout-Ms must be a number of milliseconds above 0")
        job = Job(arrays, rows, request.began + (limit if timeout is None else min(timeout, limit)), finished)
        assert version.batcher is not None
        request.cancel = job.cancel
        try:
            version.batcher.submit(job)
        except ServeError:
            request.cancel = None
            raise

    def _infer(self, name: str, number: str | None) -> Handler:
        def handler(request: Request) -> None:
            version, settings = self.version(name, number)
            request.model, request.version, request.protocol = name, version.number, "v2"
            self.check_open()
            program = version.program
            assert program is not None
            given = request.headers.get(b"inference-header-content-length")
            if given is not None and not (given.isdigit() and len(given) < 12):
                raise BadRequest("Inference-Header-Content-Length must be a number of bytes")
            read = inference.read_request(request.body, None if given is None else int(given), program, settings.max_elements)
            request.body = b""

            def done(job: Job) -> None:
                body, header = inference.answer(read, job.outputs, program, name, version.number)
                if header is None:
                    request.answer(200, body)
                else:
                    request.answer(200, body, "application/octet-stream", b"inference-header-content-length: %d\r\n" % header)

            self.submit(request, version, settings, read.arrays, read.rows, read.timeout, done)

        return handler

    def _predict(self, name: str, number: str | None) -> Handler:
        def handler(request: Request) -> None:
            version, settings = self.version(name, number)
            request.model, request.version, request.protocol = name, version.number, "tensorflow"
            self.check_open()
            program = version.program
            assert program is not None
            arrays, by_row = tensorflow.read_predict(request.body, program, settings.max_elements)
            request.body = b""
            rows = arrays[0].shape[0] if arrays[0].ndim else 1
            self.submit(request, version, settings, arrays, rows, None, lambda job: self.json(request, tensorflow.predictions(job.outputs, program, by_row)))

        return handler
