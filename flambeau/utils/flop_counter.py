"""torch.utils.flop_counter: floating point operations of products and convolutions, forward and backward, by module.

Calls are counted by what PyTorch's dispatcher would see of them (utils/_python_dispatch.py). Backward passes are not seen by it here: what each counted
call's gradients cost is counted when the gradient of its result comes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from types import TracebackType
from typing import Any, Self

from flambeau._ops import ops
from flambeau.tensor import Tensor
from flambeau.utils import _pytree
from flambeau.utils._python_dispatch import TorchDispatchMode
from flambeau.utils.module_tracker import ModuleTracker

_aten: Any = ops.aten


def mm_flop(a_shape: Sequence[int], b_shape: Sequence[int], *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Of a product of two matrices: a multiplication and an addition for each term."""
    return prod(a_shape) * b_shape[-1] * 2


def addmm_flop(self_shape: Sequence[int], a_shape: Sequence[int], b_shape: Sequence[int], out_shape: Any = None, **kwargs: Any) -> int:
    """Of a product that is added to something: the product's."""
    return mm_flop(a_shape, b_shape)


def bmm_flop(a_shape: Sequence[int], b_shape: Sequence[int], out_shape: Any = None, **kwargs: Any) -> int:
    """Of a batch of products."""
    return prod(a_shape) * b_shape[-1] * 2


def baddbmm_flop(self_shape: Sequence[int], a_shape: Sequence[int], b_shape: Sequence[int], out_shape: Any = None, **kwargs: Any) -> int:
    """Of a batch of products that is added to something: the products'."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(x_shape: Sequence[int], w_shape: Sequence[int], out_shape: Sequence[int], transposed: bool = False) -> int:
    """Of a convolution, by its shapes: each position of the result (transposed: of the input) times the filter."""
    return prod((x_shape if transposed else out_shape)[2:]) * prod(w_shape) * x_shape[0] * 2


def conv_flop(
    x_shape: Sequence[int], w_shape: Sequence[int], _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool, *args: Any,
    out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    """Of a convolution, by the arguments of aten.convolution."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


flop_registry: dict[Any, Callable[..., int]] = {}


