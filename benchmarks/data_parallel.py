"""A training step by DistributedDataParallel beside one process with as many threads on the whole batch, and beside PyTorch's with gloo.

`python -m benchmarks.data_parallel [ranks] [rounds] [models]`. All configurations live at the same time and take turns, a few steps each, so that what else the
machine does meets all of them. Printed are the best and the middle turn, and the processor time of a step (all ranks together), in ms.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MODELS = {"perceptron": 64, "gpt": 16, "resnet18": 32}  # examples for each rank
_ROOT = Path(__file__).parents[1]


def _model(name: str, torch: Any) -> tuple[Any, Callable[[int], tuple[Any, Any]]]:
    """A module, and a function that makes a batch of that many examples."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        """Two convolutions of a residual network and what goes past them."""

        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.first, self.norm1 = nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b)
            self.second, self.norm2 = nn.Conv2d(b, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b)
            same = a == b and stride == 1
            self.past = nn.Sequential() if same else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.norm2(self.second(torch.relu(self.norm1(self.first(x))))) + self.past(x))

    class Layer(nn.Module):  # type: ignore[misc]
        """Attention to what is before, and a perceptron."""

        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(c, 2))
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, c))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):  # type: ignore[misc]
        """Four layers of width 128 over characters."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(96, 128), nn.Embedding(128, 128)
            self.layers, self.norm, self.head = nn.Sequential(*[Layer(128, 4) for _ in range(4)]), nn.LayerNorm(128), nn.Linear(128, 96, bias=False)

        def forward(self, x: Any) -> Any:
            x = self.words(x) + self.places(torch.arange(x.shape[1]))
            return self.head(self.norm(self.layers(x))).transpose(1, 2)

    if name == "perceptron":
        model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return model, lambda n: (torch.randn(n, 256), torch.randint(0, 10, (n,)))
    if name == "gpt":
        return GPT(), lambda n: (torch.randint(0, 96, (n, 128)), torch.randint(0, 96, (n, 128)))
    blocks: list[Any] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for a, b, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        blocks += [Block(a, b, stride), Block(b, b, 1)]
    model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, lambda n: (torch.randn(n, 3, 32, 32), torch.randint(0, 10, (n,)))


def worker(name: str, threads: int) -> None:
    """One process: for each number that it reads it takes so many steps, and prints the seconds and the processor's seconds that they took."""
    import torch

    torch.set_num_threads(threads)
    ranks, size = int(os.environ["WORLD_SIZE"]), int(os.environ["BATCH"])
    torch.manual_seed(int(os.environ["RANK"]))
    model, batch = _model(name, torch)
    if ranks > 1:
        torch.distributed.init_process_group("gloo", init_method=os.environ["INIT"], rank=int(os.environ["RANK"]), world_size=ranks)
        model = torch.nn.parallel.DistributedDataParallel(model)
    if name == "resnet18":
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = batch(size)
    for line in sys.stdin:
        wall, used = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        next(model.parameters()).sum().item()
        print(time.perf_counter() - wall, time.process_time() - used, flush=True)


class Configuration:
    """The processes of one way to do it."""

    def __init__(self, name: str, ours: bool, ranks: int, threads: int, batch: int, folder: str) -> None:
        command = [sys.executable, *(["-m", "flambeau", "run"] if ours else []), __file__, "--worker", name, str(threads)]
        self.processes = []
        self.turns: list[tuple[float, float]] = []  # seconds and processor's seconds of a step
        for rank in range(ranks):
            variables = {
                "RANK": str(rank), "WORLD_SIZE": str(ranks), "INIT": f"file://{folder}/{ours}", "OMP_NUM_THREADS": str(threads), "BATCH": str(batch),
                "FLAMBEAU_NUM_THREADS": str(threads),
            }  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(_ROOT), **variables}
            self.processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def take(self, steps: int) -> tuple[float, float]:
        """So many steps: seconds of one, and processor's seconds over all ranks."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{steps}\n")
            process.stdin.flush()
        answers = []
        for process in self.processes:
            assert process.stdout is not None
            answers.append([float(word) / steps for word in process.stdout.readline().split()])
        return max(a[0] for a in answers), sum(a[1] for a in answers)

    def end(self) -> None:
        """Let the processes end."""
        for process in self.processes:
            process.communicate(timeout=60)


def measure(name: str, ranks: int, rounds: int) -> list[Configuration]:
    """DistributedDataParallel, one process, and PyTorch's DistributedDataParallel, measured in turns."""
    with tempfile.TemporaryDirectory() as folder:
        batch = MODELS[name]
        ways = [(True, ranks, 1, batch), (True, 1, ranks, batch * ranks), (False, ranks, 1, batch)]
        found = [Configuration(name, ours, n, threads, size, folder) for ours, n, threads, size in ways]
        counts = []
        for configuration in found:
            for _ in range(3):
                configuration.take(4)
            counts.append(max(2, round(0.25 / configuration.take(2)[0])))
        for _ in range(rounds):
            for configuration, count in zip(found, counts, strict=True):
                configuration.turns.append(configuration.take(count))
        for configuration in found:
            configuration.end()
        return found


def main(arguments: list[str]) -> None:
    """Print a table."""
    numbers = [int(a) for a in arguments if a.isdigit()]
    ranks, rounds = (numbers + [2, 20][len(numbers) :])[:2]
    wanted = [a for a in arguments if not a.isdigit()] or list(MODELS)
    print(f"{ranks} ranks of one thread; load {os.getloadavg()[0]:.1f}; ms: best / middle / processor\n")
    print("| model | flambeau, DDP | flambeau, one process | PyTorch, DDP | DDP / one process | PyTorch / DDP |\n|---|---|---|---|---:|---:|")
    for name in wanted:
        rows = []
        for c in measure(name, ranks, rounds):
            walls, used = [1e3 * w for w, _ in c.turns], [1e3 * u for _, u in c.turns]
            rows.append((min(walls), statistics.median(walls), min(used)))
        cells = " | ".join(f"{a:.1f} / {b:.1f} / {c:.1f}" for a, b, c in rows)
        ddp, one, theirs = rows
        print(f"| {name} | {cells} | {ddp[0] / one[0]:.2f}, {ddp[2] / one[2]:.2f} | {theirs[0] / ddp[0]:.2f}, {theirs[2] / ddp[2]:.2f} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1:])
