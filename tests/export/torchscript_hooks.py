"""A module with forward hooks that PyTorch scripts: their annotations must be types, not texts."""

from typing import Any, Tuple  # noqa: UP035 - as TorchScript reads it

import torch


def doubled(self, input: Tuple[torch.Tensor]) -> Tuple[torch.Tensor]:  # noqa: UP006
    """A pre-hook that changes the input."""
    return (input[0] * 2,)


def one_more(self, input: Tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:  # noqa: UP006
    """A hook that changes the result."""
    return output + 1


def said(self, input: Tuple[torch.Tensor], output: torch.Tensor) -> None:  # noqa: UP006
    """A hook that looks on."""
    print("seen")


class Hooked(torch.nn.Module):
    """A layer with hooks, in a module with hooks."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 3


def hooked() -> Any:
    """The module."""
    made = Hooked()
    made.linear.register_forward_pre_hook(doubled)
    made.linear.register_forward_hook(one_more)
    made.register_forward_pre_hook(doubled)
    made.register_forward_hook(one_more)
    made.register_forward_hook(said)  # the last: TorchScript gives its None to a hook behind it
    return made
