"""Errors of the tile language: each names the user's file and line."""

from __future__ import annotations


class CompilationError(Exception):
    """A function under @jit that has no meaning: what is wrong, and the line."""

    def __init__(self, file: str, line: int, source: str, message: str) -> None:
        self.file, self.line, self.source, self.error_message = file, line, source, message
        text = f"{file}:{line}: {message}"
        super().__init__(f"{text}\n    {source.strip()}" if source else text)


class CompileTimeAssertionFailure(CompilationError):
    """A tl.static_assert that does not hold."""


class OutOfResources(Exception):
    """Kept for programs that catch it: there is no limit here that a launch could exceed."""
