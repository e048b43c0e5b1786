"""Lowering of groups of pointwise, reduction and movement nodes to loop nests.

`lower_loops(graph, group)` gives the kernels of a group, `make_epilogue(graph, group)` what follows a contraction;
`spec.py` says what a legal nest is and proves it.
"""

from __future__ import annotations

from flambeau.compiler.lower.epilogue import Epilogue, epilogue_body, make_epilogue
from flambeau.compiler.lower.groups import fill_body, lower_loops, nest_body, region_body

__all__ = ["Epilogue", "epilogue_body", "fill_body", "lower_loops", "make_epilogue", "nest_body", "region_body"]
