"""Plans on disk: the same plan comes back, gives the same bits, and anything else in the folder is a miss."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flambeau import dtypes
from flambeau.compiler import pipeline, stored_plan
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.kernel import Function, Kernel
from flambeau.runtime import buffers, memory, object_cache
from flambeau.runtime.costs import Costs
from flambeau.runtime.target import Target
from flambeau.statistics import counters
from tests import processes

ROWS, COLUMNS = 48, 40


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A cache of its own for every test, with code that is in the process already or not."""
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    return tmp_path


def chain(length: int = stored_plan.FEWEST_NODES, last: float = 0.5) -> Graph:
    """(x, p) -> matmul, reductions and `length` pointwise nodes; one input is updated, one parameter read."""
    graph = Graph()
    shape, f = (ROWS, COLUMNS), dtypes.float32
    x = graph.add_value(Value((ROWS * COLUMNS,), f, (1,)))
    w = graph.add_value(Value((COLUMNS * COLUMNS,), f, (1,)))
    p = graph.add_value(Value((), dtypes.float64, ()))
    graph.inputs, graph.parameters = [x, w], [p]
    xv = graph.add_value(Value(shape, f, (COLUMNS, 1), 0, x))
    wv = graph.add_value(Value((COLUMNS, COLUMNS), f, (COLUMNS, 1), 0, w))
    graph.nodes += [Node("view", (x,), (xv,)), Node("view", (w,), (wv,))]

    def add(op: str, inputs: tuple[int, ...], size: tuple[int, ...] = shape, **attrs: Any) -> int:
        strides = tuple([1] if len(size) == 1 else [size[1], 1] if size else [])
        out = graph.add_value(Value(size, f, strides))
        graph.nodes.append(Node(op, inputs, (out,), tuple(sorted(attrs.items()))))
        return out

    number = add("cast", (p,), (), dtype=f)
    y = add("matmul", (xv, wv))
    for i in range(length):
        y = add(("tanh", "mul", "add", "neg")[i % 4], (y,) if i % 4 in (0, 3) else (y, number))
    constant = add("constant", (), (), dtype=f, text=repr(last), value=last)
    y = add("mul", (y, constant))
    total = add("sum", (y,), (COLUMNS,), dims=(0,))
    graph.outputs = [y, total]
    return graph


def run(plan: Any) -> bytes:
    import numpy

    given = []
    for size, seed in ((ROWS * COLUMNS, 1), (COLUMNS * COLUMNS, 2)):
        b = buffers.allocate(4 * size)
        memory.view_as_numpy(b.address, b.nbytes, b).view("float32")[:] = numpy.random.default_rng(seed).normal(size=size)
        given.append(b)
    return b"".join([memory.view_as_numpy(b.address, b.nbytes, b).tobytes() for b in plan.run(given, [0.75])])


def facts(plan: Any) -> Any:
    """All that a plan is, with functions by their keys."""
    steps = []
    for k in plan.schedule.steps:
        words = [word.key if isinstance(word, Function) else word for word in k.words]
        steps.append([getattr(k, name) for name in Kernel.__slots__ if name not in ("emit", "words", "moves")] + [words])
    s, p = plan.schedule, plan.placement
    return steps, s.phases, s.homes, s.shares, s.returned, s.inside, p.places, p.scratch, p.arena_bytes, p.unshared_bytes, p.workers


def entry(graph: Graph) -> Path:
    key = stored_plan.key_of(graph)
    assert key is not None
    return Path(object_cache._path(key, ".plan"))


def test_the_same_plan_comes_back_and_gives_the_same_bits() -> None:
    made = pipeline.compile_graph(chain())
    before, text = counters.plans_from_disk, str(made.graph)
    again = pipeline.compile_graph(chain())
    assert counters.plans_from_disk == before + 1
    assert facts(again) == facts(made)
    assert run(again) == run(made)
    assert str(again.graph) == text  # made anew when it is asked for
    assert [k.emit(Target.host()) for k in again.kernels] == [k.emit(Target.host()) for k in made.kernels]


def test_missing_code_is_made_again(own_folder: Path) -> None:
    made = pipeline.compile_graph(chain())
    wanted = run(made)
    for path in object_cache.entries():
        path.unlink()
    script = (
        "from tests.compiler.test_stored_plan import chain, run\nimport sys\nfrom flambeau.compiler.pipeline import compile_graph\n"
        "from flambeau.statistics import counters\nplan = compile_graph(chain())\nassert counters.plans_from_disk == 1\n"
        "assert counters.kernels_compiled >= len(plan.kernels)\nsys.stdout.write(run(plan).hex())"
    )
    done = processes.python("-c", script, check=True)
    assert bytes.fromhex(done.stdout) == wanted


@pytest.mark.parametrize("damage", ["cut", "other bytes", "other content", "no steps", "nothing"])
def test_what_cannot_be_read_is_a_miss(damage: str) -> None:
    made = pipeline.compile_graph(chain())
    path = entry(chain())
    key = stored_plan.key_of(chain())
    assert key is not None
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[:-7])
    elif damage == "other bytes":
        path.write_bytes(content[:-7] + b"1234567")
    elif damage == "other content":
        object_cache.store(key, b"not compressed", ".plan")
    elif damage == "no steps":
        object_cache.store(key, zlib.compress(json.dumps([["a"], [[0]], [1], {}]).encode()), ".plan")
    else:
        path.write_bytes(b"")
    before = counters.plans_from_disk
    again = pipeline.compile_graph(chain())
    assert counters.plans_from_disk == before and facts(again) == facts(made)
    assert facts(pipeline.compile_graph(chain())) == facts(made) and counters.plans_from_disk == before + 1


def test_the_name_tells_what_the_plan_depends_on() -> None:
    def key_of(graph: Graph, **facts: Any) -> str | None:
        return stored_plan.key_of(replace(graph, target=replace(graph.target, workers=1, **facts)))

    base = chain()
    names = {key_of(base), stored_plan.key_of(replace(base, target=Target.named("host", 2))), key_of(chain(last=-0.5))}
    names |= {key_of(chain(last=0.0)), key_of(chain(last=-0.0)), key_of(chain(last=1))}
    base.outputs = base.outputs[:1]
    assert len(names | {key_of(base)}) == 7
    assert key_of(chain()) == key_of(chain())
    others = [{"vector_bits": 64}, {"caches": (1, 2, 3)}, {"matrix": frozenset(("none",))}, {"costs": Costs(stream_bytes=7)}, {"name": "other"}]
    assert len({key_of(chain()), *[key_of(chain(), **facts) for facts in others]}) == 6


def test_small_graphs_and_attributes_of_unknown_kinds_have_no_name() -> None:
    graph = chain()
    graph.nodes.append(Node("sum", graph.nodes[-1].inputs, graph.nodes[-1].outputs, (("dims", object()),)))
    assert stored_plan.key_of(graph) is None
    assert stored_plan.key_of(chain(4)) is None


def test_the_cache_counts_deletes_and_limits_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "_MOST_PLANS", 4)
    monkeypatch.setattr(object_cache, "_PLANS_BETWEEN", 1)
    for i in range(4):
        object_cache.store(f"plan:{i}", b"x" * 10, ".plan")
    assert object_cache.statistics()["plans"] == 4 and object_cache.statistics()["entries"] == 0
    object_cache.store("plan:4", b"x", ".plan")
    assert object_cache.statistics()["plans"] == 3
    assert object_cache.load("plan:4", ".plan") is not None and object_cache.load("plan:4") is None
    assert object_cache.clear() == 3 and object_cache.statistics()["plans"] == 0
