"""What stays different, and why: by name, or by name and a part of the statement."""

from __future__ import annotations

import re

# (pattern of the whole name, part of the statement or "" for the whole example, reason)
KNOWN: tuple[tuple[str, str, str], ...] = (
    (r"torch\.hub\..*", "", "downloads"),
)


def reason(name: str, source: str) -> str | None:
    """Why a statement of an example may differ (source "": why the example is left out); None if it must not."""
    for pattern, part, why in KNOWN:
        if re.fullmatch(pattern, name) and (not part or (source and part in source)):
            return why
    return None
