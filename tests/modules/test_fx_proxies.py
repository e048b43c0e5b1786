"""Proxies outside of a trace: public functions record them at their first call, as in PyTorch, whoever called what before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import flambeau
from tests import processes
from tests.nn.oracle import torch

CALLS = {
    "sin": lambda m, x, y: m.sin(x), "add": lambda m, x, y: m.add(x, y, alpha=2), "cat": lambda m, x, y: m.cat([x, y], 1),
    "stack": lambda m, x, y: m.stack((x, y)), "broadcast_tensors": lambda m, x, y: m.broadcast_tensors(x, y),
    "meshgrid": lambda m, x, y: m.meshgrid(x, y, indexing="ij"), "block_diag": lambda m, x, y: m.block_diag(x, y),
    "cartesian_prod": lambda m, x, y: m.cartesian_prod(x, y), "atleast_2d": lambda m, x, y: m.atleast_2d(x, y),
    "einsum": lambda m, x, y: m.einsum("ij,jk->ik", x, y), "einsum of a list": lambda m, x, y: m.einsum("ij,jk->ik", [x, y]),
    "einsum of a tuple": lambda m, x, y: m.einsum("ij,jk->ik", (x, y)), "where": lambda m, x, y: m.where(x > 0, x, y),
    "linear": lambda m, x, y: m.nn.functional.linear(x, y), "hstack": lambda m, x, y: m.hstack([x, y]), "split": lambda m, x, y: m.split(x, 2, dim=1),
    "broadcast_to": lambda m, x, y: m.broadcast_to(x, (2, 3)), "chain_matmul": lambda m, x, y: m.chain_matmul(x, y),
}  # fmt: skip


def recorded(module, call):
    """The calls of a graph that is written by hand."""
    graph = module.fx.Graph()
    tracer = module.fx.proxy.GraphAppendingTracer(graph)
    x, y = [module.fx.Proxy(graph.placeholder(name), tracer=tracer) for name in "xy"]
    call(module, x, y)
    return [(n.op, getattr(n.target, "__name__", n.target), str(n.args), str(n.kwargs)) for n in graph.nodes if n.op != "placeholder"]


@pytest.mark.parametrize("name", CALLS)
def test_calls_are_recorded_as_pytorchs(name: str) -> None:
    assert recorded(flambeau, CALLS[name]) == recorded(torch, CALLS[name])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_the_first_call_of_a_process_is_recorded() -> None:
    """Stubs are there from the first proxy on: nothing that ran before has put them there."""
    names = ["broadcast_tensors", "cat", "einsum", "atleast_2d"]
    code = (  # each name's first call is in a child of its own
        "import os, sys, flambeau\n"
        "from tests.modules import test_fx_proxies as t\n"
        "for name in sys.argv[1:]:\n"
        "    if (child := os.fork()) == 0:\n"
        "        print(t.recorded(flambeau, t.CALLS[name])[0][1], flush=True)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
    )
    done = processes.python("-c", code, *names, cwd=Path(__file__).parents[2])
    assert done.stdout.split() == names, done.stderr
