"""Paths by class: what is recorded over symbols gives, at any sizes, the bits that recording at those sizes gives."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau import symbols
from flambeau.statistics import counters
from flambeau.trace import ahead, class_plans, classes
from flambeau.trace.recorder import local
from flambeau.trace.state import State
from tests.engine.nothing_known import forget_edges
from tests.threads import Thread, join

pytestmark = pytest.mark.usefixtures("whole")

F = torch.nn.functional
Program = Callable[[int, int], Any]


@pytest.fixture(autouse=True)
def strict() -> Iterator[None]:
    """Each plan by class is compared with one made at its sizes, and one that cannot be made is an error here, and not left out."""
    forget_edges()  # what other tests have recorded at other sizes decided what only costs time otherwise
    class_plans.CHECK[0] = True
    yield
    class_plans.CHECK[0] = False
    classes.ENABLED[0] = True


def bits(x: Any) -> Any:
    """All that can be seen of a result."""
    if isinstance(x, (tuple, list)):
        return [bits(y) for y in x]
    if isinstance(x, torch.Tensor):
        seen = x.detach().view(torch.int16) if x.dtype is torch.bfloat16 else x.detach()
        return x.dtype, tuple(x.shape), x.stride(), seen.numpy().tobytes()
    return repr(x)


def compare(program: Program, sizes: list[tuple[int, int]]) -> None:
    """A program at these sizes in turn, followed by class and recorded at each size."""
    results = []
    for on in (True, False):
        classes.ENABLED[0] = on
        torch.manual_seed(0)
        results.append([bits(program(n, m)) for n, m in sizes])
    for size, by_class, exact in zip(sizes, *results, strict=True):
        assert by_class == exact, size


SIZES = [(5, 7), (6, 7), (9, 8), (4, 11), (12, 3), (12, 3), (2, 2), (1, 5), (5, 1), (40, 33), (0, 3), (33, 40), (130, 70), (7, 7), (64, 64), (17, 129)]


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def _network(n: int, m: int) -> Any:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(m, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    loss = F.cross_entropy(net(normal(n, m)), torch.arange(n) % 3) if n else net(normal(n, m)).sum()
    loss.backward()
    optimizer.step()
    return loss, *net.parameters()


def _views(n: int, m: int) -> Any:
    x = normal(n, m, 4)
    y = x.transpose(0, 1).reshape(m, n * 4)[:, ::2]
    y[:, :n] += 1.0
    return y, y.contiguous().view(-1), x[n // 2 :].sum(0), torch.cat([x, x * 2], 1), x.expand(2, n, m, 4)[1].permute(2, 0, 1)


def _reductions(n: int, m: int) -> Any:
    x = normal(n, m)
    return x.sum(), x.mean(0), x.var(1), x.softmax(-1), x.cumsum(0), x.norm(), x.std(0, unbiased=False), x.logsumexp(1) if m else 0, x.prod(1)


def _small_products(n: int, m: int) -> Any:
    x, y = normal(24, n, m), normal(24, m, 5)
    return x @ y, y.mT @ x.mT, F.scaled_dot_product_attention(normal(8, 3, n, 4), normal(8, 3, 6, 4), normal(8, 3, 6, 4)), normal(24, m, n) @ normal(24, n, 3)


def _products(n: int, m: int) -> Any:
    a, b, c = normal(n, m), normal(m, n), normal(3, n, m)
    return a @ b, b @ a, c @ b, torch.einsum("kij,jl->kil", c, b), a.T @ a, F.linear(a, normal(5, m), normal(5)), a @ normal(m)


def _images(n: int, m: int) -> Any:
    torch.manual_seed(2)
    x = normal(2, 3, n + 4, m + 4).requires_grad_()
    w = normal(6, 3, 3, 3).requires_grad_()
    y = F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2)
    y = F.batch_norm(y, None, None, training=True)
    loss = F.adaptive_avg_pool2d(y, 1).sum() + F.avg_pool2d(y, 2).pow(2).mean()
    loss.backward()
    return loss, x.grad, w.grad


def _planes(n: int, m: int) -> Any:
    torch.manual_seed(2)
    found = []
    for channels, kernel, stride in ((24, 3, 1), (16, 5, 2), (3, 7, 1)):
        x, w = normal(2, channels, n + 4, m + 4).requires_grad_(), normal(channels, 1, kernel, kernel).requires_grad_()
        y = F.conv2d(x, w, stride=stride, padding=kernel // 2, groups=channels)
        y.backward(normal(*y.shape))
        found += [y, x.grad, w.grad]
    return found


def _attention(n: int, m: int) -> Any:
    q = normal(2, 2, n, 8).requires_grad_()
    k, v = normal(2, 2, m, 8), normal(2, 2, m, 8).requires_grad_()
    y = F.scaled_dot_product_attention(q, k, v)
    mask = torch.ones(n, m, dtype=torch.bool).tril()
    z = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    (y.sum() + z[..., :1, :].sum()).backward()
    return y, z, q.grad, v.grad


def _indexing(n: int, m: int) -> Any:
    x = normal(n, m).requires_grad_()
    i = torch.randint(0, n, (m + 1,)) if n else torch.zeros(0, dtype=torch.int64)
    y = x[i]
    z = torch.zeros(n, m).index_add(0, i, y) if n else x
    (y.sum() * 2 + z.pow(2).sum()).backward()
    return y, z, x.grad, x.gather(1, x.argsort(1)), x.topk(min(2, m))[0], torch.where(x > 0, x, -x)


def _writes(n: int, m: int) -> Any:
    x, y = normal(n, m), normal(n, m)
    x.mul_(2).add_(y)
    x[: n // 2] = 0.5
    x[:, m // 2 :] -= y[:, m // 2 :]
    y.copy_(x)
    x.clamp_(-1, 1)
    y.t().add_(1)
    return x, y


def _dropout(n: int, m: int) -> Any:
    x = normal(n, m).requires_grad_()
    y = F.dropout(x, 0.4) + torch.rand(n, m)
    y.sum().backward()
    return y, x.grad


def _second(n: int, m: int) -> Any:
    x = normal(n, m).requires_grad_()
    (g,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return g, x.grad


def _looks(n: int, m: int) -> Any:
    x = normal(n, m).requires_grad_()
    y = x.exp()
    a = y.sum().item()
    z = (y * 2 + a).mean()
    b = z.item()
    z.backward()
    return a, b, x.grad


def _dtypes(n: int, m: int) -> Any:
    x = normal(n, m)
    c = torch.complex(x, x * 2)
    return x.half() + 1, x.bfloat16() @ x.bfloat16().T, c * c.conj(), (x > 0) & (x < 1), x.double().exp(), x.long() // 3, torch.view_as_real(c)


PROGRAMS = [_network, _views, _reductions, _small_products, _products, _images, _planes, _attention, _indexing, _writes, _dropout, _second, _looks, _dtypes]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_bits_are_those_of_exact_sizes(program: Program) -> None:
    before = counters.class_edges
    compare(program, SIZES)
    assert counters.class_edges > before, "nothing went by class"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_any_order_of_sizes(program: Program, seed: int) -> None:
    chance = random.Random(seed)
    compare(program, [(chance.randint(2, 70), chance.choice((chance.randint(2, 70), 16, 64))) for _ in range(7)])


@pytest.mark.parametrize("most", [200, 300, 500, 1000, 2000])
def test_any_order_of_sizes_while_tables_of_expressions_come_and_go(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path is recorded in one table of expressions and planned in another: it could not tell that two sizes are the same, and copied what it updates."""
    monkeypatch.setattr(symbols, "MOST_KNOWN", most)
    for sizes in (SIZES[:9], [(9, 8), (0, 3), (5, 7), (40, 33), (33, 40)]):
        forget_edges()
        compare(_network, sizes)


