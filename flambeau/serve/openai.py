"""OpenAI's completions and chat completions, whole or streamed as server-sent events, for LanguageModels.

Source: OpenAI's API reference (completions, chat completions). What is not there (logprobs, tools, echo, ...) is refused, never ignored.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from typing import Any, Final

from flambeau.serve.connection import Request
from flambeau.serve.errors import BadRequest, NotFound, ServeError
from flambeau.serve.inference import orjson, parse_json
from flambeau.serve.language import Answer, LanguageModel, Sampling, Scheduler
from flambeau.serve.versions import Model

_ids: Final = itertools.count(1)
_started: Final = int(time.time())
_MOST_CHOICES: Final = 16
_BACKLOG: Final = 4 << 20  # bytes that a client may leave unread
_COMMON: Final = frozenset(
    "model stream n max_tokens temperature top_p stop seed user presence_penalty frequency_penalty stream_options metadata store".split()
)
_REFUSED: Final = {"best_of": 1, "echo": False, "logprobs": None, "suffix": None, "logit_bias": None, "tools": None, "tool_choice": None, "functions": None,
                   "response_format": None, "top_logprobs": None}  # fmt: skip


def error(e: ServeError) -> dict[str, Any]:
    """An error in OpenAI's form."""
    kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
    kind = kinds.get(e.status, "invalid_request_error" if e.status < 500 else "server_error")
    return {"error": {"message": e.message, "type": kind, "param": None, "code": "model_not_found" if isinstance(e, NotFound) else None}}


def described(model: Model) -> dict[str, Any]:
    """One entry of the list of models."""
    return {"id": model.name, "object": "model", "created": _started, "owned_by": "flambeau"}


def models(repository: Any) -> dict[str, Any]:
    """The language models."""
    return {"object": "list", "data": [described(m) for m in repository.models.values() if any(v.language is not None for v in m.versions.values())]}


def _number(body: dict[str, Any], name: str, least: float, most: float, default: Any, whole: bool = False) -> Any:
    value = body.get(name)
    if value is None:
        return default
    fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not fits or not math.isfinite(value) or not least <= value <= most:
        raise BadRequest(f"{name} must be {'a whole number' if whole else 'a number'} from {least:g} to {most:g}, got {value!r}")
    return value


def _sampling(body: dict[str, Any], chat: bool, context: int) -> Sampling:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
    if not isinstance(stops, list) or len(stops) > 4 or not all(isinstance(s, str) and s for s in stops):
        raise BadRequest("stop must be a string, or a list of at most 4 that are not empty")
    most = body.get("max_tokens")
    if chat and most is None:
        most = body.get("max_completion_tokens")
    return Sampling(
        context if most is None and chat else _number({"max_tokens": most}, "max_tokens", 1, 1 << 20, 16, whole=True),
        float(_number(body, "temperature", 0, 2, 1.0)), float(_number(body, "top_p", 0, 1, 1.0)),
        _number(body, "seed", 0, (1 << 63) - 1, None, whole=True), list(stops),
        float(_number(body, "presence_penalty", -2, 2, 0.0)), float(_number(body, "frequency_penalty", -2, 2, 0.0)),
    )  # fmt: skip


def _messages(body: dict[str, Any]) -> list[dict[str, str]]:
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise BadRequest("messages must be a list of at least one message")
    found = []
    for m in given:
        content = m.get("content") if isinstance(m, dict) else None
        if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in content):
            content = "".join([p["text"] for p in content])
        if not isinstance(m, dict) or m.get("role") not in ("system", "developer", "user", "assistant") or not isinstance(content, str):
            raise BadRequest("a message must have a role (system, developer, user, assistant) and a text as content")
        found.append({"role": m["role"], "content": content})
    return found


def _prompts(body: dict[str, Any], model: LanguageModel) -> list[list[int]]:
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return [model.encode(prompt)]
    if isinstance(prompt, list) and 0 < len(prompt) <= _MOST_CHOICES and all(isinstance(p, str) for p in prompt):
        return [model.encode(p) for p in prompt]
    raise BadRequest(f"prompt must be a text, or a list of at most {_MOST_CHOICES} texts")


