"""safetensors: both directions with the reference library, and damaged files."""

from __future__ import annotations

import contextlib
import json
import random

import pytest

import flambeau
from flambeau.io import safetensors
from tests.nn.oracle import torch

reference = pytest.importorskip("safetensors.torch")


def test_reads_the_reference(tmp_path):
    tensors = {"a": torch.randn(2, 3), "b": torch.arange(5), "h": torch.ones(3).bfloat16(), "e": torch.zeros(0, 2)}
    reference.save_file(tensors, tmp_path / "r.safetensors", metadata={"k": "v"})
    read = safetensors.load_file(tmp_path / "r.safetensors")
    assert sorted(read) == sorted(tensors)
    for name, t in tensors.items():
        assert read[name].tolist() == t.tolist() and str(read[name].dtype) == str(t.dtype)
    assert safetensors.metadata_of((tmp_path / "r.safetensors").read_bytes()) == {"k": "v"}


def test_the_reference_reads_ours(tmp_path):
    x = flambeau.arange(12.0).reshape(3, 4)
    tensors = {"x": x, "t": x.t(), "e": flambeau.zeros(0, 2), "i": flambeau.tensor([1, 2]), "b": flambeau.tensor([True])}
    safetensors.save_file(tensors, tmp_path / "w.safetensors", {"a": "b"})
    read = reference.load_file(tmp_path / "w.safetensors")
    for name, t in tensors.items():
        assert read[name].tolist() == t.tolist()
    assert safetensors.load(safetensors.save(tensors))["t"].tolist() == x.t().tolist()


def test_damaged_files():
    data = safetensors.save({"x": flambeau.arange(12.0), "y": flambeau.ones(3)})
    source = random.Random(0)
    for i in range(200):
        changed = bytearray(data)
        for _ in range(3):
            changed[source.randrange(len(changed))] = source.randrange(256)
        with contextlib.suppress(safetensors.SafetensorError):
            safetensors.load(bytes(changed[: source.randrange(len(changed))]) if i % 2 else bytes(changed))


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [4], "data_offsets": [4, 20]},
        {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]},
        {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]},
        {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
        {"shape": [4]},
        3,
    ],
)
def test_malformed_entries(entry):
    header = json.dumps({"x": entry}).encode()
    with pytest.raises(safetensors.SafetensorError):
        safetensors.load(len(header).to_bytes(8, "little") + header + bytes(16))
