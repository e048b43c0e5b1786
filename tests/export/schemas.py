"""`python -m tests.export.schemas > flambeau/data/aten.txt`: the schemas of PyTorch's operators that make tensors or take them, one a line.
With `--core`, for flambeau/data/aten_core.txt: the names of those that PyTorch tags as core.

Left out are those that write to `out=`, and those that only TorchScript has (lists and strings without a tensor).
"""

from __future__ import annotations

import sys

import torch


def lines() -> list[str]:
    """The lines of the file, sorted by name; overloads in PyTorch's order."""
    found = []
    for schema in torch._C._jit_get_all_schemas():
        text = str(schema)
        if not schema.name.startswith("aten::") or "Tensor" not in text or any(a.is_out for a in schema.arguments):
            continue
        found.append(text.removeprefix("aten::"))
    return sorted(dict.fromkeys(found), key=lambda t: t.split("(", 1)[0].split(".")[0])


def core() -> list[str]:
    """The lines of the file of core operators, sorted."""
    packets = [(name, getattr(torch.ops.aten, name)) for name in dir(torch.ops.aten)]
    return sorted([f"{name}.{o}" for name, p in packets if hasattr(p, "overloads") for o in p.overloads() if torch.Tag.core in getattr(p, o).tags])


if __name__ == "__main__":
    print("\n".join(core() if "--core" in sys.argv else lines()))
