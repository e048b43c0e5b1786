"""Look-up tables."""

from __future__ import annotations

from typing import Any, Self

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor


class _Table(Module):
    """weight (num_embeddings, embedding_dim), standard normal, with zeros in the row padding_idx."""

    weight: Tensor
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    _padding = "Padding_idx"  # as PyTorch's error has it

    def _make(self, rows: int, width: int, padding_idx: int | None, weight: Tensor | None, freeze: bool, device: Any, dtype: Any) -> None:
        if padding_idx is not None:
            if not -rows <= padding_idx < rows:
                raise AssertionError(f"{self._padding} must be within num_embeddings")
            padding_idx %= rows
        self.num_embeddings = rows
        self.embedding_dim = width
        self.padding_idx = padding_idx
        if weight is None:
            self.weight = Parameter(torch.empty((rows, width), device=device, dtype=dtype), requires_grad=not freeze)
            self.reset_parameters()
        else:
            if tuple(weight.shape) != (rows, width):
                raise AssertionError(f"Shape of weight does not match num_embeddings and embedding_dim: {tuple(weight.shape)}, {(rows, width)}")
            self.weight = Parameter(weight, requires_grad=not freeze)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with torch.no_grad():
                self.weight[self.padding_idx].fill_(0)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, *args: Any, **kwargs: Any) -> Self:
        """A layer over the given (rows, width) tensor; `freeze`: it gets no gradient."""
        if embeddings.ndim != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, width = embeddings.shape
        table = cls(rows, width, *args, _weight=embeddings, _freeze=freeze, **kwargs)  # type: ignore[call-arg]
        return table


class Embedding(_Table):
    """Rows of a table by index: int64 of any shape -> (*shape, embedding_dim)."""

    __constants__ = [
        "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse",
    ]  # fmt: skip

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)
        self.sparse = sparse

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters  # see Linear
        return F.embedding(
            input, own["weight"] if "weight" in own else self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            s += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            s += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            s += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            s += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return s + (", sparse=True" if self.sparse is not False else "")


class EmbeddingBag(_Table):
    """Sums, means or maxima of rows over bags of indices."""

    _padding = "padding_idx"

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
        _freeze: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self._make(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        s = f"{self.num_embeddings!r}, {self.embedding_dim!r}"  # PyTorch's shows NumPy numbers by their repr here, and not in Embedding
        if self.max_norm is not None:
            s += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            s += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            s += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        s += f", mode={self.mode!r}"
        return s + (f", padding_idx={self.padding_idx}" if self.padding_idx is not None else "")
