"""A block of a transformer, and two plans of tensor parallelism for it."""

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel

F = nn.functional


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (-1, 4)).transpose(1, 2) for m in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(30, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 30)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attention(self.norm1(x))
        return self.head(x + self.down(F.gelu(self.up(self.norm2(x)))))


MEGATRON = {
    "embed": RowwiseParallel(input_layouts=Replicate()), "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
    "attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel(output_layouts=Replicate()),
}  # fmt: skip
SEQUENCE = {
    "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False), "norm1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)), "attention.[qkv]": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=Shard(1), use_local_output=False), "norm2": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}  # fmt: skip
