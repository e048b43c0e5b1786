"""Lowering of groups of pointwise, reduction and movement nodes to loop nests.

`lower_loops(graph, group)` gives the kernels of a group; `spec.py` says what a legal nest is and proves it.
"""

from __future__ import annotations

from flambeau.compiler.lower.groups import lower_loops

__all__ = ["lower_loops"]
