"""GGUF files: read and written, bits against the package gguf where it is there, and damaged files."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.ao.quantization.weight_layers import CodedLinear
from flambeau.io import gguf, gguf_codes

HALVES = {  # where blocks have numbers of 16 bits
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
}  # fmt: skip


def _blocks(kind: str, count: int = 40) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (count, gguf_codes.CODED[kind][1]), dtype=np.uint8)
    for at in HALVES[kind]:
        blocks[:, at : at + 2] = rng.normal(size=count).astype(np.float16).view(np.uint8).reshape(count, 2)
    return blocks


@pytest.mark.parametrize("kind", HALVES)
def test_bits_of_codes(kind: str) -> None:
    package = pytest.importorskip("gguf")
    blocks = _blocks(kind)
    theirs = package.quants.dequantize(blocks, package.GGMLQuantizationType[kind]).reshape(-1)
    np.testing.assert_array_equal(gguf_codes.decode(blocks.reshape(-1), kind).view(np.uint32), theirs.view(np.uint32))
    if kind in ("Q8_0", "Q4_0"):
        x = np.random.default_rng(1).normal(size=(16, 64)).astype(np.float32)
        x[3] = 0
        np.testing.assert_array_equal(gguf_codes.encode(x, kind), package.quants.quantize(x, package.GGMLQuantizationType[kind]).reshape(-1))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0", "Q4_K"])
def test_layers_of_blocks(kind: str) -> None:
    """The layer multiplies by the codes of the file: no weight is rounded a second time."""
    blocks = gguf.CodedBlocks(kind, (10, 4 * gguf_codes.CODED[kind][0]), _blocks(kind).reshape(-1))
    layer = CodedLinear.from_blocks(blocks)
    assert ft.allclose(layer.weight, blocks.decoded(), rtol=1e-5, atol=1e-4)
    x = ft.randn(2, blocks.shape[1])
    wanted = x.double() @ blocks.decoded().double().t()
    assert (layer(x) - wanted).norm() < 1e-4 * wanted.norm()


def test_written_and_read(tmp_path: Path) -> None:
    tensors = {"a.weight": ft.randn(6, 64), "b": ft.randn(5).half(), "c": ft.arange(7, dtype=ft.int32), "d": ft.randn(3, 2).bfloat16(), "e": ft.tensor(2.5)}
    metadata = {"general.name": "näme", "n": 7, "minus": -3, "big": 1 << 40, "x": 0.5, "flag": True}
    metadata |= {"list": [1, 2, 3], "words": ["a", "bc"], "reals": [0.5, 1.5]}
    gguf.save_gguf(tensors, tmp_path / "m.gguf", metadata)
    read, found = gguf.load_gguf(tmp_path / "m.gguf")
    assert {k: v for k, v in found.items() if k in metadata} == metadata
    for name, t in tensors.items():
        assert ft.equal(read[name], t) and read[name].dtype is t.dtype
    for kind, limit in (("Q8_0", 0.01), ("Q4_0", 0.12)):
        gguf.save_gguf(tensors, tmp_path / "q.gguf", kinds=kind)
        again, _ = gguf.load_gguf(tmp_path / "q.gguf")
        assert (again["a.weight"] - tensors["a.weight"]).norm() < limit * tensors["a.weight"].norm() and ft.equal(again["b"], tensors["b"])
    blocks, _ = gguf.load_gguf(tmp_path / "q.gguf", decode=False)
    gguf.save_gguf({"a.weight": blocks["a.weight"]}, tmp_path / "r.gguf")
    assert ft.equal(gguf.load_gguf(tmp_path / "r.gguf")[0]["a.weight"], again["a.weight"])


def test_the_package_reads_what_is_written(tmp_path: Path) -> None:
    package = pytest.importorskip("gguf")
    gguf.save_gguf({"a": ft.arange(64.0).view(2, 32)}, tmp_path / "m.gguf", {"n": 7}, kinds="Q8_0")
    reader = package.GGUFReader(tmp_path / "m.gguf")
    assert reader.tensors[0].name == "a" and reader.fields["n"].contents() == 7 and list(reader.tensors[0].shape) == [32, 2]


def test_damaged_files(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    gguf.save_gguf({"a": ft.randn(4, 32), "b": ft.randn(3)}, path, {"words": ["a", "b"]})
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in (0, 3, 10, 40, 100, len(whole) - 33):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError):
            gguf.load_gguf(path)
    for _ in range(200):  # whatever bytes change in the head: a result or a clear error
        broken = bytearray(whole)
        for at in rng.integers(4, len(whole) - 600, 3):
            broken[at] = rng.integers(0, 256)
        path.write_bytes(broken)
        with contextlib.suppress(ValueError, NotImplementedError):
            gguf.load_gguf(path)
    with pytest.raises(TypeError, match="GGUF has not"):
        gguf.save_gguf({"a": ft.ones(2, dtype=ft.complex64)}, path)
    with pytest.raises(ValueError, match="whole blocks"):
        gguf.save_gguf({"a": ft.ones(2, 33)}, path, kinds={"a": "Q8_0"})
