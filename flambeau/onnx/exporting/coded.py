"""Products with weights of 8 and 4 bits as ONNX nodes: DequantizeLinear of the codes, and MatMul.

ONNX Runtime makes MatMulNBits of this form, which reads the codes as they lie. They stand as (K, N), blocks along K, which is how it
wants them. 8 bits with a scale for each row have a form in every opset; 4 bits, and scales of blocks, need opset 21.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

import flambeau
from flambeau.export.coded import products
from flambeau.export.graph_signature import InputKind
from flambeau.export.program import ExportedProgram
from flambeau.fx.node import Node
from flambeau.onnx.exporting.builder import Builder, Val
from flambeau.onnx.package import onnx
from flambeau.ops.primitives.coded import unpacked

BLOCKS: Final = 21  # the opset in which there are 4 bits, and scales of blocks
_NAMES: Final = {(4, True): "INT4", (4, False): "UINT4", (8, True): "INT8", (8, False): "UINT8"}


class Coded(NamedTuple):
    """A product: codes (K, N), scales and zero points (K / group, N) as arrays, of which several products may share one; `key` tells which."""

    input: Node
    bias: Any
    codes: Any
    scales: Any
    zeros: Any
    bits: int
    key: tuple[Any, ...]


def coded(program: ExportedProgram) -> tuple[dict[Node, Coded], set[Node]]:
    """(the products whose form is that of codes, the nodes that then nothing needs). None at all if one of them has no such form."""
    found, dead = products(program.graph)
    names = {s.arg.name: str(s.target) for s in program.graph_signature.input_specs if s.kind is not InputKind.USER_INPUT}
    made: dict[Node, Coded] = {}
    read: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for node, p in found.items():
        held = [names.get(n.name) for n in (p.codes, p.scales, p.zeros)]
        key = (*held, p.bits, p.group)
        if None in held:  # codes that are computed
            return {}, set()
        if key not in read:
            codes, scales, zeros = [program.tensor(str(n)) for n in held]
            with flambeau.no_grad():
                read[key] = tuple([np.ascontiguousarray(t.numpy().T) for t in (unpacked(codes, p.bits, p.group), scales, zeros)])
        codes, scales, zeros = read[key]
        if not ((zeros == np.rint(zeros)) & (zeros >= 0) & (zeros < 1 << p.bits)).all():  # a zero point is one of the codes there
            return {}, set()
        made[node] = Coded(p.input, p.bias, codes, scales, zeros, p.bits, key)
    return made, dead if made else set()


def least_opset(program: ExportedProgram) -> int:
    """The opset that the form of a program's products needs; 0 if it has none."""
    return max([1 if _of_rows(c) else BLOCKS for c in coded(program)[0].values()], default=0)


def _of_rows(c: Coded) -> bool:
    return c.bits == 8 and c.scales.shape[0] == 1


def write(b: Builder, c: Coded, x: Val, bias: Val | None) -> str:
    """The nodes of a product."""
    if c.key not in b.constants:
        b.constants[c.key] = _weight(b, c)
    made = b.op("MatMul", x, b.constants[c.key])
    return made if bias is None else b.op("Add", made, bias)


def _weight(b: Builder, c: Coded) -> str:
    middle = 1 << (c.bits - 1)
    signed = bool((c.zeros == middle).all())  # around zero
    kind = getattr(onnx("torch.onnx.export").TensorProto, _NAMES[c.bits, signed])
    name = b.fresh(str(c.key[0]).removesuffix("codes") + "weight")
    rows = _of_rows(c)
    scales = c.scales[0] if rows else c.scales
    zeros = None if signed else _integers(b, b.fresh(f"{name}_zeros"), c.zeros[0] if rows else c.zeros, kind, c.bits)
    given = [_integers(b, name, c.codes.astype(np.int16) - middle if signed else c.codes, kind, c.bits), b.array(scales, f"{name}_scales"), zeros]
    return b.op("DequantizeLinear", *given, axis=1 if rows else 0, block_size=None if rows else c.codes.shape[0] // scales.shape[0])


def _integers(b: Builder, name: str, a: Any, kind: int, bits: int) -> str:
    """An initializer of integers of 8 or 4 bits, of which two are in a byte, the first in its low half."""
    data = a.astype(np.int16).astype(np.uint8)
    if bits == 4:
        flat = np.pad(data.ravel() & 15, (0, data.size % 2)).reshape(-1, 2)
        data = flat[:, 0] | flat[:, 1] << 4
    b.initializers[name] = b.helper.make_tensor(name, kind, a.shape, data.tobytes(), raw=True)
    return name
