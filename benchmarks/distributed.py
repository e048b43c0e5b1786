"""Collectives of several ranks of one thread each, beside PyTorch's gloo. `python -m benchmarks.distributed [ranks] [cases]`. Training: data_parallel.py.

Sizes are those of a rank's whole tensor: the input of reduce_scatter and all_to_all, the output of all_gather. "By slots": without the other ranks' memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HANDED = ("broadcast", "all_gather", "reduce_scatter", "all_to_all")  # a tensor, or what is in it, goes from rank to rank
CASES = {
    "all_reduce 4 KB": ("all_reduce", 1 << 10, 2000), "all_reduce 1 MB": ("all_reduce", 250_000, 200), "all_reduce 10 MB": ("all_reduce", 2_500_000, 20),
    "all_reduce 100 MB": ("all_reduce", 25_000_000, 10), "barrier": ("barrier", 0, 2000),
    **{
        f"{kind} {size} MB": (kind, size * 250_000, times)
        for kind in HANDED for size, times in ((1, 200), (10, 20), (100, 5))
    },
}  # fmt: skip


def worker(name: str, times: int) -> None:
    """One rank: prints the best time of a repetition in us, if it is rank 0."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=ranks)
    kind, size, _ = CASES[name]
    tensor, part = torch.ones(size), torch.ones(size // ranks)
    other = torch.ones(size) if kind == "all_to_all" else tensor

    def once() -> None:
        if kind == "all_reduce":
            dist.all_reduce(tensor)
            if size > 1 << 20:
                tensor.fill_(1.0)
        elif kind == "broadcast":
            dist.broadcast(tensor, 0)
        elif kind == "all_gather":
            dist.all_gather_into_tensor(tensor, part)
        elif kind == "reduce_scatter":
            dist.reduce_scatter_tensor(part, tensor)
        elif kind == "all_to_all":
            dist.all_to_all_single(other, tensor)
        else:
            dist.barrier()

    for _ in range(max(5, times // 10)):
        once()
    best = float("inf")
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(times):
            once()
        best = min(best, (time.perf_counter() - start) / times)
    if kind == "all_reduce" and size > 1 << 20:
        start = time.perf_counter()
        for _ in range(times):
            tensor.fill_(1.0)
            tensor[:1].item()
        best -= (time.perf_counter() - start) / times
    dist.barrier()
    if rank == 0:
        print(best * 1e6)


def measure(name: str, ranks: int, ours: bool, **more: str) -> float:
    """The time of one repetition in us. `more`: of the environment."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *(["-m", "flambeau", "run"] if ours else []), __file__, "--worker", name]
        processes = []
        for rank in range(ranks):
            variables = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "INIT": f"file://{folder}/meet", "OMP_NUM_THREADS": "1"}
            root = str(Path(__file__).parents[1])
            environment = {**os.environ, "PYTHONPATH": root, **variables, **more}
            processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        outputs = [process.communicate(timeout=300)[0] for process in processes]
        return float(outputs[0])


def main(arguments: list[str]) -> None:
    """Print a table."""
    ranks = int(arguments[0]) if arguments and arguments[0].isdigit() else 2
    wanted = [a for a in arguments if not a.isdigit()]
    print(f"{ranks} ranks of one thread each, microseconds\n\n| case | flambeau | by slots | PyTorch, gloo | ratio |\n|---|---:|---:|---:|---:|")
    for name in CASES:
        if not wanted or any(part in name for part in wanted):
            mine, slots = measure(name, ranks, True), measure(name, ranks, True, FLAMBEAU_DISTRIBUTED_PEER_MEMORY="0")
            theirs = measure(name, ranks, False)
            print(f"| {name} | {mine:,.0f} | {slots:,.0f} | {theirs:,.0f} | {theirs / mine:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], CASES[sys.argv[2]][2])
    else:
        main(sys.argv[1:])
