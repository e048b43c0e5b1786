"""torch._functorch.vmap: vmap under its older home, and the parts of it that packages take."""

from __future__ import annotations

from typing import Any

from flambeau._C._functorch import _add_batch_dim as _add_batch_dim
from flambeau._C._functorch import _remove_batch_dim as _remove_batch_dim
from flambeau.func.mapping import entered as _create_batched_inputs  # noqa: F401
from flambeau.func.mapping import left as _unwrap_batched  # noqa: F401
from flambeau.func.mapping import name_of as _get_name  # noqa: F401
from flambeau.func.mapping import processed as _process_batched_inputs  # noqa: F401
from flambeau.func.mapping import vmap as vmap
from flambeau.func.mapping import vmap as vmap_impl  # noqa: F401
from flambeau.func.steps import replaceable as _replaceable
from flambeau.tensor import Tensor as Tensor
from flambeau.utils._pytree import TreeSpec as TreeSpec
from flambeau.utils._pytree import _broadcast_to_and_flatten as _broadcast_to_and_flatten
from flambeau.utils._pytree import tree_flatten as tree_flatten
from flambeau.utils._pytree import tree_map_ as tree_map_
from flambeau.utils._pytree import tree_unflatten as tree_unflatten

in_dims_t = int | tuple[Any, ...]
out_dims_t = int | tuple[int, ...]


def _maybe_remove_batch_dim(name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None) -> Any:
    """All samples of a result, along `out_dim`. ValueError if it is no tensor, or, with None, if it has samples."""
    from flambeau._C._functorch import is_batchedtensor

    if out_dim is None:
        if is_batchedtensor(batched_output):
            raise ValueError(f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None")
        return batched_output
    if not isinstance(batched_output, Tensor):
        raise ValueError(f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}. Did you mean to set out_dims= to None?")
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


_replaceable(__name__, "_process_batched_inputs", "_create_batched_inputs", "_unwrap_batched", "_add_batch_dim")
