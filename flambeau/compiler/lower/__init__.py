"""Lowering of groups of pointwise, reduction and movement nodes to loop nests.

`lower_loops(graph, group)` gives the kernels of a group, `make_epilogue(graph, group)` what follows a contraction;
`spec.py` says what a legal nest is and proves it.
"""

from __future__ import annotations

from flambeau.compiler.lower.epilogue import Epilogue, make_epilogue
from flambeau.compiler.lower.groups import lower_loops

__all__ = ["Epilogue", "lower_loops", "make_epilogue"]
