"""`flambeau demo --web`: two pages that compute in the browser and need no network: digits that are drawn, and a small GPT that writes."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import flambeau as torch
from flambeau.cli import demo, demo_gpt, networks
from flambeau.deploy import BuildError, build, link
from flambeau.deploy.building import write
from flambeau.deploy.pages import page
from flambeau.runtime.target import Target


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
            pages = {
                "digits.html": _digits(Path(where) / "digits", epochs, seed),
                "gpt.html": _gpt(Path(where) / "gpt", demo_gpt.STEPS if steps is None else steps),
            }
        for path in write(Path(out), {name: text.encode() for name, text in pages.items()}):
            print(f"{path.stat().st_size:>12,} bytes  {path.resolve()}")
    except (BuildError, OSError) as error:
        print(f"flambeau demo --web: {error}", file=sys.stderr)
        return 1
    print("open them in a browser; they need no server and no network")
    return 0


def _digits(folder: Path, epochs: int | None, seed: int) -> str:
    print("training the digits' network", flush=True)
    task = demo.digits()
    history = demo.train(task, task.epochs if epochs is None else epochs, seed)
    return page_of(networks.known("digits", task.model), {"accuracy": f"{100 * history.accuracies[-1]:.1f}" if history.accuracies else ""}, folder)


def _gpt(folder: Path, steps: int) -> str:
    model, letters, _ = demo_gpt.trained(steps)
    return page_of(networks.known("gpt", model), {"letters": letters}, folder)


# Sizes that a page needs: fewer plans make a smaller file.
_RANGES: Final = {"digits": {"batch": (1, 8)}, "gpt": {"batch": (1, 1)}}


def page_of(trained: networks.Trained, facts: dict[str, Any], folder: Path) -> str:
    """The page of a network of the demos, which is built in an empty folder. ValueError for other networks; BuildError.

    `facts`: what the page shows: of the digits the accuracy in percent, of the GPT its letters in the order of their numbers.
    """
    if trained.name not in _RANGES or trained.model is None:
        raise ValueError(f"there are pages for the networks {' and '.join(_RANGES)}, not for {trained.name}; "
                         "`flambeau build CHECKPOINT --target wasm32` makes a module for a page of your own")  # fmt: skip
    print(f"building {trained.name} for WebAssembly", flush=True)
    files = build(trained.exported(_RANGES[trained.name]), "wasm32", folder, name=trained.name)
    context = trained.form.ranges.get("length")
    return page(trained.name, {p.name: p.read_bytes() for p in files}, facts if context is None else {**facts, "context": context[1]})
