"""Programs about gradients and memory (see autograd_programs.py): writes in place, views, histories over several traces."""

from __future__ import annotations

from typing import Any

from tests.engine.autograd_programs import Program, leaf, refused

PROGRAMS: dict[str, Program] = {}


def program(f: Program) -> Program:
    """Add a program to those that are run."""
    PROGRAMS[f.__name__] = f
    return f


# -- writes that are refused ------------------------------------------------------------------------------------------


@program
def leaves_are_not_written(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    leaf_words = "leaf Variable that requires grad"
    return [
        refused(lambda: x.add_(1), leaf_words), refused(lambda: x.__setitem__(0, 1.0), "leaf Variable that requires grad"),
        refused(lambda: x.zero_(), leaf_words), refused(lambda: x[:2].mul_(2), leaf_words), refused(lambda: x.copy_(x * 2), leaf_words), x,
    ]  # fmt: skip


@program
def leaves_are_written_without_gradients(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    with m.no_grad():
        x.add_(1)
        x[0] = 9.0
        x[1:].mul_(2)
    see((x * x).sum()).backward()
    return [x, x.grad, x.is_leaf]


@program
def saved_value_was_written(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x * 2)
    z = see((y * y).sum())
    y.add_(1)
    return refused(z.backward, "modified by an inplace operation")


@program
def saved_leaf_was_written(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    z = see((x * x).sum())
    with m.no_grad():
        x.add_(1)
    return refused(z.backward, "modified by an inplace operation")


@program
def saved_constant_was_written(m: Any, see: Any) -> Any:
    x, c = leaf(m, 3), see(m.full((3,), 2.0, dtype=m.float64))
    z = see((x * c).sum())
    c.add_(1)
    return refused(z.backward, "modified by an inplace operation")


@program
def saved_result_was_written(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x.exp())
    y.add_(1)
    return refused(y.sum().backward, "modified by an inplace operation")


@program
def saved_base_was_written_through_a_view(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see(x * 2)
    z = see((y * y).sum())
    y[1:].zero_()
    return refused(z.backward, "modified by an inplace operation")


@program
def the_write_did_not_matter(m: Any, see: Any) -> Any:
    """Addition saves nothing, sin its input: writing over their results harms nobody."""
    x = leaf(m, 3)
    y = see(x + 1)
    z = see((y + 2).sum())
    y.mul_(3)
    z.backward()
    u = x.sin()
    u.mul_(2)
    see(u.sum()).backward()
    return x.grad


@program
def shapes_do_not_change(m: Any, see: Any) -> Any:
    return [refused(lambda: m.ones(3).add_(m.ones(2, 3)), "output with shape", "doesn't match the broadcast shape"),
            refused(lambda: m.ones(3).expand(2, 3).add_(1), "single memory location")]  # fmt: skip


# -- writes with a gradient -------------------------------------------------------------------------------------------


@program
def written_over(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3, start=-1.0)
    y = see(x * 2)
    y.mul_(w)
    y += x
    y = see(y)
    y.sin_()
    y.sum().backward()
    return [x.grad, w.grad, y]


@program
def parts_written(m: Any, see: Any) -> Any:
    x, w = leaf(m, 4), leaf(m, 2, start=5.0)
    y = see(x * x)
    y[1:3] = w * 3
    y[0] = 0.0
    see((y * y).sum()).backward()
    return [x.grad, w.grad, y]


@program
def view_written_base_read(m: Any, see: Any) -> Any:
    x = leaf(m, 2, 3)
    y = see(x * 2)
    row = y[1]
    row.mul_(5)
    column = see(y.t()[0])
    column.add_(1)
    see((y * y).sum()).backward()
    return [x.grad, y, row.requires_grad, row]


@program
def base_written_view_read(m: Any, see: Any) -> Any:
    x = leaf(m, 2, 3)
    y = see(x * 2)
    row = y[1]
    y.mul_(x)
    see((row * row).sum()).backward()
    return [x.grad, row]


@program
def constant_base_becomes_differentiable(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    table = see(m.zeros(2, 3, dtype=m.float64))
    table[0] = x * x
    table[1, 1:] = x[:2]
    flags = [table.requires_grad, table.is_leaf, table[1].requires_grad]
    see((table * table).sum()).backward()
    return [flags, x.grad, table]


@program
def filled_row_by_row(m: Any, see: Any) -> Any:
    x = leaf(m, 4)
    out = m.empty(4, 4, dtype=m.float64)
    for i in range(4):
        out[i] = x * float(i) + (out[i - 1] if i else 0.0)
        out = see(out)
    out.sum().backward()
    return [x.grad, out]


@program
def copied(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = m.zeros(2, 3, dtype=m.float64)
    y.copy_(x)
    z = m.zeros(3)
    z.copy_(see(x * 2))
    (see(y).sum() + z.sum()).backward()
    return [x.grad, z.dtype == m.float32]


@program
def masks_and_indices_written(m: Any, see: Any) -> Any:
    x, w = leaf(m, 5), leaf(m, 2, start=3.0)
    y = see(x * 2)
    y[y > 3.0] = 0.0
    y[m.tensor([0, 3])] = w
    y.masked_fill_(m.tensor([False, True, False, False, False]), 4.0)
    y.index_add_(0, m.tensor([1, 1]), w * 2)
    see((y * m.arange(5)).sum()).backward()
    return [x.grad, w.grad, y]


@program
def detached_alias_written(m: Any, see: Any) -> Any:
    """Also written through a detached alias, a saved value has changed."""
    x = leaf(m, 3)
    y = see(x * 2)
    z = (y * y).sum()
    y.detach().add_(1)
    return refused(z.backward, "modified by an inplace operation")


@program
def versions(m: Any, see: Any) -> Any:
    x = m.zeros(3, dtype=m.float64)
    v = x[1:]
    x.add_(1)
    v.mul_(2)
    see(x)
    return [x._version, v._version, x.detach()._version, (x * 2)._version]


# -- views ------------------------------------------------------------------------------------------------------------


@program
def views(m: Any, see: Any) -> Any:
    x = leaf(m, 2, 3, 4)
    y = see(x * 1.5)
    parts = [y.permute(2, 0, 1)[1], y.reshape(6, 4).t()[2], y[:, 1:, ::2], y.unfold(2, 2, 1), y.diagonal(0, 0, 1), y.expand(2, 2, 3, 4), y.flatten()[3::5]]
    total = sum((p * p * (i + 1)).sum() for i, p in enumerate(parts))
    total.backward()
    return x.grad


@program
def views_of_leaves(m: Any, see: Any) -> Any:
    x = leaf(m, 2, 3)
    v = see(x.view(6)[1:5])
    see((v * v).sum()).backward()
    return [x.grad, v.is_leaf, v.requires_grad]


@program
def split_and_joined(m: Any, see: Any) -> Any:
    x = leaf(m, 6)
    a, b, c = x.chunk(3)
    y = m.cat([see(a * b), c.exp(), a])
    z = m.stack(list(y.split(2)))
    see((z * z).sum()).backward()
    return x.grad


@program
def strided_windows(m: Any, see: Any) -> Any:
    x = leaf(m, 6)
    y = see(x * 2).as_strided((3, 3), (1, 1), 1)
    see((y * y).sum()).backward()
    return x.grad


# -- histories that outlive a trace -------------------------------------------------------------------------------------


@program
def several_traces(m: Any, see: Any) -> Any:
    x, w = leaf(m, 3), leaf(m, 3, start=-2.0)
    h = m.zeros(3, dtype=m.float64)
    total = 0.0
    for k in range(5):
        h = see((h * w + x * float(k)).tanh())
        total = total + h.sum()
        float(total)
    total.backward()
    return [x.grad, w.grad]


@program
def truncated_history(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    h = m.ones(3, dtype=m.float64)
    for _ in range(3):
        h = (h.detach() * x).sin()
        see(h.sum()).backward()
    return x.grad


@program
def number_in_an_old_trace(m: Any, see: Any) -> Any:
    """Python numbers that changed since are those of the forward pass."""
    x = leaf(m, 3)
    losses = [see((x**2 * scale).sum()) for scale in (0.5, 2.0, 7.0)]
    for loss in losses:
        loss.backward()
    return x.grad


@program
def dropped_results(m: Any, see: Any) -> Any:
    x = leaf(m, 3)
    y = see((x * 2).exp())
    z = see(y.sum())
    del y
    see(m.ones(3))
    z.backward()
    return x.grad


@program
def parameters_updated_between(m: Any, see: Any) -> Any:
    w = leaf(m, 3)
    seen = []
    for _ in range(4):
        loss = see(((w - 0.5) ** 2).sum())
        w.grad = None
        loss.backward()
        with m.no_grad():
            w -= 0.1 * w.grad
        seen.append(loss.item())
    return [seen, w]


@program
def random_forward_once(m: Any, see: Any) -> Any:
    """What was drawn forward is what the gradient uses."""
    x = m.ones(200, dtype=m.float64, requires_grad=True)
    y = see(m.nn.functional.dropout(x, 0.5))
    y.sum().backward()
    return bool((y == x.grad).all())
