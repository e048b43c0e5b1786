"""Inner names that packages' sources use (`scripts/ecosystem scan`): each does here what it does in PyTorch."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import pytest

import flambeau as ft
from tests.ecosystem import names

torch = pytest.importorskip("torch")
BOTH = ("flambeau", "torch")

NAMES = """torch._VF.lstm torch._VF.gru torch._C._get_accelerator torch._inductor.cudagraph_mark_step_begin torch._utils._element_size torch.TensorType
torch._prims_common.is_contiguous_or_false torch._higher_order_ops.associative_scan.associative_scan torch.while_loop torch.legacy_contiguous_format
torch._grouped_mm torch.cuda.amp.common.amp_definitely_not_available torch.cuda.amp.grad_scaler.GradScaler torch.cuda.amp.autocast_mode.autocast
torch.distributed.distributed_c10d.is_xccl_available torch.fx.graph_module._CodeOnlyModule torch.fx.graph_module._copy_attr
torch.nn.DataParallel.gather torch.nn.DataParallel.parallel_apply torch.nn.DataParallel.replicate torch.nn.DataParallel.scatter
torch.nn.Embedding._fill_padding_idx_with_zero torch.nn.ModuleList._get_abs_string_index torch.nn.TransformerEncoderLayer._ff_block
torch.nn.TransformerEncoderLayer._sa_block torch.nn.TransformerDecoderLayer._mha_block torch.nn.functional._canonical_mask
torch.nn.functional._none_or_dtype torch.nn.modules.transformer._get_activation_fn torch.overrides.get_default_nowrap_functions
torch.profiler.profiler._default_schedule_fn torch.utils._triton.has_triton""".split()


def outcome(call: Any) -> Any:
    """What a call gives as plain values, or the class of its error."""
    try:
        found = call()
    except Exception as error:
        return type(error).__name__
    flat = found if isinstance(found, (list, tuple)) else [found]
    return [(str(v.dtype), v.tolist()) if hasattr(v, "tolist") else str(v) for v in flat]


def test_they_are_there() -> None:
    assert names.lacking(NAMES, "torch") == [] and names.lacking(NAMES, "flambeau") == []


def test_small_questions() -> None:
    for name, arguments in (("_C._get_accelerator", ()), ("legacy_contiguous_format.__str__", ()), ("utils._triton.has_triton", ())):
        outcomes = []
        for module in BOTH:
            *way, last = name.split(".")
            home = importlib.import_module(module)
            for part in way:
                home = getattr(home, part, None) or importlib.import_module(f"{home.__name__}.{part}")
            outcomes.append(str(getattr(home, last)(*arguments)))
        assert outcomes[0] == outcomes[1], name
    for kind in "float16 float32 bfloat16 complex64 int8 bool float64".split():
        assert ft._utils._element_size(getattr(ft, kind)) == torch._utils._element_size(getattr(torch, kind))


@pytest.mark.parametrize("mask", [None, "bool", "float32", "float64", "int64"])
@pytest.mark.parametrize("other", [None, "bool", "float32"])
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_masks_of_attention(mask: str | None, other: str | None) -> None:
    outcomes = []
    for m in (ft, torch):
        given = None if mask is None else m.tensor([[1, 0], [0, 0]]).to(getattr(m, mask))
        kind = None if other is None else getattr(m, other)
        outcomes.append(outcome(lambda m=m, given=given, kind=kind: m.nn.functional._canonical_mask(given, "mask", kind, "other", m.float32)))
        outcomes.append(outcome(lambda m=m, given=given: m.nn.functional._none_or_dtype(given)))
    assert outcomes[:2] == outcomes[2:]


def loops(m: Any) -> list[Any]:
    """Loops whose carried values change in number of rounds, shape of the condition and kind."""
    x = m.arange(3.0)
    return [
        outcome(lambda: m.while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 2), (m.tensor(0), x))),
        outcome(lambda: m.while_loop(lambda i, y: i > 4, lambda i, y: (i + 1, y * 2), (m.tensor(0), x))),
        outcome(lambda: m.while_loop(lambda y: y.sum() < 100, lambda y: (y * y + 1,), (x,))),
    ]


def test_loops_are_pytorchs() -> None:
    assert loops(ft) == loops(torch)
    with pytest.raises(RuntimeError, match="as many values"):
        ft.while_loop(lambda x: x.sum() < 3, lambda x: (x, x), (ft.ones(2),))
    with pytest.raises(RuntimeError, match="callable"):
        ft.while_loop(1, lambda x: x, (ft.ones(2),))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13])
def test_scans_are_sequential_ones(count: int) -> None:
    """Sums against cumsum, linear recurrences (two tensors) against a loop; along each dim, both ways; gradients too."""
    scan = ft._higher_order_ops.associative_scan.associative_scan if hasattr(ft._higher_order_ops.associative_scan, "associative_scan") \
        else ft._higher_order_ops.associative_scan  # fmt: skip
    ft.manual_seed(count)
    for dim, reverse in itertools.product((0, 1, -1), (False, True)):
        shape = [2, 2, 2]
        shape[dim] = count
        x = ft.randn(*shape, dtype=ft.float64, requires_grad=True)
        flipped = x.flip(dim) if reverse else x
        expected = flipped.cumsum(dim).flip(dim) if reverse else flipped.cumsum(dim)
        found = scan(lambda a, b: a + b, x, dim, reverse)
        ft.testing.assert_close(found, expected)
        weights = ft.randn(*shape, dtype=ft.float64)
        ft.testing.assert_close(ft.autograd.grad((found * weights).sum(), x)[0], ft.autograd.grad((expected * weights).sum(), x)[0])
        m, v = ft.rand(*shape, dtype=ft.float64), ft.rand(*shape, dtype=ft.float64)
        _, made = scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (m, v), dim, reverse)
        state, states = ft.zeros(2, 2, dtype=ft.float64), {}
        for i in reversed(range(count)) if reverse else range(count):
            state = states[i] = state * m.select(dim, i) + v.select(dim, i)
        ft.testing.assert_close(made, ft.stack([states[i] for i in range(count)], dim))


def test_scans_that_are_wrong() -> None:
    from flambeau._higher_order_ops.associative_scan import associative_scan as scan

    for error, call in (
        (ValueError, lambda: scan(1, ft.ones(2), 0)), (ValueError, lambda: scan(lambda a, b: a, ft.ones(2), 0, combine_mode="x")),
        (RuntimeError, lambda: scan(lambda a, b: a, (), 0)), (IndexError, lambda: scan(lambda a, b: a, ft.ones(2), 1)),
        (RuntimeError, lambda: scan(lambda a, b: a, (ft.ones(2), ft.ones(3)), 0)), (RuntimeError, lambda: scan(lambda a, b: (a, b), ft.ones(2), 0)),
    ):  # fmt: skip
        with pytest.raises(error, match="associative_scan"):
            call()


def test_products_of_groups_by_position() -> None:
    for m in (ft, torch):
        a, b, ends = m.ones(6, 16, dtype=m.bfloat16), m.ones(2, 16, 8, dtype=m.bfloat16), m.tensor([2, 6], dtype=m.int32)
        found = m._grouped_mm(a, b, ends)
        assert tuple(found.shape) == (6, 8) and found.float().sum().item() == 768


@pytest.mark.parametrize("target", ["weight", "inner.0.weight", "inner.mean"])
def test_attributes_are_copied(target: str) -> None:
    outcomes = []
    for m in (ft, torch):
        source, made = m.nn.Module(), m.nn.Module()
        source.inner = m.nn.Sequential(m.nn.Linear(2, 2))
        source.inner.mean = m.ones(2)
        source.weight = m.nn.Parameter(m.ones(3))
        importlib.import_module(f"{m.__name__}.fx.graph_module")._copy_attr(source, made, target)
        outcomes.append(([n for n, _ in made.named_parameters()], [n for n, _ in made.named_buffers()], [n for n, _ in made.named_modules()]))
    assert outcomes[0] == outcomes[1]


def test_parts_of_layers() -> None:
    """A subclass that puts a layer's blocks together itself gives what the layer gives; an embedding's row of zeros; the key of a place in a list."""
    x, memory = ft.randn(3, 2, 8), ft.randn(4, 2, 8)
    encoder, decoder = ft.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), ft.nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0)
    by_parts = encoder.norm1(x + encoder._sa_block(x, None, None))
    ft.testing.assert_close(encoder.norm2(by_parts + encoder._ff_block(by_parts)), encoder(x))
    y = decoder.norm1(x + decoder._sa_block(x, None, None))
    y = decoder.norm2(y + decoder._mha_block(y, memory, None, None))
    ft.testing.assert_close(decoder.norm3(y + decoder._ff_block(y)), decoder(x, memory))
    table = ft.nn.Embedding(4, 2, padding_idx=-1)
    with ft.no_grad():
        table.weight.fill_(1)
    table._fill_padding_idx_with_zero()
    assert table.weight.sum(1).tolist() == [2.0, 2.0, 2.0, 0.0]
    assert ft.nn.ModuleList([ft.nn.ReLU(), ft.nn.ReLU()])._get_abs_string_index(-1) == "1"


def test_data_parallel_in_parts() -> None:
    """On one device each part is whole."""
    net = ft.nn.DataParallel(ft.nn.Linear(3, 2))
    x = ft.randn(4, 3)
    inputs, kwargs = net.scatter((x,), {}, ["cpu"])
    made = net.gather(net.parallel_apply(net.replicate(net.module, ["cpu"]), inputs, kwargs), "cpu")
    ft.testing.assert_close(made, net(x))
