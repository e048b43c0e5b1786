"""ONNX models as modules of flambeau's operations.

values (what flows between nodes), registry (operators by name), graph (nodes in order), module (the nn.Module), host (arithmetic of sizes); the other files
are the operators, one subject each.
"""

from __future__ import annotations
