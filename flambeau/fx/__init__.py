"""torch.fx: programs as graphs of Python calls.

node (one call), graph (their list, and its Python code), graph_module (a Module that runs that code), proxy and symbolic_trace (how a
program becomes a graph), interpreter (how a graph is run call by call), subgraph_rewriter (patterns). These are graphs of what the user
wrote; flambeau's own graphs of primitives are in compiler/graph.py.
"""

from __future__ import annotations

from flambeau.fx import _symbolic_trace as _symbolic_trace
from flambeau.fx.graph import CodeGen, Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.interpreter import Interpreter, Transformer
from flambeau.fx.node import Node, has_side_effect, map_arg
from flambeau.fx.proxy import Proxy
from flambeau.fx.subgraph_rewriter import replace_pattern
from flambeau.fx.symbolic_trace import PH, ProxyableClassMeta, Tracer, symbolic_trace, wrap

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "has_side_effect", "map_arg", "replace_pattern",
    "symbolic_trace", "wrap",
]  # fmt: skip

from flambeau.names import answering as _answering

__getattr__ = _answering("torch.fx", globals())
