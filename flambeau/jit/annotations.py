"""torch.jit.annotations: typing's names."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: UP035

from flambeau.futures import Future

__all__ = ["Any", "Dict", "Future", "List", "NamedTuple", "Optional", "Tuple", "Union"]
