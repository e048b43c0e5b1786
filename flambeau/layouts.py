"""Layouts: PyTorch's objects that say how the elements of a tensor are kept (`torch.strided`, `torch.sparse_coo`, ...)."""

from __future__ import annotations


class layout:
    """How a tensor's elements are kept. There is one object for each layout, so `is` and `==` mean the same."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # pickled as a global of this module


strided = layout("strided")
sparse_coo = layout("sparse_coo")
sparse_csr = layout("sparse_csr")
sparse_csc = layout("sparse_csc")
sparse_bsr = layout("sparse_bsr")
sparse_bsc = layout("sparse_bsc")
jagged = layout("jagged")  # of nested tensors
ALL = {repr(x): x for x in (strided, jagged, sparse_coo, sparse_csr, sparse_csc, sparse_bsr, sparse_bsc)}


def by_name(name: str) -> layout:
    """The layout with this repr: what files call torch.serialization._get_layout."""
    return ALL[name]
