"""HTTP/1.1 on a socket: requests are parsed by httptools (Node's llhttp), handed to the application, and answered in order.

There is no framework between: one request costs what parsing and one write cost. Limits on heads, bodies, times and pipelined requests are kept here.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from time import monotonic, time
from typing import Any, Final

from flambeau.serve.errors import BadRequest, ServeError, TooLarge, Unavailable
from flambeau.serve.packages import package
from flambeau.serve.settings import ServerSettings

httptools: Any = package("httptools", "flambeau serve")
log = logging.getLogger("flambeau.serve")

_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_TYPES: Final = {
    "application/json": b"content-type: application/json\r\ncontent-length: ",
    "application/octet-stream": b"content-type: application/octet-stream\r\ncontent-length: ",
}
_IDLE, _HEAD, _BODY = 0, 1, 2
_ids = itertools.count(1)
_ID_CHARACTERS: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=")


class Request:
    """A request, and the way back to who sent it. `cancel` is called if the client leaves before the answer."""

    __slots__ = ("_id", "began", "body", "cancel", "connection", "error", "expects", "headers", "keep_alive", "method", "model", "path", "protocol", "query",
                 "streaming", "version")  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self.connection: Connection | None = connection
        self.headers: dict[bytes, bytes] = {}
        self.body: Any = b""
        self.method = self.path = self.query = b""
        self.keep_alive, self.streaming, self.expects = True, False, False
        self.began = 0.0
        self.cancel: Callable[[], None] | None = None
        self.error: ServeError | None = None
        self._id: str | None = None
        self.model, self.version, self.protocol = "", 0, ""

    @property
    def id(self) -> str:
        """The client's X-Request-Id, or a new one."""
        if self._id is None:
            given = self.headers.get(b"x-request-id", b"")
            usable = given and len(given) <= 128 and _ID_CHARACTERS.issuperset(given)
            self._id = given.decode() if usable else f"{_prefix[0]}{next(_ids):x}"
        return self._id

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self.connection is None

    def answer(self, status: int, body: bytes, kind: str = "application/json", headers: bytes = b"") -> None:
        """Send the answer. `headers`: further lines, each with its end."""
        connection = self.connection
        if connection is None:
            return
        connection.answer(self, status, body, kind, headers)

    def fail(self, error: ServeError) -> None:
        """Send an error as JSON, in the protocol's form."""
        self.error = error
        connection = self.connection
        if connection is not None:
            connection.application.fail(self, error)

    def begin_stream(self, kind: str) -> None:
        """Send the head of an answer whose parts follow."""
        if self.connection is not None:
            self.connection.begin_stream(self, kind)

    def send(self, part: bytes) -> None:
        """Send a part."""
        if self.connection is not None:
            self.connection.send_part(self, part)

    def end_stream(self) -> None:
        """The last part has been sent."""
        if self.connection is not None:
            self.connection.end_stream(self)

    @property
    def backlog(self) -> int:
        """Bytes that the client has not read yet."""
        if self.connection is None or self.connection.transport is None:
            return 0
        return self.connection.transport.get_write_buffer_size()  # type: ignore[no-any-return]


_prefix: Final = [os.urandom(6).hex() + "-"]


def new_prefix() -> None:
    """After a fork: ids that no other worker gives."""
    _prefix[0] = os.urandom(6).hex() + "-"


_date = [0.0, b""]


def _date_line() -> bytes:
    now = monotonic()
    if now - _date[0] >= 1.0 or not _date[1]:  # type: ignore[operator]
        _date[:] = [now, f"date: {formatdate(time(), usegmt=True)}\r\n".encode()]
    return _date[1]  # type: ignore[return-value]


