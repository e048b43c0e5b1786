"""`flambeau demo --web`: two pages that compute in the browser and need no network: digits that are drawn, and a small GPT that writes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import flambeau as torch
from flambeau.cli import demo, demo_gpt
from flambeau.deploy import BuildError, build, link
from flambeau.deploy.building import write
from flambeau.deploy.pages import page
from flambeau.runtime.target import Target

CONTEXT: Final = 96  # letters that the GPT sees
STEPS: Final = 1500


def demo_web(epochs: int | None, steps: int | None, out: str, seed: int) -> int:
    """Train both networks, build them as WebAssembly, write the pages; returns the exit status."""
    try:
        import tqdm as tqdm
    except ImportError:
        print("flambeau demo needs tqdm: pip install 'flambeau[demo]'", file=sys.stderr)
        return 2
    torch.manual_seed(seed)
    try:
        link.check(Target.named("wasm32"))  # before the training
        with tempfile.TemporaryDirectory() as where:
            pages = {"digits.html": _digits(Path(where) / "digits", epochs, seed), "gpt.html": _gpt(Path(where) / "gpt", STEPS if steps is None else steps)}
        for path in write(Path(out), {name: text.encode() for name, text in pages.items()}):
            print(f"{path.stat().st_size:>12,} bytes  {path.resolve()}")
    except (BuildError, OSError) as error:
        print(f"flambeau demo --web: {error}", file=sys.stderr)
        return 1
    print("open them in a browser; they need no server and no network")
    return 0


def _built(folder: Path, name: str, program: Any) -> dict[str, bytes]:
    print(f"building {name} for WebAssembly", flush=True)
    return {p.name: p.read_bytes() for p in build(program, "wasm32", folder, name=name)}


def _digits(folder: Path, epochs: int | None, seed: int) -> str:
    print("training the digits' network", flush=True)
    task = demo.digits()
    history = demo.train(task, task.epochs if epochs is None else epochs, seed)
    model = task.model.eval()
    batch = torch.export.Dim("batch", min=1, max=8)
    program = torch.export.export(model, (torch.randn(4, 1, 8, 8),), dynamic_shapes={"x": {0: batch}})
    return page("digits", _built(folder, "digits", program), {"accuracy": f"{100 * history.accuracies[-1]:.1f}" if history.accuracies else ""})


def _gpt(folder: Path, steps: int) -> str:
    text = demo_gpt.text()
    letters = sorted(set(text))
    number = {c: i for i, c in enumerate(letters)}
    ids = torch.tensor([number[c] for c in text])
    model = demo_gpt.GPT(len(letters), 96, 4, 3, CONTEXT)
    print(f"training a GPT of {sum(p.numel() for p in model.parameters()):,} parameters on {len(text):,} letters, {steps} steps", flush=True)
    demo_gpt.train(model, ids, steps, CONTEXT, lambda step, loss: print(f"step {step}: loss {loss:.3f}", flush=True))
    length = torch.export.Dim("length", min=1, max=CONTEXT)
    program = torch.export.export(model.eval(), (torch.randint(0, len(letters), (1, 17)),), dynamic_shapes={"tokens": {1: length}})
    return page("gpt", _built(folder, "gpt", program), {"letters": "".join(letters), "context": CONTEXT})
