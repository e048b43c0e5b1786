"""Losses that hold the last dense layer: adaptive softmax (Grave et al., 2017), and cross entropy of a linear layer's output."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn.modules.container import ModuleList, Sequential
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.loss import _WeightedLoss
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor

_ASMoutput = namedtuple("_ASMoutput", ("output", "loss"))


class AdaptiveLogSoftmaxWithLoss(Module):
    """log_softmax over many classes sorted by frequency: a head for the most frequent, and clusters of the rest behind it.

    The clusters end at `cutoffs`; cluster i has in_features / div_value^(i + 1) hidden features.
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        ordered = cutoffs == sorted(set(cutoffs)) and all(int(c) == c for c in cutoffs)
        if not ordered or min(cutoffs) <= 0 or max(cutoffs) > n_classes - 1:
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is "
                f"between 1 and n_classes-1, got {cutoffs} for {n_classes} classes"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            hidden = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(
                Linear(in_features, hidden, bias=False, device=device, dtype=dtype),
                Linear(hidden, high - low, bias=False, device=device, dtype=dtype),
            ))  # fmt: skip

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for cluster in self.tail:
            for layer in cluster:
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """(log probability of each target, mean of their negatives)."""
        if target_.ndim > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if target_.ndim == 1 and input_.shape[0] != target_.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if input_.ndim != target_.ndim + 1:
            raise RuntimeError(f"{target_.ndim}D target tensor expects {target_.ndim + 1}D input tensors, but found inputs with size {input_.size()}")
        input = input_ if target_.ndim else input_.unsqueeze(0)
        target = target_ if target_.ndim else target_.unsqueeze(0)
        if target.numel() and not ((low := int(target.min().item())) >= 0 and int(target.max().item()) < self.n_classes):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {target.max().item()}] were found. ")
        gathered = target
        output = torch.zeros(target.shape[0], dtype=input.dtype)
        for i, (low, high) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= low) & (target < high)
            rows = inside.nonzero().squeeze(1)
            if rows.numel() == 0:
                continue
            gathered = gathered.masked_fill(inside, self.shortlist_size + i)
            logs = F.log_softmax(self.tail[i](input.index_select(0, rows)), dim=1)
            local = logs.gather(1, (target.index_select(0, rows) - low).unsqueeze(1)).squeeze(1)
            output = output.index_copy(0, rows, local)
        output = output + F.log_softmax(self.head(input), dim=1).gather(1, gathered.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output if target_.ndim else output.squeeze(0), loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """(N, n_classes): log probabilities of all classes."""
        return self._get_full_log_prob(input, self.head(input))

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            parts.append(F.log_softmax(cluster(input), dim=1) + head[:, self.shortlist_size + i].unsqueeze(1))
        return torch.cat(parts, 1)  # type: ignore[no-any-return, attr-defined]

    def predict(self, input: Tensor) -> Tensor:
        """(N): the most probable class; the clusters are computed only for rows that may need them."""
        head_output = self.head(input)
        output = torch.argmax(head_output, dim=1)  # type: ignore[attr-defined]
        rows = (output >= self.shortlist_size).nonzero().squeeze(1)
        if rows.numel() == 0:
            return output  # type: ignore[no-any-return]
        logs = self._get_full_log_prob(input.index_select(0, rows), head_output.index_select(0, rows))
        return output.index_copy(0, rows, torch.argmax(logs, dim=1))  # type: ignore[no-any-return, attr-defined]


@dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """How PyTorch cuts a batch of linear_cross_entropy into chunks. Accepted; here the compiler plans memory."""

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: Any = None


class LinearCrossEntropyLoss(_WeightedLoss):
    """Cross entropy of the output of a Linear that it holds; `out_features`: the dimensions of a K-dimensional loss."""

    __constants__ = ["num_classes", "out_features", "reduction", "ignore_index", "label_smoothing"]

    def __init__(
        self, in_features: int, num_classes: int, *, out_features: tuple[int, ...] = (), bias: bool = False, device: Any = None,
        dtype: Any = None, reduction: str = "mean", weight: Tensor | None = None, ignore_index: int | None = None,
        label_smoothing: float = 0.0, options: Any = None,
    ) -> None:  # fmt: skip
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}")
        if label_smoothing < 0 or label_smoothing > 1.0:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        super().__init__(weight, None, None, reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.linear = Linear(in_features, math.prod(out_features, start=num_classes), bias=bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        shape = (self.num_classes, *self.out_features)
        bias = None if self.linear.bias is None else self.linear.bias.reshape(shape)
        return F.linear_cross_entropy(
            input, self.linear.weight.reshape((*shape, self.linear.in_features)), target, linear_bias=bias, weight=self.weight,
            reduction=self.reduction, ignore_index=self.ignore_index, label_smoothing=self.label_smoothing, options=self.options,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, out_features={self.out_features}, "
            f"bias={self.linear.bias is not None}, reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )
