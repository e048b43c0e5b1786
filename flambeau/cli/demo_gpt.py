"""A small GPT that writes text letter by letter, for `flambeau demo --gpt` and `--web`: the network, its text, its training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F

CONTEXT: Final = 96  # letters that the GPT sees
STEPS: Final = 1500
_OPENING: Final = "The statement"


class Block(nn.Module):
    """Attention and a network of two layers, each added to what it is given (A. Radford et al., 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous().view(b, t, c)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """The logits of the token after each one: (batch, length) -> (batch, length, vocabulary)."""

    def __init__(self, vocabulary: int = 30, width: int = 32, heads: int = 2, layers: int = 1, context: int = 40) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def text() -> str:
    """English that is on every machine: the help of Python's language, of which only plain letters are kept."""
    from pydoc_data.topics import topics

    plain = "\n\n".join([topics[name] for name in sorted(topics)])
    return "".join([c for c in plain if c == "\n" or " " <= c <= "~"])


def train(model: GPT, ids: Any, steps: int, context: int, report: Callable[[int, float], None]) -> None:
    """So many steps of 32 pieces each; `report(step, loss)` now and then."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=max(steps, 2))
    model.train()
    for step in range(steps):
        starts = torch.randint(0, len(ids) - context - 1, (32, 1)) + torch.arange(context + 1)
        piece = ids[starts]
        loss = F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % 100 == 0 or step == steps - 1:
            report(step, loss.item())
    model.eval()


def trained(steps: int) -> tuple[GPT, str, dict[str, int]]:
    """A GPT that has seen so many steps, its letters in the order of their numbers, and the arguments that it is made with."""
    whole = text()
    letters = "".join(sorted(set(whole)))
    number = {c: i for i, c in enumerate(letters)}
    arguments = {"vocabulary": len(letters), "width": 96, "heads": 4, "layers": 3, "context": CONTEXT}
    model = GPT(**arguments)
    print(f"training a GPT of {sum(p.numel() for p in model.parameters()):,} parameters on {len(whole):,} letters, {steps} steps", flush=True)
    ids = torch.tensor([number[c] for c in whole])
    train(model, ids, steps, CONTEXT, lambda step, loss: print(f"step {step}: loss {loss:.3f}", flush=True))
    return model, letters, arguments


def written(model: GPT, letters: str, opening: str, count: int) -> str:
    """How the network goes on with a text: the likeliest letter each time."""
    ids = [letters.index(c) for c in opening]
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids[-CONTEXT:]]))[0, -1].argmax()))
    return "".join([letters[i] for i in ids])


def demo(steps: int | None, out: str, seed: int) -> int:
    """Train, save a checkpoint, show what the network writes; returns the exit status."""
    from flambeau.cli.demo import folder

    start = time.perf_counter()
    torch.manual_seed(seed)
    try:
        checkpoint = folder(out) / "gpt.pt"
        model, letters, arguments = trained(STEPS if steps is None else steps)
        torch.save({"network": "gpt", "arguments": arguments, "letters": letters, "model": model.state_dict()}, checkpoint)
    except OSError as error:
        print(f"flambeau demo --gpt: {error}", file=sys.stderr)
        return 2
    print(f"it goes on with {_OPENING!r}: {written(model, letters, _OPENING, 60)!r}")
    print(f"after {time.perf_counter() - start:.1f} s\ncheckpoint: {Path(checkpoint).resolve()}")
    return 0
