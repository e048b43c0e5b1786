"""Names of torch.distributed that are not there yet: they can be imported, and say so at their use."""

from __future__ import annotations

from typing import Any

from flambeau import absent

refuse = absent.refusal(
    NotImplementedError,
    "flambeau has not this part of torch.distributed yet",
    "process groups on one machine, collectives, DistributedDataParallel and the launcher are there; run with these",
)


def define(namespace: dict[str, Any], table: str = "", classes: str = "") -> None:
    """Put functions (see absent.py) and classes that refuse into a module's globals; a name that is in neither is missing as PyTorch's are."""
    absent.define(namespace, table, refuse, "such thing in flambeau yet: no")
    absent.classes(namespace, classes.split(), refuse, "such thing in flambeau yet: no")
