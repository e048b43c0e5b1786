"""Exported programs as ONNX models: builder (nodes, constants), translation (the graph of aten, writes and views), program (ONNXProgram), exporter (export).

The other files are the forms of aten's operators, one subject each.
"""

from __future__ import annotations
