"""What DistributedDataParallel is made of in PyTorch, for programs that use it by itself: buckets, and `Reducer` over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.distributed.reducer import Reducer as _Exchange
from flambeau.distributed.reducer import same_everywhere, send_all

if TYPE_CHECKING:
    from flambeau.distributed.group import ProcessGroup
    from flambeau.tensor import Tensor

_DEFAULT_FIRST_BUCKET_BYTES = 1 << 20


def _compute_bucket_assignment_by_size(
    tensors: Sequence[Tensor], bucket_size_limits: Sequence[int], expect_sparse_gradient: Sequence[bool] = (), tensor_indices: Sequence[int] = (),
    logger: Any = None, bucket_size_limits_for_rebuilding: Sequence[int] = (),
) -> tuple[list[list[int]], list[int]]:  # fmt: skip
    """(places of the tensors of each bucket, its limit in bytes): of one dtype each, closed when it has reached its limit; a sparse one alone (limit 0).

    Buckets of a dtype take the limits one after the other, and the last one again and again.
    """
    if expect_sparse_gradient and len(expect_sparse_gradient) != len(tensors):
        raise RuntimeError(f"expect_sparse_gradient must have one entry a tensor, {len(tensors)}; got {len(expect_sparse_gradient)}")
    if not tensors:
        raise RuntimeError("_compute_bucket_assignment_by_size: tensors must not be empty")
    made: list[tuple[list[int], int]] = []
    open_ones: dict[Any, tuple[list[int], int]] = {}
    taken: dict[Any, int] = {}
    for i, t in enumerate(tensors):
        place = tensor_indices[i] if tensor_indices else i
        if expect_sparse_gradient and expect_sparse_gradient[place]:
            made.append(([place], 0))
            continue
        kind = (t.dtype, str(t.device))
        places, filled = open_ones.pop(kind, ([], 0))
        limit = bucket_size_limits[min(taken.get(kind, 0), len(bucket_size_limits) - 1)]
        places.append(place)
        filled += t.numel() * t.dtype.itemsize
        if filled >= limit:
            made.append((places, limit))
            taken[kind] = taken.get(kind, 0) + 1
        else:
            open_ones[kind] = places, filled
    for kind, (places, _) in open_ones.items():
        made.append((places, bucket_size_limits[min(taken.get(kind, 0), len(bucket_size_limits) - 1)]))
    if not tensor_indices:
        made.sort(key=lambda bucket: min(bucket[0]))
    return [places for places, _ in made], [limit for _, limit in made]


class Reducer(_Exchange):
    """Makes gradients their mean over a group after each backward pass that `prepare_for_backward` has announced.

    Gradients are exchanged where they lie: buckets are checked, and matter to communication hooks only.
    """

    def __init__(
        self, params: Sequence[Tensor], bucket_indices: Sequence[Sequence[int]], per_bucket_size_limits: Sequence[int], process_group: ProcessGroup,
        expect_sparse_gradients: Sequence[bool] = (), bucket_bytes_cap: int = 25 << 20, find_unused_parameters: bool = False,
        gradient_as_bucket_view: bool = False, param_to_name_mapping: Any = None, first_bucket_types_cap: int = _DEFAULT_FIRST_BUCKET_BYTES, **more: Any,
    ) -> None:  # fmt: skip
        if not params:
            raise RuntimeError("Reducer: expected at least one parameter")
        for number, places in enumerate(bucket_indices):
            kinds = {params[i].dtype for i in places}
            if len(kinds) > 1:
                raise RuntimeError(f"Reducer: all parameters in a bucket must have the same dtype; bucket {number} has {', '.join(sorted(map(repr, kinds)))}")
        names = param_to_name_mapping or {}
        super().__init__(
            {str(names.get(i, i)): p for i, p in enumerate(params)}, process_group, find_unused_parameters, False, bucket_bytes_cap
        )  # fmt: skip
        self.sparse = {i for i, sparse in enumerate(expect_sparse_gradients) if sparse}

    def prepare_for_forward(self) -> None:
        """A forward pass begins."""
        self.check_finished()

    def prepare_for_backward(self, output: Any) -> None:
        """The next backward pass exchanges gradients."""
        self.armed = True

    def _set_static_graph(self) -> None:
        self.static = True

    def _rebuild_buckets(self) -> bool:
        """False: there is nothing to do."""
        return False


def _broadcast_coalesced(process_group: ProcessGroup, tensors: Sequence[Tensor], buffer_size: int, src: int = 0) -> None:
    """The tensors, of any dtypes, become those of a rank of the group, in one go."""
    send_all(list(tensors), src, process_group)


def _verify_params_across_processes(process_group: ProcessGroup, params: Sequence[Tensor], logger: Any = None) -> None:
    """DistBackendError, naming ranks, unless all ranks have parameters of these shapes and dtypes."""
    same_everywhere(list(params), process_group)
