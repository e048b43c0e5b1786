"""Layers of a graph and what follows them made one module, as fuse_modules does by names."""

from __future__ import annotations

from typing import Any, Final

from flambeau import nn
from flambeau.ao.quantization.fuse_modules import get_fuser_method
from flambeau.ao.quantization.fx.roles import is_relu, kind_of
from flambeau.fx import GraphModule

_CONVS: Final = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRANSPOSED: Final = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# From the last to the first; longer ones before their parts.
_CHAINS: Final[tuple[tuple[Any, ...], ...]] = (
    *[(nn.ReLU, b, c) for c, b in zip(_CONVS, _NORMS, strict=True)],
    *[(b, c) for c, b in zip(_CONVS, _NORMS, strict=True)],
    *[(nn.ReLU, c) for c in _CONVS],
    (nn.ReLU, nn.Linear),
    (nn.BatchNorm1d, nn.Linear),
    *[(b, c) for c, b in zip(_TRANSPOSED, _NORMS, strict=True)],
    (nn.ReLU, nn.BatchNorm2d),
    (nn.ReLU, nn.BatchNorm3d),
)


def _chain(last: Any, modules: dict[str, Any], calls: dict[str, int]) -> list[Any]:
    """The nodes, from the last to the first, that can be one module: each is used by the next only, and each module is called once."""
    for kinds in _CHAINS:
        node, found = last, []
        for kind in kinds:
            fits = is_relu(node, modules) if kind is nn.ReLU else node.op == "call_module" and kind_of(node, modules) is kind
            alone = node is last or len(node.users) == 1
            once = node.op != "call_module" or calls[node.target] == 1 or kind is nn.ReLU
            if not (fits and alone and once) or not node.args or not hasattr(node.args[0], "op"):
                break
            found.append(node)
            node = node.args[0]
        if len(found) == len(kinds):
            return found
    return []


def fuse(model: GraphModule, is_qat: bool) -> GraphModule:
    """A GraphModule in which convolutions, normalisations and relus that follow each other are one module, at the name of the first."""
    modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
    calls: dict[str, int] = {}
    for node in model.graph.nodes:
        if node.op == "call_module":
            calls[node.target] = calls.get(node.target, 0) + 1
    gone: set[Any] = set()
    for last in reversed(list(model.graph.nodes)):
        chain = [] if last in gone else _chain(last, modules, calls)
        if not chain:
            continue
        first = chain[-1]
        parts = [modules[n.target] if n.op == "call_module" else nn.ReLU().train(modules[first.target].training) for n in reversed(chain)]
        fused = get_fuser_method(tuple([type(m) for m in parts]))(is_qat, *parts)
        fused.train(parts[0].training)
        owner, _, name = first.target.rpartition(".")
        setattr(modules[owner], name, fused)
        modules[first.target] = fused
        last.replace_all_uses_with(first)
        for node in chain[:-1]:
            model.graph.erase_node(node)
            gone.add(node)
    return GraphModule(model, model.graph)