def test_a_class_runs_no_body_and_makes_no_plan() -> None:
    weight = normal(8, 16)

    def program(n: int) -> Any:
        x = torch.ones(n, 8)
        return ((x @ weight).relu().sum(0) / n).sum().item()

    class_plans.CHECK[0] = False
    for n in range(65, 75):
        program(n)
        recorded, planned, lost = counters.slow_path_entries, counters.plans_made, counters.paths_not_followed
    program(90)
    assert counters.slow_path_entries == recorded
    assert counters.plans_made == planned
    assert counters.paths_not_followed == lost


@pytest.mark.parametrize(
    ("body", "sizes"),
    [
        (lambda x: x + torch.ones(1, x.shape[1]) if x.shape[0] > 20 else x * 2, (5, 9, 12, 30, 41)),  # a comparison
        (lambda x: x + torch.arange(12.0)[: x.shape[0], None], (5, 9, 11, 12, 3)),  # sizes of a view
        (lambda x: x + torch.ones(9, 1) if x.shape[0] in (1, 9) else x - 1, (5, 7, 9, 1, 9)),  # broadcast at one size only
        (lambda x: x.reshape(x.shape[0] // 2, -1) if x.shape[0] % 2 == 0 else x, (4, 6, 7, 9, 12)),  # divisibility
        (lambda x: torch.stack([row * i for i, row in enumerate(x)]), (3, 4, 5, 6, 4)),  # a loop over a size
        (lambda x: x.unfold(0, 2, 1).sum(-1), (5, 6, 7, 2, 3)),
        (lambda x: F.pad(x, (0, 0, 1, 2)).roll(1, 0).flip(0), (5, 6, 7, 1, 3)),
        (lambda x: torch.cdist(x, x), (5, 6, 26, 30, 3)),
        (lambda x: F.interpolate(x[None], 9), (5, 6, 26, 30, 9)),
        (lambda x: x.view(x.shape[0], 2, -1).transpose(1, 2).flatten(0, 1), (5, 6, 7, 2, 3)),
    ],
)
def test_each_guard_is_violated_after_the_edge_was_learned(body: Callable[[Any], Any], sizes: tuple[int, ...]) -> None:
    compare(lambda n, m: body(normal(n, 4)), [(n, 0) for n in sizes])


def test_a_size_that_never_differed_when_a_model_was_compared_is_compared_when_it_does() -> None:
    """How many results `unbind` has is a size; nobody notes that it was asked."""

    def program(n: int, k: int) -> Any:
        x = torch.arange(float(n * k)).view(n, k)
        return x[:, :k].unbind(1)[-1], len((x * 2).unbind(1))

    compare(program, [(4, 2), (5, 3), (6, 2), (7, 2), (8, 2), (9, 2), (10, 2), (8, 3), (8, 4), (9, 3), (3, 5)])


def test_where_a_view_starts_follows_from_sizes_that_are_symbols() -> None:
    """`y[i]` starts at i times the length of a row: the index is a run-time number, the length a symbol."""
    for n, m in ((4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 4), (3, 4)):
        y = normal(n, m) * 2
        rows = [y[i] for i in range(n)]
        assert all(type(row.storage_offset()) is int for row in rows)
        assert [row.storage_offset() for row in rows] == [i * m for i in range(n)]
        assert torch.stack(rows).equal(y)


def test_errors_at_new_sizes_are_those_of_exact_sizes() -> None:
    weight = normal(6, 3)
    for n in (6, 7, 6, 6, 8):  # n is the inner size here: only 6 fits
        x = torch.ones(4, n)
        if n == 6:
            assert (x @ weight).shape == (4, 3)
        else:
            with pytest.raises(RuntimeError, match=rf"4.*{n}.*6.*3"):
                (x @ weight).sum().item()
    for n in (3, 4, 5, 6):
        assert (torch.ones(n, 2) + torch.ones(n, 1)).shape == (n, 2)
    with pytest.raises(RuntimeError, match="size of tensor"):
        torch.ones(7, 2) + torch.ones(6, 1)


def test_index_bounds_are_those_of_the_sizes() -> None:
    for n in (4, 6, 8, 9, 5):
        table = torch.arange(float(n * 2)).view(n, 2)
        assert table[torch.tensor([n - 1, 0])].tolist() == [[2.0 * n - 2, 2.0 * n - 1], [0.0, 1.0]]
        with pytest.raises(IndexError):
            table[torch.tensor([n])].sum().item()


def test_a_state_made_of_a_model_has_all_that_a_state_has() -> None:
    for n in (5, 6, 7, 8):
        y = torch.ones(n, 3) * 2 + 1
        state: State | None = local.main.state
        y.sum().item()
    made = 0
    while state is not None:
        assert all(hasattr(state, name) for name in State.__slots__), state
        made += state.model is not None
        state = state.parent
    assert made


def test_many_sizes_stay_small() -> None:
    """A path that asks for each size is given up, and is not recorded over symbols for ever."""

    def program(n: int) -> Any:
        x = torch.ones(n, 2)
        return torch.stack(list(x)).sum().item()

    for n in range(2, 30):
        assert program(n) == 2.0 * n


def test_the_switch() -> None:
    classes.ENABLED[0] = False
    before = counters.class_edges
    for n in (5, 6, 7, 8):
        assert (torch.ones(n, 3) * 2).sum().item() == 6.0 * n
    assert counters.class_edges == before


def test_a_model_that_was_found_wrong_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(n: int, m: int) -> Any:
        return torch.ones(n, m).exp().sum(0)

    program(5, 4).tolist()
    with monkeypatch.context() as patch:  # comparisons fail, with what was recorded before and at further sizes: as if it had taken two for the same
        agrees = classes._agrees
        patch.setattr(classes, "_agrees", lambda variant, state, sizes: "exp" not in str(state.edge[0]) and agrees(variant, state, sizes))
        for n, m in ((6, 7), (7, 8), (8, 9)):
            program(n, m).tolist()
    before = counters.class_edges
    assert program(12, 8).tolist() == pytest.approx([12 * 2.718281828] * 8)
    assert counters.class_edges == before + 1  # that of `ones`


def test_an_input_is_not_followed_by_class_while_classes_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "_go_on", lambda variant, state: None)  # what was made ahead is known
    scale = torch.ones(13)
    scale.tolist()

    def program(n: int, on: bool) -> int:
        x = torch.ones(n, 13) * 2
        classes.ENABLED[0] = on
        before = counters.class_edges
        (x + scale).sum().item()
        return counters.class_edges - before

    for n in (5, 6, 7, 8, 9):
        followed = program(n, True)
    assert followed
    assert program(11, False) == 0


def test_threads_that_have_ended_do_not_stand_in_the_way() -> None:
    """Beside a thread that records nothing is recorded over symbols; one that has ended, here with something pending, no longer counts."""
    kept: list[Any] = []
    thread = Thread(target=lambda: kept.append(torch.ones(3) * 2))
    thread.start()
    join(thread)
    before = counters.class_edges
    for n in range(5, 15):
        (torch.ones(n, 17).exp() + 1).sum().item()
    assert counters.class_edges > before and classes.alone()
    assert kept[0].tolist() == [2.0, 2.0, 2.0]


def test_another_thread_reads_what_is_pending_while_its_path_is_recorded_over_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must see the sizes of this time, not those at which the model was made: their memory would be too small, or too large."""
    pending: list[torch.Tensor] = []
    seen: list[Any] = []
    over_symbols = classes.over_symbols

    def looked_at(tr: Any, model: Any, sizes: Any, function: Any, *args: Any) -> Any:
        def and_look(*args: Any) -> Any:
            thread = Thread(target=lambda: seen.extend((t.tolist(), [2 * i + 1.0 for i in range(len(t))]) for t in pending))
            thread.start()
            join(thread)
            return function(*args)

        return over_symbols(tr, model, sizes, and_look, *args)

    monkeypatch.setattr(classes, "over_symbols", looked_at)
    monkeypatch.setattr(class_plans, "over_symbols", looked_at)
    for n in (5, 11, 400, 7, 4000, 13):
        x = torch.arange(float(n))
        y = x * 2 + 1
        pending[:] = [y]
        z = y.sin().cos()
        z = torch.cat([z, y]).sum()
        pending.clear()
        assert z.item() == pytest.approx((y.sin().cos().sum() + y.sum()).item())
    assert seen and all(found == expected for found, expected in seen)
