"""bitsandbytes, flash-linear-attention: packages of GPU kernels: bitsandbytes' codes and layers on the CPU, the import of fla and its layers' shapes."""

import json

import bitsandbytes as bnb
import torch

found = {}
torch.manual_seed(0)
x = torch.randn(64)
codes, state = bnb.functional.quantize_blockwise(x, blocksize=64)
found["blockwise"] = [codes[:8].tolist(), bnb.functional.dequantize_blockwise(codes, state)[:4].tolist()]
four, state = bnb.functional.quantize_4bit(x.reshape(1, 64), blocksize=64, quant_type="nf4")
found["nf4"] = [four.flatten()[:8].tolist(), bnb.functional.dequantize_4bit(four, state).flatten()[:4].tolist()]
weight = torch.nn.Parameter(torch.randn(3, 4))
found["layers"] = [name for name in ("Linear8bitLt", "Linear4bit", "Embedding", "StableEmbedding") if hasattr(bnb.nn, name)]
embedding = bnb.nn.StableEmbedding(10, 4)
found["embedding"] = embedding(torch.tensor([1, 5])).flatten().tolist()
import fla  # noqa: E402
from fla.models import GLAConfig  # noqa: E402

found["fla"] = [bool(fla.__version__), GLAConfig(hidden_size=32, num_heads=2, num_hidden_layers=1, vocab_size=20).hidden_size]
print(json.dumps(found))
