"""A trainer: callbacks, checkpoints, early stopping, mixed precision, a data set of one's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, Dataset, random_split


class Series(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, count: int, length: int) -> None:
        self.data = torch.sin(torch.linspace(0, 20, count + length))
        self.count, self.length = count, length

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.data[index : index + self.length].unsqueeze(-1), self.data[index + self.length]


class Model(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.rnn = nn.LSTM(1, hidden, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: Tensor) -> Tensor:
        out, (state, _) = self.rnn(x)
        y: Tensor = self.head(out[:, -1] + 0.0 * state[-1])
        return y.squeeze(-1)


class Callback(Protocol):
    def __call__(self, epoch: int, metrics: dict[str, float]) -> bool: ...


class Trainer:
    def __init__(self, model: nn.Module, optimizer: Optimizer, loss: Callable[[Tensor, Tensor], Tensor], folder: str) -> None:
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self.schedule = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)
        self.path = os.path.join(folder, "best.pt")
        self.best = float("inf")

    def epoch(self, loader: DataLoader[tuple[Tensor, Tensor]], train: bool) -> float:
        self.model.train(train)
        total, count = torch.zeros(()), 0
        with torch.set_grad_enabled(train):
            for x, y in loader:
                value = self.loss(self.model(x), y)
                if train:
                    self.optimizer.zero_grad()
                    self.scaler.scale(value).backward()
                    self.scaler.unscale_(self.optimizer)
                    nn.utils.clip_grad_value_(self.model.parameters(), 0.5)
                    self.scaler.step(self.optimizer)
                    self.scaler.update()
                total += value.detach() * len(x)
                count += len(x)
        return (total / count).item()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "random": torch.get_rng_state()}

    def fit(self, train: DataLoader[tuple[Tensor, Tensor]], test: DataLoader[tuple[Tensor, Tensor]], epochs: int, callbacks: list[Callback]) -> float:
        for epoch in range(epochs):
            metrics = {"train": self.epoch(train, True), "test": self.epoch(test, False)}
            self.schedule.step(metrics["test"])
            if metrics["test"] < self.best:
                self.best = metrics["test"]
                torch.save(self.state(), self.path)
            if any(call(epoch, metrics) for call in callbacks):
                break
        saved = torch.load(self.path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(saved["model"])
        return self.best


def report(epoch: int, metrics: dict[str, float]) -> bool:
    print(epoch, {name: round(value, 4) for name, value in metrics.items()})
    return metrics["test"] < 1e-6


def main() -> None:
    torch.manual_seed(2)
    train, test = random_split(Series(96, 8), [72, 24], generator=torch.Generator().manual_seed(0))
    model = Model(8)
    count: int = sum(p.numel() for p in model.parameters())
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(model, torch.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.9), nn.MSELoss(), folder)
        best = trainer.fit(DataLoader(train, batch_size=24, shuffle=True), DataLoader(test, batch_size=24), 2, [report])
    names: list[str] = [name for name, _ in model.named_parameters()]
    print(count, best, names[0])


if __name__ == "__main__":
    main()
