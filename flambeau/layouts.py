"""Layouts: PyTorch's objects that say how the elements of a tensor are kept (`torch.strided`, `torch.sparse_coo`, ...)."""

from __future__ import annotations

from flambeau.named_objects import NamedObject


class layout(NamedObject):
    """How a tensor's elements are kept."""

    __slots__ = ()


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
