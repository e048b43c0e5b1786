"""Names of torch.distributed that are for several processes: they can be imported, and say at their use that there is one process."""

from __future__ import annotations

from typing import Any

from flambeau import absent

refuse = absent.refusal(
    NotImplementedError, "torch.distributed works in one process so far", "a group of one process and its collectives are there; run without this strategy"
)


def define(namespace: dict[str, Any], table: str = "", classes: str = "") -> None:
    """Put functions (see absent.py) and classes that refuse into a module's globals; a name that is in neither is missing as PyTorch's are."""
    absent.define(namespace, table, refuse, "second process, which it is for: there is no such")
    absent.classes(namespace, classes.split(), refuse, "second process, which it is for: there is no such")
