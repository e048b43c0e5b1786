"""Small eager calls in loops that look at nothing, beside PyTorch: what a line costs that a user times, or a loop over a list of tensors.

`python benchmarks/small_calls.py [--worst 30]`: microseconds a call of about 190 lines, on tensors of three sizes in turn, one thread, the best of
six rounds of 60 calls after some hundred. Each library runs in a process of its own. Prints the geometric mean of the ratios and the worst lines.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import subprocess
import sys
import time
import warnings
from typing import Any

SIZES = (8, 9, 10)
LINES = """x[0]|x[1:]|x[:,1]|x[...,0]|x[None]|x[-1]|x[i]|x[i,j]|x[m]|x[x>0]|x[b]|x[b,1:]|x[[0,2]]|x[i,:2]|x[:,k]|x[::2]
x[0]=1|x[0]=v|x[:,1]=0|x[m]=0|x[x>0]=0|x[i]=0|x[i]=v|x[b]=v|x[b]+=1|x[1:]=x[:-1].clone()|x[0,0]=2
x+1|x*x|x+v|x.sum()|x.mean(0)|x.max()|x.max(1)|x.argmax(1)|x.softmax(1)|x.std()|x.norm()|x@x.t()|x.exp()|x.clamp(0,1)|x.abs()|-x|x>0|x==x|x.t()|x.T
x.sum().item()|x.max().item()|float(x[0,0])|int(o[0])|x.tolist()|x.shape|x.numel()|x.size(0)|x.dim()|len(x)|bool((x>0).any())|bool((x>5).all())|x.numpy()
x.add_(1)|x.mul_(1.0)|x.zero_()|x.fill_(1)|x.copy_(x)|x.clamp_(0,1)|x.relu_()|x.masked_fill_(n,0.0)
x.view(-1)|x.reshape(-1)|x.unsqueeze(0)|x.squeeze()|x.permute(1,0)|x.transpose(0,1)|x.expand(2,-1,-1)|x.flatten()|x.contiguous()|x.chunk(2)|x.split(3)|list(x)
[r for r in x]|for r in x: r.sum()|torch.stack([x,x])|torch.cat([x,x])|torch.stack(list(x))|torch.zeros(3)|torch.ones_like(x)|torch.arange(5)
torch.tensor([1.0,2.0])|torch.tensor(3)|torch.empty(4)|torch.full((3,),2.0)|torch.eye(3)|torch.linspace(0,1,5)|torch.tensor([[1,2],[3,4]])
torch.rand(5)|torch.randn(5)|torch.randint(0,5,(3,))|torch.randperm(5)|torch.bernoulli(p)|torch.multinomial(p,1)|torch.normal(0.0,1.0,(3,))
torch.where(x>0,x,-x)|torch.maximum(x,x)|x.sort(1)|x.topk(2,1)|x.cumsum(0)|x.unique()|o.unique(return_counts=True)|x.nonzero()|o.bincount()|x.gather(1,g)
x.scatter(1,g,1.0)|x.index_select(0,i)|torch.einsum('ij,kj->ik',x,x)|x.masked_fill(n,0.)|x.masked_select(n)|torch.outer(v,v)|torch.dot(v,v)|x.repeat(2,1)
x.flip(0)|x.roll(1,0)|torch.allclose(x,x)|torch.equal(x,x)|x.double()|x.long()|x.to(torch.float32)|x.clone()|x.detach()|x.cpu()|torch.isnan(x).any()
F.relu(x)|F.gelu(x)|F.softmax(x,1)|F.one_hot(o)|F.cross_entropy(x,c)|F.mse_loss(x,x)|F.linear(x,w)|F.layer_norm(x,(4,))|F.dropout(x,0.5)|F.pad(x,(1,1))
F.embedding(o,e)|F.normalize(x)|F.log_softmax(x,-1)|F.nll_loss(x,c)|linear(x)|network(x)|network(x).sum().backward()|torch.linalg.norm(x)|torch.linalg.solve(s,v)
with torch.no_grad(): x+1|linear.state_dict()|torch.distributions.Categorical(logits=x).sample()|torch.distributions.Normal(0.0,1.0).log_prob(v)
x.var(0)|x.median()|torch.inverse(s)|torch.det(s)|x.diag()|x.tril()|x.prod()|x.any()|x.all()|x.min(0).values|x.argsort(0)|x.pow(2)|x**2|x/2|x//2|x%2|1-x
x.round()|x.floor()|x.sign()|x.sqrt()|x.log()|x.sin()|x.sigmoid()|x.tanh()|x.scatter_add(1,g,x)|x.isfinite().all()"""


def _tensors(torch: Any, n: int) -> dict[str, Any]:
    """What the lines read and write, for one size; all of it has values."""
    found = {
        "x": torch.rand(n, 4) - 0.3, "i": torch.randperm(n), "j": torch.randint(0, 4, (n,)), "k": torch.tensor([0, 2]), "m": torch.rand(n) > 0.5,
        "n": torch.rand(n, 4) > 0.5, "b": torch.tensor(2), "v": torch.rand(4), "o": torch.randperm(n), "p": torch.full((n,), 0.5),
        "g": torch.randint(0, 4, (n, 4)), "c": torch.randint(0, 4, (n,)), "s": torch.rand(4, 4) + 4 * torch.eye(4),
    }  # fmt: skip
    for t in found.values():
        float(t.sum())
    return found


def measured(library: str) -> dict[str, float]:
    """Microseconds a call of each line, of a library by its name."""
    warnings.simplefilter("ignore")
    torch = importlib.import_module(library)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nn = torch.nn
    scope = {
        "torch": torch, "F": nn.functional, "w": torch.randn(3, 4), "e": torch.randn(64, 5), "linear": nn.Linear(4, 4),
        "network": nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
    }  # fmt: skip
    times = {}
    for line in [line for row in LINES.split("\n") for line in row.split("|")]:
        functions = []
        for n in SIZES:
            own = scope | {f"_{k}": t for k, t in _tensors(torch, n).items()}
            exec(f"def run({', '.join(f'{k[1:]}={k}' for k in own if k.startswith('_') and len(k) == 2)}):\n    {line}", own)
            functions.append(own["run"])
        started = time.thread_time()
        for _ in range(300):
            for run in functions:
                run()
            if time.thread_time() - started > 1.5:
                break
        rounds = []
        for _ in range(6):
            started = time.thread_time()
            for _ in range(20):
                for run in functions:
                    run()
            rounds.append((time.thread_time() - started) / 20 / len(functions))
        times[line] = min(rounds) * 1e6
    return times


def main() -> None:
    """Measure both, one after the other, and print how they compare."""
    parser = argparse.ArgumentParser(description="Small eager calls beside PyTorch.")
    parser.add_argument("--worst", type=int, default=30, help="how many lines are printed (default: 30)")
    parser.add_argument("--library", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.library:
        print(json.dumps(measured(given.library)))
        return
    ours, theirs = (
        json.loads(subprocess.run([sys.executable, __file__, "--library", name], check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        for name in ("flambeau", "torch")
    )
    ratios = sorted(((ours[line] / theirs[line], line) for line in ours), reverse=True)
    mean = math.exp(sum(math.log(r) for r, _ in ratios) / len(ratios))
    print(f"{len(ratios)} lines: flambeau takes {mean:.2f} of PyTorch's time (geometric mean); {sum(r > 1 for r, _ in ratios)} take longer\n")
    print(f"{'line':52} {'flambeau, us':>12} {'PyTorch, us':>12} {'ratio':>6}")
    for ratio, line in ratios[: given.worst]:
        print(f"{line:52} {ours[line]:12.2f} {theirs[line]:12.2f} {ratio:6.2f}")


if __name__ == "__main__":
    main()