def completions(application: Any, request: Request, chat: bool) -> None:
    """Handle POST /v1/completions or /v1/chat/completions."""
    request.protocol = "openai"
    body = parse_json(request.body)
    for key in body:
        if key in _REFUSED:
            if body[key] not in (_REFUSED[key], None):
                raise BadRequest(f"{key} is not there: this server has no such feature")
        elif key not in _COMMON and key not in (("messages", "max_completion_tokens") if chat else ("prompt",)):
            raise BadRequest(f"there is no parameter {key[:100]!r}")
    name = body.get("model")
    if not isinstance(name, str):
        raise BadRequest("model must be the name of a model")
    if not isinstance(body.get("stream", False) or False, bool):
        raise BadRequest("stream must be true or false")
    options = body.get("stream_options") or {}
    if not isinstance(options, dict) or not set(options) <= {"include_usage"} or not isinstance(options.get("include_usage", False), bool):
        raise BadRequest("stream_options must be an object with include_usage")
    if options and not body.get("stream"):
        raise BadRequest("stream_options are for stream only")
    found = application.repository.model(name)
    version = found.version(None)
    request.model, request.version = name, version.number
    application.check_open()
    scheduler: Scheduler | None = version.language
    if scheduler is None:
        raise BadRequest(f"the model {name!r} is no language model: use /v2/models/{name}/infer")
    model = scheduler.model
    sampling = _sampling(body, chat, model.context)
    prompts = [model.encode(model.chat(_messages(body)))] if chat else _prompts(body, model)
    count = _number(body, "n", 1, _MOST_CHOICES, 1, whole=True)
    reply = _Reply(application, request, name, chat, bool(body.get("stream")), bool(options.get("include_usage")), prompts)
    deadline = request.began + found.settings.timeout_ms / 1000
    for prompt in prompts:
        for i in range(count):
            own = sampling if sampling.seed is None else Sampling(**{**sampling.__dict__, "seed": sampling.seed + i})
            reply.add(prompt, own, deadline)
    reply.begin(scheduler)


class _Reply:
    """One answer, of one or several choices."""

    def __init__(self, application: Any, request: Request, name: str, chat: bool, stream: bool, usage: bool, prompts: list[list[int]]) -> None:
        self.application, self.request, self.name, self.chat, self.stream, self.usage = application, request, name, chat, stream, usage
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{os.getpid():x}-{next(_ids):x}"
        self.created = int(time.time())
        self.prompt_tokens = sum(map(len, prompts))
        self.answers: list[Answer] = []
        self.texts: list[str] = []
        self.reasons: list[str | None] = []
        self.failed_already = False

    def add(self, prompt: list[int], sampling: Sampling, deadline: float) -> None:
        """One more choice."""
        index = len(self.answers)
        self.answers.append(Answer(prompt, sampling, deadline, lambda text, why: self._heard(index, text, why), self._failed))
        self.texts.append("")
        self.reasons.append(None)

    def begin(self, scheduler: Scheduler) -> None:
        """Queue all choices. The head of a stream is sent with its first piece, so that an error before it has a status."""
        self.request.cancel = self._cancel
        try:
            scheduler.submit(self.answers)
        except ServeError:
            self.request.cancel = None
            raise

    def _cancel(self) -> None:
        for a in self.answers:
            a.cancel()

    def _usage(self) -> dict[str, int]:
        made = sum([len(a.tokens) for a in self.answers])
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": made, "total_tokens": self.prompt_tokens + made}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.name}

    def _event(self, found: Any) -> bytes:
        return b"data: " + orjson.dumps(found) + b"\n\n"

    def _heard(self, index: int, text: str, why: str | None) -> None:
        request = self.request
        if request.gone or self.failed_already:
            return
        self.texts[index] += text
        self.reasons[index] = why
        done = why is not None and all(r is not None for r in self.reasons)
        if self.stream:
            if not request.streaming:
                request.begin_stream("text/event-stream")
                if self.chat:
                    for i in range(len(self.answers)):
                        request.send(self._chunk(i, {"role": "assistant", "content": ""}, None))
            if self.chat:
                request.send(self._chunk(index, {"content": text} if text else {}, why))
            else:
                choice = {"index": index, "text": text, "logprobs": None, "finish_reason": why}
                request.send(self._event({**self._head("text_completion"), "choices": [choice]}))
            if request.backlog > _BACKLOG:
                self._failed(ServeError("the client does not read"))
                return
        if not done:
            return
        request.cancel = None
        self.application.metrics.tokens.labels(self.name).inc(sum([len(a.tokens) for a in self.answers]))
        if self.stream:
            if self.usage:
                kind = "chat.completion.chunk" if self.chat else "text_completion"
                request.send(self._event({**self._head(kind), "choices": [], "usage": self._usage()}))
            request.send(b"data: [DONE]\n\n")
            request.end_stream()
            return
        choices: list[dict[str, Any]] = []
        for i, (whole, reason) in enumerate(zip(self.texts, self.reasons, strict=True)):
            form = {"message": {"role": "assistant", "content": whole}} if self.chat else {"text": whole}
            choices.append({"index": i, **form, "logprobs": None, "finish_reason": reason})
        kind = "chat.completion" if self.chat else "text_completion"
        self.application.json(request, {**self._head(kind), "choices": choices, "usage": self._usage()})

    def _chunk(self, index: int, delta: dict[str, Any], why: str | None) -> bytes:
        return self._event({**self._head("chat.completion.chunk"), "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": why}]})

    def _failed(self, e: ServeError) -> None:
        if self.failed_already or self.request.gone:
            return
        self.failed_already = True
        self._cancel()
        self.request.cancel = None
        if self.request.streaming:  # the status has been sent: the error is an event, and the connection ends
            self.request.keep_alive = False
            self.request.error = e
            self.request.send(self._event(error(e)))
            self.request.end_stream()
        else:
            self.request.fail(e)
