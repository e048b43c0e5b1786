"""The page of the server: its models, their inputs, and a form to try them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

HEADERS: Final = b"content-security-policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'\r\n"


def page(repository: Any) -> bytes:
    """The HTML; it asks the server for its models by itself."""
    return (Path(__file__).parent.parent / "data" / "serve.html").read_bytes()
