"""What the server answers where it does not do what it was asked: a status of HTTP, and a sentence that says why."""

from __future__ import annotations


class ServeError(Exception):
    """An answer other than success. `status`: of HTTP."""

    status = 500

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status = status


class BadRequest(ServeError):
    """The request is malformed, or its tensors are not what the model takes."""

    status = 400


class Unauthorized(ServeError):
    """No token, or one that is not known."""

    status = 401


class NotFound(ServeError):
    """No such model, version or path."""

    status = 404


class MethodNotAllowed(ServeError):
    """The path is there, but not for this method."""

    status = 405


class TooLarge(ServeError):
    """The body, or a tensor, is over the limit."""

    status = 413


class QueueFull(ServeError):
    """The model's queue is full: come back later."""

    status = 429


class Unavailable(ServeError):
    """The server is going down, or the model is not ready."""

    status = 503


class DeadlineExceeded(ServeError):
    """The answer would come too late, so it is not computed, or not sent."""

    status = 504


class Cancelled(ServeError):
    """The client has left. Nobody reads this answer; logs and metrics count it under the status that is usual for it."""

    status = 499
