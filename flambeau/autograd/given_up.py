"""What a backward pass gives up, so that a second one is refused where PyTorch refuses it: the calls whose node saves tensors there.

By default a call saves what its gradient asks for, without what it has made of nothing itself (its numbers, the index of a `flip`, the mask of a `tril`).
`SAVES` names the operations whose node in PyTorch (tools/autograd/derivatives.yaml) saves more, or nothing. Compared with PyTorch by
tests/differential/test_second_passes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from flambeau.autograd.node_names import Call
from flambeau.compiler.graph import Value
from flambeau.trace.state import State

WRITE: Final = "assign"  # the first part of the key of a write (trace/mutation.py)

# Whether the node saves something; the argument (a tensor) whose need of a gradient decides; or a function of the call.
Rule = bool | str | Callable[[Call], bool]


def _of_real(a: Call) -> bool:
    """Transforms along one dim keep a real input."""
    return not a.value("input").dtype.is_complex


def _pooled(a: Call) -> bool:
    """adaptive_avg_pool: to one element a channel it is a mean."""
    size = a["output_size"]
    return any(n != 1 for n in (size if isinstance(size, tuple) else (size,)))


_SAVING: Final = (
    # numbers that are operands are tensors
    "mul div true_divide pow float_power xlogy addcdiv "
    # the sizes of what is reduced, or whether there is one element, come from the tensor itself
    "amax amin aminmax max_over min_over max_all min_all median_over median_all mode kthvalue prod sort_values msort topk sgn "
    "std_op var_op std_mean_op var_mean_op "
    # whether or not the gradient that is asked for needs all that is saved
    "complex layer_norm group_norm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d avg_pool1d avg_pool2d avg_pool3d "
    "ormqr linalg_qr linalg_svd linalg_slogdet linalg_lstsq "
    "linalg_householder_product linalg_svdvals grid_sample batch_norm_train batch_norm batch_norm_eval gather pad_by_index "
    "nothing dropout alpha_dropout feature_alpha_dropout "
    "fft_rfft fft_rfft2 fft_rfftn fft_ihfft fft_ihfft2 fft_ihfftn"
).split()
_KEEPING_NOTHING: Final = "bernoulli normal round lu_unpack_op interpolate deg2rad rad2deg cat".split()

SAVES: Final[dict[str, Rule]] = {
    **dict.fromkeys(_SAVING, True), **dict.fromkeys(_KEEPING_NOTHING, False), "index_add": "source", "scatter_add": "src",
    "nextafter": "input", "fmod": "other", "remainder": "other",
    **{f"adaptive_avg_pool{d}d": _pooled for d in (1, 2, 3)}, "fft_fft": _of_real,
    "fft_ifft": _of_real,
}  # fmt: skip


def saving(path: Sequence[State], values: Sequence[Value], needs: Callable[[int], bool]) -> dict[int, bool]:
    """The calls of a path (their first slots) that are known to save something in PyTorch, and those that save nothing. `needs`: which slots have gradients."""
    found: dict[int, bool] = {}
    for state in path:
        key = state.edge
        if type(key) is not tuple or not key or not state.requires:
            continue
        if hasattr(key[0], "kinds"):
            full = key[0].name
            rule = SAVES.get(full)
            if rule is None:
                rule = SAVES.get(full.removeprefix("nn.functional.").replace(".", "_"))
            if rule is not None:
                found[state.first_value] = rule if isinstance(rule, bool) else _decided(rule, Call(key, state.first_value, values), needs)
        elif key[0] == WRITE and len(key) > 8 and (key[8] or any(n.op == "scatter_view" for n in state.nodes)):
            found[state.first_value] = True  # a write by a view: what it was of is given up with its node (CopySlices)
    return found


def _decided(rule: str | Callable[[Call], bool], call: Call, needs: Callable[[int], bool]) -> bool:
    return (call.is_tensor(rule) and needs(call[rule])) if isinstance(rule, str) else rule(call)
