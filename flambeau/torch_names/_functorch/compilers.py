"""torch._functorch.compilers: compilers for aot_function: they run the graph as it is, or print it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau as torch
from flambeau._functorch.aot_autograd import aot_function, aot_module
from flambeau._functorch.partitioners import min_cut_rematerialization_partition
from flambeau.fx.graph_module import GraphModule

default_decompositions: Final[dict[Any, Callable[..., Any]]] = {}


def nop(fx_g: GraphModule, _: Sequence[Any]) -> GraphModule:
    """The graph as it is."""
    return fx_g


def print_compile(fx_g: GraphModule, _: Sequence[Any]) -> GraphModule:
    """The graph as it is; its code is printed."""
    print(fx_g.code)
    return fx_g


def debug_compile(fx_g: GraphModule, inps: Sequence[Any]) -> GraphModule:
    """The graph as it is, after a run of it with the example inputs."""
    fx_g(*inps)
    return fx_g


def ts_compile(fx_g: GraphModule, inps: Sequence[Any]) -> GraphModule:
    """The graph as it is: every graph is compiled when it runs, there is no second compiler here."""
    return fx_g


nnc_jit = ts_compile


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Any:
    """A function or a module whose forward pass keeps little: what is cheap is computed again in the backward pass (a minimum cut)."""
    options = {"fw_compiler": ts_compile, "bw_compiler": ts_compile, "partition_fn": min_cut_rematerialization_partition, **kwargs}
    return aot_module(fn, **options) if isinstance(fn, torch.nn.Module) else aot_function(fn, **options)