class Connection(asyncio.Protocol):
    """One connection."""

    def __init__(self, application: Any, settings: ServerSettings, connections: set[Connection]) -> None:
        self.application, self.settings, self.connections = application, settings, connections
        self.transport: Any = None
        self.parser = httptools.HttpRequestParser(self)
        self.pending: deque[Request] = deque()
        self.reading: Request | None = None
        self.parts: list[bytes] = []
        self.received = 0
        self.head = 0
        self.phase, self.since = _IDLE, monotonic()
        self.blocked = 0.0  # since when the client has not read what was sent to it
        self.stopped = False  # whether reading is paused
        self.last = False  # nothing more is read: the connection ends after the pending answers
        self.starting = False

    # -- of asyncio ---------------------------------------------------------------------------------------------
    def connection_made(self, transport: Any) -> None:
        """A client has come."""
        self.transport = transport
        self.connections.add(self)
        self.application.metrics.connections.inc()
        if len(self.connections) > self.settings.max_connections:
            self._refuse(Unavailable(f"the server has {self.settings.max_connections} connections, its limit"))

    def connection_lost(self, error: Exception | None) -> None:
        """The client has left, or we have closed: what it waits for is cancelled."""
        self.connections.discard(self)
        self.application.metrics.connections.dec()
        for request in self.pending:
            request.connection = None
            if request.cancel is not None:
                cancel, request.cancel = request.cancel, None
                cancel()
                self.application.cancelled(request)
        self.pending.clear()
        self.transport, self.last = None, True
        self.parser = self.reading = None

    def pause_writing(self) -> None:
        """The client does not read fast enough."""
        self.blocked = monotonic()
        self._pause()

    def resume_writing(self) -> None:
        """It has caught up."""
        self.blocked = 0.0
        self._resume()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self.last:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(BadRequest("this server has no protocol to upgrade to"))
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, ServeError) else BadRequest(f"this is no HTTP request: {error}"))

    # -- of the parser ------------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        """A request begins."""
        self.reading = Request(self)
        self.parts = []
        self.received = self.head = 0
        self.phase, self.since = _HEAD, monotonic()

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        assert self.reading is not None
        self.reading.path += url
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        assert self.reading is not None
        self._count(len(name) + len(value) + 4)
        name = name.lower()
        headers = self.reading.headers
        if name in headers:
            if name in (b"content-length", b"host", b"authorization", b"inference-header-content-length"):
                raise BadRequest(f"the header {name.decode()} is given twice")
            value = headers[name] + b", " + value
        headers[name] = value

    def _count(self, size: int) -> None:
        self.head += size
        if self.head > self.settings.max_header:
            raise TooLarge(f"the request's head is over {self.settings.max_header} bytes", 431)

    def on_headers_complete(self) -> None:
        """The head is there."""
        request, parser = self.reading, self.parser
        assert request is not None
        request.method = parser.get_method()
        request.keep_alive = parser.should_keep_alive()
        path = request.path
        if path[:1] != b"/":
            try:
                url = httptools.parse_url(path)
                path = (url.path or b"/") + (b"?" + url.query if url.query else b"")
            except httptools.HttpParserInvalidURLError:
                path = b"*"
        if b"?" in path:
            path, _, request.query = path.partition(b"?")
        request.path = path
        headers = request.headers
        if parser.get_http_version() not in ("1.1", "1.0"):
            raise ServeError("this server speaks HTTP/1.1", 505)
        if b"host" not in headers and parser.get_http_version() == "1.1":
            raise BadRequest("the request has no Host header")
        length = headers.get(b"content-length")
        if length is not None and length.isdigit() and int(length[:20]) > self.settings.max_body:
            raise TooLarge(f"the body is over {self.settings.max_body} bytes")
        if headers.get(b"expect", b"").lower() == b"100-continue" and not self.pending:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.phase, self.since = _BODY, monotonic()

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        self.received += len(part)
        if self.received > self.settings.max_body:
            raise TooLarge(f"the body is over {self.settings.max_body} bytes")
        self.parts.append(part)

    def on_message_complete(self) -> None:
        """The request is there: handle it, or let it wait for the one before."""
        request, parts = self.reading, self.parts
        assert request is not None
        self.reading, self.parts = None, []
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        request.began = self.since = monotonic()
        self.phase = _IDLE
        self.pending.append(request)
        if len(self.pending) == 1:
            self._start()
        elif len(self.pending) >= self.settings.max_pipelined:
            self._pause()

    # -- answers ------------------------------------------------------------------------------------------------
    def _start(self) -> None:
        """Handle the first pending request, and those after it that are answered at once."""
        if self.starting:
            return
        self.starting = True
        while self.pending:
            request = self.pending[0]
            self.application.handle(request)
            if self.pending and self.pending[0] is request:
                break
        self.starting = False

    def _pop(self, request: Request) -> None:
        """The first pending request has its answer."""
        self.pending.popleft()
        request.connection = request.cancel = None
        self.since = monotonic()
        if not request.keep_alive or (self.last and not self.pending):
            self._close()
            return
        if self.stopped and not self.blocked:
            self._resume()
        if self.pending and not self.starting:
            self.application.loop.call_soon(self._start)

    def _close(self) -> None:
        self.last = True
        if self.transport is not None:
            self.transport.close()

    def answer(self, request: Request, status: int, body: bytes, kind: str, headers: bytes) -> None:
        """See Request."""
        if request.streaming or self.transport is None:
            return
        if self.application.draining:
            request.keep_alive = False
        line = _TYPES.get(kind) or f"content-type: {kind}\r\ncontent-length: ".encode()
        close = b"" if request.keep_alive else b"connection: close\r\n"
        head = b"%b%b%d\r\nx-request-id: %b\r\n%b%b%b\r\n" % (_LINES.get(status) or f"HTTP/1.1 {status} \r\n".encode(), line, len(body), request.id.encode(),
                                                              close, headers, _date_line())  # fmt: skip
        self.transport.write(head if request.method == b"HEAD" else head + body)
        self.application.answered(request, status)
        self._pop(request)

    def begin_stream(self, request: Request, kind: str) -> None:
        """See Request. Chunked, as HTTP/1.1 has it; to an older client the end of the connection is the end."""
        if self.transport is None:
            return
        request.streaming = True
        if self.application.draining or b"transfer-encoding" in request.headers.get(b"connection", b"").lower():
            request.keep_alive = False
        close = b"" if request.keep_alive else b"connection: close\r\n"
        self.transport.write(b"%bcontent-type: %b\r\ntransfer-encoding: chunked\r\ncache-control: no-cache\r\nx-request-id: %b\r\n%b%b\r\n"
                             % (_LINES[200], kind.encode(), request.id.encode(), close, _date_line()))  # fmt: skip

    def send_part(self, request: Request, part: bytes) -> None:
        """See Request."""
        if self.transport is not None and part:
            self.transport.write(b"%x\r\n%b\r\n" % (len(part), part))

    def end_stream(self, request: Request) -> None:
        """See Request."""
        if self.transport is None:
            return
        self.transport.write(b"0\r\n\r\n")
        self.application.answered(request, 200)
        self._pop(request)

    def _refuse(self, error: ServeError) -> None:
        """Answer what cannot be read, after what came before it, and end the connection."""
        if self.last:
            return
        self.last = True
        request = self.reading or Request(self)
        self.reading = None
        request.keep_alive = False
        request.error = error
        request.began = monotonic()
        self.pending.append(request)
        self._pause()
        if len(self.pending) == 1:
            self._start()

    # -- limits of time -----------------------------------------------------------------------------------------
    def _pause(self) -> None:
        if not self.stopped and self.transport is not None and not self.transport.is_closing():
            self.stopped = True
            self.transport.pause_reading()

    def _resume(self) -> None:
        if self.stopped and self.transport is not None and not self.transport.is_closing() and len(self.pending) < self.settings.max_pipelined:
            self.stopped = False
            self.transport.resume_reading()

    def tick(self, now: float) -> None:
        """Once a second or so: end what takes too long."""
        s, waited = self.settings, now - self.since
        if self.blocked and now - self.blocked > s.write_timeout:
            self.transport.abort()
        elif self.phase == _HEAD and waited > s.header_timeout:
            self._refuse(ServeError(f"the request's head took more than {s.header_timeout:g} s", 408))
        elif self.phase == _BODY and waited > s.body_timeout:
            self._refuse(ServeError(f"the request's body took more than {s.body_timeout:g} s", 408))
        elif self.phase == _IDLE and not self.pending and (waited > s.idle_timeout or self.application.draining):
            self._close()


def tls(settings: ServerSettings) -> ssl.SSLContext | None:
    """The context of the certificate, TLS 1.2 and newer."""
    if settings.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.certificate, settings.key)
    return context
