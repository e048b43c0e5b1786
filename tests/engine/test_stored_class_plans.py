"""Plans over symbols on disk: a later process takes them at the sizes at which they are right, with the bits of what it would have made itself."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau.compiler import stored_class_plan
from flambeau.compiler.pipeline import USE_STORED
from flambeau.runtime import object_cache
from flambeau.trace import class_plans
from flambeau.trace.forgetting import keep
from tests import processes

READ = [0]  # plans over symbols that came from disk
ROWS = (3, 5, 17, 40, 6, 33, 130, 9, 70, 21)


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, whole: None) -> Iterator[Path]:
    """A cache of its own for every test, and nothing known in the process."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    assert USE_STORED[0]
    load = stored_class_plan.load

    def noted(*args: Any) -> Any:
        found = load(*args)
        READ[0] += found is not None
        return found

    monkeypatch.setattr(stored_class_plan, "load", noted)
    keep(0)
    yield tmp_path
    keep(0)


def train(rows: tuple[int, ...] = ROWS, width: int = 12) -> list[list[float]]:
    """Losses and weights of a network that is trained on batches of these sizes: plans with blocks in the arena and several kinds of kernels."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(7, width), torch.nn.Tanh(), torch.nn.LayerNorm(width), torch.nn.Linear(width, 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    found = []
    for count in rows:
        x = torch.randn(count, 7)
        loss = torch.nn.functional.cross_entropy(net(x), torch.arange(count) % 4) + (x.softmax(0) * x).sum() / count
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append([loss.item(), *net[0].weight[0].tolist()])
    return found


def again(*args: Any) -> tuple[list[list[float]], int]:
    """What training gives where the process knows nothing any more, and how many plans over symbols came from disk."""
    keep(0)
    READ[0] = 0
    return train(*args), READ[0]


def of_classes() -> list[Path]:
    """The files that list variants."""
    where = object_cache.folder()
    assert where is not None
    found = []
    for path in sorted(where.glob("*.plan")):
        text = zlib.decompress(path.read_bytes()[object_cache._HEAD :])
        if text.startswith(b"[[") and b'"plan over symbols:' in text:
            found.append(path)
    return found


def test_later_processes_take_them_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as without:
        without.setattr(stored_class_plan, "FEWEST_NODES", 1 << 30)
        wanted, _ = again()
    assert not of_classes()
    made, _ = again()
    found, read = again()
    assert made == wanted and found == wanted and read > 0 and of_classes()
    _process()  # one that knows no more than the next, which this one may: it has met the sizes of other tests
    assert _process("assert read > 0, 'nothing was read'") == wanted


def _process(check: str = "") -> list[list[float]]:
    """What training gives in a process of its own, which checks something."""
    script = (
        "from flambeau.compiler import stored_class_plan\nfrom flambeau.statistics import counters\n"
        "from tests.engine.test_stored_class_plans import train\nload, read = stored_class_plan.load, 0\n"
        "def noted(*args):\n    global read\n    found = load(*args)\n    read += found is not None\n    return found\n"
        f"stored_class_plan.load = noted\nfound = train()\n{check}\nprint(repr(found))"
    )
    return json.loads(processes.python("-c", script, check=True).stdout)  # type: ignore[no-any-return]


def test_what_is_read_is_what_would_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers are those of a plan that is made now, at all sizes at which both hold."""
    again()
    compared: list[int] = []
    record = class_plans._record

    def both(tr: Any, model: Any, sizes: Any, tensors: Any, alive: Any, make: Any, hints: Any, afresh: bool = False) -> Any:
        found = record(tr, model, sizes, tensors, alive, make, hints, afresh)
        if found is not None and found.entry is not None and found.entry.name and not afresh:
            made = record(tr, model, sizes, tensors, alive, make, found.hints, afresh=True)
            assert made is not None and class_plans._agree(found, made, sizes)
            for count in ROWS:
                others = tuple([count if n == sizes[0] else n for n in sizes])
                if found.numbers(others) is not None:
                    assert class_plans._agree(found, made, others)
                    compared.append(count)
        return found

    monkeypatch.setattr(class_plans, "_record", both)
    _, read = again()
    assert read > 0 and len(compared) > read


def test_a_variant_is_taken_where_it_was_right_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network's own sizes have never been others: for another network it is planned and compared anew, and then they have."""
    with monkeypatch.context() as without:
        without.setattr(stored_class_plan, "FEWEST_NODES", 1 << 30)
        wanted, _ = again(ROWS, 20)
    again()
    _, all_of_them = again()
    found, read = again(ROWS, 20)
    assert found == wanted and read < all_of_them, "what depends on the width is taken unseen"
    assert again(ROWS, 20) == (wanted, all_of_them) and again()[1] == all_of_them


def test_missing_code_is_made_again() -> None:
    wanted = _process()
    for path in object_cache.entries():
        path.unlink()
    assert _process("assert read > 0 and counters.kernels_compiled > 0, (read, counters.kernels_compiled)") == wanted


@pytest.mark.parametrize("damage", ["cut", "no list", "no variants", "other rows", "other plan", "other Python", "no function"])
def test_what_cannot_be_read_is_a_miss(damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, _ = again()
    where = object_cache.folder()
    assert where is not None
    lists = of_classes()
    paths = lists if damage in ("cut", "no list", "no variants", "other rows") else sorted({*where.glob("*.plan")} - {*lists})
    load = object_cache.load
    changed = {path.name: None for path in paths}

    def damaged(key: str, suffix: str = ".o") -> bytes | None:
        content = load(key, suffix)
        if content is None or Path(object_cache._path(key, suffix) or "").name not in changed:
            return content
        text = zlib.decompress(content).decode()
        if damage == "cut":
            return content[:-7]
        if damage == "no list":
            text = "7"
        elif damage == "no variants":
            text = '[[1, 2], {"a": 3}]'
        elif damage == "other rows":
            text = json.dumps([[[["size", 99]], [["<", [0], 3, True]], *rest] for _, _, *rest in json.loads(text)])
        else:
            lines = text.split("\n")
            if len(lines) != 4:
                return content
            if damage == "other plan":
                lines[1] = '[["a"], [[0]], [1], {"symbol": 10000}]'
            elif damage == "other Python":
                lines[2:] = "another", "code"
            else:
                lines[3] = "6QIAAAA="  # the number 2
            text = "\n".join(lines)
        return zlib.compress(text.encode())

    monkeypatch.setattr(object_cache, "load", damaged)
    found, read = again()
    assert found == wanted and (read > 0) is (damage == "other Python")


def test_two_networks_side_by_side_and_turns() -> None:
    """Variants of several paths, read and made in turns, at repeated sizes."""
    rows = (4, 9, 4, 70, 9, 31, 4, 130, 70)
    wanted = [train(rows, 8), train(rows, 16), train(rows[::-1], 8)]
    for _ in range(2):
        assert [again(rows, 8)[0], again(rows, 16)[0], again(rows[::-1], 8)[0]] == wanted
