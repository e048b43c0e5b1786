"""`flambeau demo`: train on handwritten digits, save a checkpoint and a picture of what was learnt.

Without data: a small convolutional network on the shipped 8 x 8 digits. With `--data DIR`: PyTorch's MNIST example network
(github.com/pytorch/examples/tree/main/mnist: two convolutions, max-pool, dropout, two linears; Adadelta, StepLR 0.7).
"""

from __future__ import annotations

import gzip
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F
from flambeau.runtime import object_cache
from flambeau.utils.data import DataLoader, TensorDataset

_HELD_OUT = 360  # of the shipped images: a fixed fifth


class DigitNet(nn.Module):
    """For 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.dropout = nn.Dropout(0.3)
        self.fc1 = nn.Linear(64 * 4 * 4, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(self.dropout(x), 1)))
        return F.log_softmax(self.fc2(self.dropout(x)), dim=1)


class MnistNet(nn.Module):
    """PyTorch's MNIST example network, for 28 x 28 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


@dataclass
class Task:
    """What to train: the network, the images, the names of the classes."""

    name: str
    model: nn.Module
    train: TensorDataset
    test: TensorDataset
    epochs: int
    classes: list[str]
    gamma: float
    optimizer: Any = None


@dataclass
class History:
    """What happened: the loss of every step, the held-out accuracy after every epoch."""

    losses: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)


def digits() -> Task:
    """The shipped images; pixels scaled to [0, 1]."""
    raw = gzip.decompress((Path(__file__).parent.parent / "data" / "digits.gz").read_bytes())
    table = torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(-1, 65)
    images = (table[:, :64].float() / 16.0).reshape(-1, 1, 8, 8)
    labels = table[:, 64].long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))  # the same split for every seed
    test, train = order[:_HELD_OUT], order[_HELD_OUT:]
    model = DigitNet()
    return Task(
        "the shipped 8 x 8 digits", model, TensorDataset(images[train], labels[train]), TensorDataset(images[test], labels[test]), 20,
        [str(i) for i in range(10)], 0.9, torch.optim.Adam(model.parameters(), lr=2e-3),
    )  # fmt: skip


def mnist(folder: str) -> Task:
    """The IDX files in a folder; pixels normalised as in PyTorch's example (mean 0.1307, deviation 0.3081)."""
    from flambeau.cli.idx import find, read

    sets = []
    for part in ("train", "test"):
        images = read(find(Path(folder), part, "images")).float().div(255.0).sub(0.1307).div(0.3081).unsqueeze(1)
        sets.append(TensorDataset(images, read(find(Path(folder), part, "labels")).long()))
    model = MnistNet()
    return Task(
        f"the images in {folder}", model, sets[0], sets[1], 3, [str(i) for i in range(10)], 0.7,
        torch.optim.Adadelta(model.parameters(), lr=1.0),
    )  # fmt: skip


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    """The share of images whose most likely class is right."""
    model.eval()
    right = torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        for x, y in DataLoader(data, batch_size=500):
            right += (model(x).argmax(1) == y).sum()
    return right.item() / len(data)


def train(task: Task, epochs: int, seed: int) -> History:
    """Train with progress bars; returns the curves."""
    from tqdm import tqdm

    history = History()
    scheduler = torch.optim.lr_scheduler.StepLR(task.optimizer, step_size=1, gamma=task.gamma)
    loader = DataLoader(task.train, batch_size=64, shuffle=True, generator=torch.Generator().manual_seed(seed))
    for epoch in range(1, epochs + 1):
        task.model.train()
        pending: list[Any] = []
        with tqdm(loader, desc=f"epoch {epoch}/{epochs}", file=sys.stdout, ncols=80, mininterval=0.5) as bar:
            for x, y in bar:
                task.optimizer.zero_grad()
                loss = F.nll_loss(task.model(x), y)
                loss.backward()
                task.optimizer.step()
                pending.append(loss.detach())
                if len(pending) % 50 == 0:
                    bar.set_postfix(loss=f"{pending[-1].item():.3f}")
        history.losses.extend(torch.stack(pending).tolist())
        scheduler.step()
        history.accuracies.append(accuracy(task.model, task.test))
        print(f"held-out accuracy {100 * history.accuracies[-1]:.2f} %")
    return history