def _shapes(call: Callable[..., int]) -> Callable[..., int]:
    def with_shapes(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        args, kwargs, out = _pytree.tree_map(lambda x: x.shape if isinstance(x, Tensor) else x, (args, kwargs, out_val))
        return call(*args, out_shape=out, **kwargs)

    return with_shapes


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator: the function says how many operations the operators `targets` (as torch.ops has them) cost.

    It gets the call's arguments with shapes in the place of tensors and `out_shape`; with `get_raw` the tensors and `out_val`.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = formula if get_raw else _shapes(formula)
        return formula

    return register


for _target, _formula in (
    (_aten.mm, mm_flop), (_aten.addmm, addmm_flop), (_aten.bmm, bmm_flop), (_aten.baddbmm, baddbmm_flop), (_aten._scaled_mm, mm_flop),
    (_aten.convolution, conv_flop),
):  # fmt: skip
    register_flop_formula(_target)(_formula)


class _Name:
    """An operator of backward passes, which no call here has."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


_CONVOLUTION_BACKWARD = getattr(_aten, "convolution_backward", None) or _Name("convolution_backward")


def _needed(*tensors: Any) -> int:
    return sum(isinstance(t, Tensor) and t.requires_grad for t in tensors)


def _products(name: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Iterator[tuple[Any, Any, int, int]]:
    """Of a call that PyTorch's dispatcher would see as others: their operators, those of their gradients, and the numbers of operations."""
    if name.startswith(("conv_transpose", "conv")) and name[-2:] in ("1d", "2d", "3d"):
        x, w = args[0], args[1]
        transposed = name.startswith("conv_transpose")
        given = dict(zip(("bias", "stride", "padding", "output_padding", "groups") if transposed else ("bias", "stride", "padding", "dilation", "groups"),
                         args[2:], strict=False))  # fmt: skip
        groups = {**given, **kwargs}.get("groups", 1)
        x_shape, out_shape = (t.shape if t.ndim == w.ndim else (1, *t.shape) for t in (x, out))
        count = conv_flop_count(x_shape, w.shape, out_shape, transposed)
        yield _aten.convolution, _CONVOLUTION_BACKWARD, count, count * (_needed(x) + _needed(w) * groups)
    elif name == "einsum" and isinstance(args[0], str) and "." not in args[0]:
        operands = args[1] if isinstance(args[1], (list, tuple)) else args[1:]
        terms = args[0].replace(" ", "").partition("->")[0].split(",")
        sizes = {letter: size for term, t in zip(terms, operands, strict=True) for letter, size in zip(term, t.shape, strict=True)}
        if len(operands) == 2 and prod(sizes.values()) > out.numel():  # something is summed: a product of matrices
            count = 2 * prod(sizes.values())
            yield _aten.bmm, _aten.bmm, count, count * _needed(*operands)
    elif name == "matmul":  # with batches
        count = 2 * out.numel() * args[0].shape[-1]
        yield _aten.bmm, _aten.bmm, count, count * _needed(*args)
    elif name == "multi_head_attention_forward":
        yield from _attention(args, kwargs)


def _attention(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any, int, int]]:
    from inspect import signature

    from flambeau.nn.functional import multi_head_attention_forward

    given = signature(multi_head_attention_forward).bind(*args, **kwargs)
    given.apply_defaults()
    a = given.arguments
    query, key, value, width = a["query"], a["key"], a["value"], a["embed_dim_to_check"]
    rows = [t.numel() // t.shape[-1] for t in (query, key, value)]
    inner = 0
    for count, t in zip(rows, (query, key, value), strict=True):  # projections of the inputs
        flops = 2 * count * t.shape[-1] * width
        weight = a["in_proj_weight"]
        inner |= _needed(t, weight)
        yield _aten.addmm, _aten.mm, flops, flops * (_needed(t) + _needed(weight))
    if a["need_weights"]:
        flops = 4 * rows[0] * key.shape[0] * width
        yield _aten.bmm, _aten.bmm, flops, 2 * flops * bool(inner)
    flops = 2 * rows[0] * width * width
    yield _aten.addmm, _aten.mm, flops, flops * (bool(inner) + _needed(a["out_proj_weight"]))


# Operators whose formula is ours -> the operator of their gradients, and the arguments that are multiplied.
_BACKWARD = {"mm": ("mm", (0, 1)), "addmm": ("mm", (1, 2)), "bmm": ("bmm", (0, 1)), "baddbmm": ("bmm", (1, 2))}


class _CountingMode(TorchDispatchMode):
    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        packet = getattr(func, "_overloadpacket", func)
        counter, name = self.counter, getattr(packet, "__name__", "")
        parents = frozenset(counter.mod_tracker.parents)
        if packet in counter.flop_registry:
            count = counter.flop_registry[packet](*args, **kwargs, out_val=out)
            counter._count(packet, count, parents)
            if name in _BACKWARD and isinstance(out, Tensor):
                operator, which = _BACKWARD[name]
                counter._later(out, getattr(_aten, operator), count * _needed(*[args[i] for i in which]), parents)
        else:
            for operator, backward, count, later in _products(name, args, kwargs, out):
                counter._count(operator, count, parents)
                counter._later(out[0] if isinstance(out, tuple) else out, backward, later, parents)
        return out


class FlopCounterMode:
    """A block whose products and convolutions are counted, forward and backward, for each module: `get_flop_counts()`, `get_total_flops()`.

    `display` prints a table at its end, to the depth `depth`. `custom_mapping` has formulas of other operators (`register_flop_formula`). Attention
    (`scaled_dot_product_attention`) and recurrent layers count as nothing, as with PyTorch on the CPU. `mods` is accepted and not needed.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Mapping[Any, Callable[..., int]] | None = None) -> None:
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        self.mod_tracker = ModuleTracker()
        custom = {op: formula if getattr(formula, "_get_raw", False) else _shapes(formula) for op, formula in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **custom}
        self.mode: _CountingMode | None = None

    def _count(self, operator: Any, count: int, parents: Iterable[str]) -> None:
        if count:
            for parent in parents:
                self.flop_counts[parent][operator] += count

    def _later(self, out: Tensor, operator: Any, count: int, parents: frozenset[str]) -> None:
        if not count or not out.requires_grad:
            return
        mode = self.mode

        def arrived(gradient: Tensor) -> None:
            if self.mode is mode:
                self._count(operator, count, parents)

        out.register_hook(arrived)

    def get_total_flops(self) -> int:
        """Of all together."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Name of a module -> operator -> number of operations; "Global" has all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a text of lines: modules to the given depth, and their operators."""
        depth = self.depth if depth is None else depth
        total = max(1, self.get_total_flops())
        rows: list[tuple[str, int]] = []
        modules = [name for name in self.flop_counts if name != "Global" and name.count(".") + 1 <= depth]
        outside = any(self.flop_counts["Global"][o] > sum(self.flop_counts[m][o] for m in modules if "." not in m) for o in self.flop_counts["Global"])
        for name in ["Global"] * (outside or not modules) + sorted(modules):
            counts = self.flop_counts[name]
            rows += [(name, sum(counts.values())), *((f"- {operator}", count) for operator, count in counts.items())]
        lines = [("Module", "FLOP", "% Total"), *((name, str(count), f"{100 * count / total:.2f}%") for name, count in rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(3)]
        text = ["  ".join((a.ljust(widths[0]), b.rjust(widths[1]), c.rjust(widths[2]))) for a, b, c in lines]
        return "\n".join([text[0], "  ".join("-" * w for w in widths), *text[1:]])

    def __enter__(self) -> Self:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _CountingMode(self)
        self.mode.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self.mode is not None
        self.mode.__exit__(kind, error, traceback)
        self.mode = None
        self.mod_tracker.__exit__(kind, error, traceback)
        if self.display:
            print(self.get_table(self.depth))


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.utils.flop_counter", globals())
