"""Operators of collectives: torch.ops._c10d_functional, c10d_functional (the older form), _dtensor, and the names of c10d.

They are there when the first of them is asked for. Those of `c10d` are PyTorch's inner calls with its C++ objects: they are names (what
CommDebugMode counts), and a call says that they have no function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flambeau.distributed import _functional_collectives as f
from flambeau.distributed.group import group_named
from flambeau.library import Library

# By name: what is given before the group, and what comes back.
_FUNCTIONAL: Final = {
    "all_reduce": ("Tensor input, str reduce_op", "Tensor"),
    "all_reduce_coalesced": ("Tensor[] inputs, str reduce_op", "Tensor[]"),
    "all_gather_into_tensor": ("Tensor input", "Tensor"),
    "all_gather_into_tensor_coalesced": ("Tensor[] inputs", "Tensor[]"),
    "reduce_scatter_tensor": ("Tensor input, str reduce_op", "Tensor"),
    "reduce_scatter_tensor_coalesced": ("Tensor[] inputs, str reduce_op", "Tensor[]"),
    "all_to_all_single": ("Tensor input, SymInt[]? output_split_sizes, SymInt[]? input_split_sizes", "Tensor"),
    "broadcast": ("Tensor input, int src", "Tensor"),
}
_SIZED: Final = ("all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor", "reduce_scatter_tensor_coalesced")
_C10D: Final = (
    "allreduce_ allreduce_coalesced_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ "
    "reduce_scatter_tensor_coalesced_ alltoall_ alltoall_base_ broadcast_ gather_ scatter_ reduce_ barrier send recv_"
).split()


def _functions() -> dict[str, Callable[..., Any]]:
    """By name: the function of what is given and the group."""
    return {
        "all_reduce": f.all_reduce, "all_reduce_coalesced": f.all_reduce_coalesced,
        "all_gather_into_tensor": lambda t, group: f.all_gather_tensor(t, 0, group),
        "all_gather_into_tensor_coalesced": f.all_gather_into_tensor_coalesced,
        "reduce_scatter_tensor": lambda t, op, group: f.reduce_scatter_tensor(t, op, 0, group),
        "reduce_scatter_tensor_coalesced": lambda ts, op, group: f.reduce_scatter_tensor_coalesced(ts, op, [0] * len(ts), group),
        "all_to_all_single": f.all_to_all_single, "broadcast": f.broadcast,
    }  # fmt: skip


def _by_name(function: Callable[..., Any], size: bool) -> Callable[..., Any]:
    """The operator's form: the last arguments are the number of ranks (where it has one) and the group's name."""

    def call(*args: Any) -> Any:
        group = group_named(args[-1])
        given = args[: -2 if size else -1]
        if size and args[-2] != group.size():
            raise ValueError(f"torch.ops._c10d_functional: group_size is {args[-2]}, and the group {args[-1]!r} has {group.size()} ranks")
        return function(*given, group)

    return call


def _by_ranks(function: Callable[..., Any]) -> Callable[..., Any]:
    """The older form: the last arguments are a tag, the ranks, and how many a group has."""

    def call(*args: Any) -> Any:
        return function(*args[:-3], list(args[-2]))

    return call


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """The form that writes what comes out into the tensor that was given."""

    def call(t: Any, *args: Any) -> Any:
        return t.copy_(function(t, *args))

    return call


def _register() -> None:
    spaces = {name: Library(name, "DEF") for name in ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "c10d")}
    functions = _functions()
    for name, (given, result) in _FUNCTIONAL.items():
        sized = name in _SIZED
        tail = (", int group_size" if sized else "") + ", str group_name"
        for space in ("_c10d_functional", "_c10d_functional_autograd"):
            spaces[space].define(f"{name}({given}{tail}) -> {result}")
            spaces[space].impl(name, _by_name(functions[name], sized), "CompositeImplicitAutograd")
        spaces["c10d_functional"].define(f"{name}({given}, str tag, int[] ranks, int group_size) -> {result}")
        spaces["c10d_functional"].impl(name, _by_ranks(functions[name]), "CompositeImplicitAutograd")
    for name in ("all_reduce", "broadcast"):
        given = _FUNCTIONAL[name][0].replace("Tensor", "Tensor(a!)", 1)
        spaces["_c10d_functional"].define(f"{name}_({given}, str group_name) -> Tensor(a!)")
        spaces["_c10d_functional"].impl(f"{name}_", _in_place(_by_name(functions[name], False)), "CompositeImplicitAutograd")
    for space in ("_c10d_functional", "c10d_functional"):
        spaces[space].define("wait_tensor(Tensor tensor) -> Tensor")
        spaces[space].impl("wait_tensor", f.wait_tensor, "CompositeImplicitAutograd")
    # What comes back from a collective is there, so it is not wrapped in one that waits.
    spaces["_c10d_functional"].define("_wrap_tensor_autograd(Tensor input) -> Tensor")
    spaces["_c10d_functional"].impl("_wrap_tensor_autograd", f.wait_tensor, "CompositeImplicitAutograd")
    spaces["_dtensor"].define("shard_dim_alltoall(Tensor input, int gather_dim, int shard_dim, str group_name) -> Tensor")
    spaces["_dtensor"].impl("shard_dim_alltoall", _shard_dim_alltoall, "CompositeImplicitAutograd")
    for name in _C10D:
        spaces["c10d"].define(f"{name}(Tensor[] tensors) -> ()")


def _shard_dim_alltoall(t: Any, gather_dim: int, shard_dim: int, group_name: str) -> Any:
    from flambeau.distributed.tensor._collective_utils import exchanged_dims

    return exchanged_dims(t, gather_dim, shard_dim, group_named(group_name))


_register()