def draw(task: Task, history: History, path: Path) -> None:
    """Loss and accuracy curves, and some predictions beside their images."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure = pyplot.figure(figsize=(10, 6.4), layout="constrained")
    grid = figure.add_gridspec(3, 8)
    left, right = figure.add_subplot(grid[:2, :4]), figure.add_subplot(grid[:2, 4:])
    smooth = [sum(history.losses[max(0, i - 19) : i + 1]) / min(i + 1, 20) for i in range(len(history.losses))]
    left.plot(history.losses, linewidth=0.5, alpha=0.4, color="tab:blue")
    left.plot(smooth, color="tab:blue")
    left.set(title="training loss (mean of 20 steps)", xlabel="step", ylabel="negative log-likelihood", yscale="log")
    steps = range(1, len(history.accuracies) + 1)
    right.plot(steps, [100 * a for a in history.accuracies], marker="o", color="tab:green")
    right.set(title="held-out accuracy", xlabel="epoch", ylabel="%")
    right.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    task.model.eval()
    x, y = task.test[:8]
    with torch.no_grad():
        probabilities = task.model(x).exp()
    for i in range(8):
        axes = figure.add_subplot(grid[2, i])
        axes.imshow(x[i, 0].numpy(), cmap="gray_r")
        guess = int(probabilities[i].argmax())
        color = "black" if guess == int(y[i]) else "tab:red"
        axes.set_title(f"{task.classes[guess]} ({100 * float(probabilities[i, guess]):.0f} %)", fontsize=9, color=color)
        axes.axis("off")
    figure.suptitle(f"flambeau demo: {task.name}")
    new = path.with_suffix(".new.png")
    figure.savefig(new, dpi=110)
    new.replace(path)
    pyplot.close(figure)


def folder(out: str) -> Path:
    """The folder for what a demo leaves."""
    made = Path(out)
    if not made.exists():
        made.mkdir(parents=True)
        (made / ".gitignore").write_text("*\n")  # what the demo leaves is nobody's work
    return made


def demo(data: str | None, epochs: int | None, out: str, seed: int) -> int:
    """Train, report, save; returns the exit status."""
    for package in ("tqdm", "matplotlib"):
        try:
            __import__(package)
        except ImportError:
            print(f"flambeau demo needs {package}: pip install 'flambeau[demo]'", file=sys.stderr)
            return 2
    start = time.perf_counter()
    torch.manual_seed(seed)
    print(f"reading {'the shipped digits' if data is None else f'the IDX files in {data}'} and making the network", flush=True)
    try:
        task = digits() if data is None else mnist(data)
    except (OSError, ValueError) as error:
        print(f"flambeau demo: {error}", file=sys.stderr)
        return 2
    parameters = sum(p.numel() for p in task.model.parameters())
    print(f"{task.name}: {len(task.train)} to learn from, {len(task.test)} held out; {parameters:,} parameters")
    print(f"the first steps compile the network's kernels, unless they are in the cache ({object_cache.directory() or 'which is off'})", flush=True)
    history = train(task, task.epochs if epochs is None else epochs, seed)
    checkpoint, picture = folder(out) / "model.pt", Path(out) / "curves.png"
    torch.save(task.model.state_dict(), checkpoint)
    draw(task, history, picture)
    print(f"{100 * history.accuracies[-1]:.2f} % of the held-out images are right, after {time.perf_counter() - start:.1f} s")
    print(f"checkpoint: {checkpoint.resolve()}\npicture:    {picture.resolve()}")
    return 0
