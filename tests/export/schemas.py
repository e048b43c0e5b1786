"""`python -m tests.export.schemas > flambeau/data/aten.txt`: the schemas of PyTorch's operators that make tensors or take them, one a line.

Left out are those that write to `out=`, and those that only TorchScript has (lists and strings without a tensor).
"""

from __future__ import annotations

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


if __name__ == "__main__":
    print("\n".join(lines()))
