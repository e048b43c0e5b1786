"""torch.utils (pytree, benchmark, tensorboard, checkpoint, hooks), torch.hub, torch.library, torch.futures, torch.types."""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.utils import _pytree as pytree

torch = pytest.importorskip("torch")
from torch.utils import _pytree as their_pytree  # noqa: E402

Point = namedtuple("Point", "x y")
TREES: list[Any] = [
    1, [1, (2, None)], {"b": [1, {"a": 2}], "a": ()}, Point(1, [2, 3]), OrderedDict(z=1, y=(2,)), defaultdict(list, {"k": [1]}), deque([1, 2], maxlen=3),
    (), {"x": Point((1, 2), {"y": 3})},
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_pytrees(tree: Any) -> None:
    leaves, spec = pytree.tree_flatten(tree)
    theirs, their_spec = their_pytree.tree_flatten(tree)
    assert leaves == theirs and (spec.num_leaves, spec.num_nodes, spec.num_children) == (their_spec.num_leaves, their_spec.num_nodes, their_spec.num_children)
    assert pytree.tree_unflatten(leaves, spec) == tree and pytree.tree_structure(tree) == spec
    paths, their_paths = ([(p.keystr(k), v) for k, v in p.tree_leaves_with_path(tree)] for p in (pytree, their_pytree))
    assert paths == their_paths
    double = lambda x: (x, x)
    assert pytree.tree_map(double, tree) == their_pytree.tree_map(double, tree)
    assert pytree.tree_map(lambda x, y: [x, y], tree, tree) == their_pytree.tree_map(lambda x, y: [x, y], tree, tree)
    assert pytree.tree_map_only(int, lambda x: -x, tree) == their_pytree.tree_map_only(int, lambda x: -x, tree)
    assert pytree.treespec_pprint(spec) == their_pytree.treespec_pprint(their_spec) or isinstance(tree, defaultdict)


def test_pytrees_of_other_classes_and_errors() -> None:
    class Box:
        def __init__(self, *items: Any) -> None:
            self.items = items

    pytree.register_pytree_node(Box, lambda b: (list(b.items), len(b.items)), lambda items, _: Box(*items))
    made = pytree.tree_map(lambda x: x + 1, {"a": Box(1, [2])})
    assert made["a"].items == (2, [3])
    with pytest.raises(ValueError, match="already registered"):
        pytree.register_pytree_node(Box, lambda b: ([], None), lambda i, c: Box())
    with pytest.raises(ValueError, match="Node arity mismatch; expected 2, but got 3"):
        pytree.tree_map(lambda x, y: x, [1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="holds 2 items"):
        pytree.tree_unflatten([1], pytree.tree_structure([1, 2]))
    spec = pytree.tree_structure({"a": [1, (2,)]})
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_specs_as_json_are_pytorchs() -> None:
    """Containers of every kind, a class of one's own, namedtuples, contexts that json cannot write."""
    import enum
    from collections import OrderedDict, defaultdict, deque, namedtuple

    torch = pytest.importorskip("torch")
    import torch.utils._pytree as theirs

    from flambeau.utils import _pytree as ours

    Pair = namedtuple("Pair", "a b")
    Kind = enum.Enum("Kind", "one two", module=__name__)
    globals()["Kind"] = Kind

    class Box:
        def __init__(self, *items: Any) -> None:
            self.items = items

    class Nameless(Box): ...

    class Written(Box): ...

    trees = [
        (1, [2, {"a": 3, "b": ()}]), OrderedDict(a=1), defaultdict(list, x=[1]), deque([1, 2], maxlen=3), Pair(1, (2,)), Box(1, [2, Written(5, 6)]), Box(),
        {Kind.one.name: 1},
    ]  # fmt: skip
    texts = []
    for m in (ours, theirs):
        flatten, make = lambda b: (list(b.items), [Kind.two, len(b.items)]), lambda items, _: Box(*items)
        m.register_pytree_node(Box, flatten, make, serialized_type_name="tests.Box")
        m.register_pytree_node(Nameless, flatten, make)
        m.register_pytree_node(Written, lambda b: (list(b.items), len(b.items)), make, serialized_type_name="tests.Written",
                                    to_dumpable_context=lambda n: {"n": n}, from_dumpable_context=lambda c: c["n"])  # fmt: skip
        m._register_namedtuple(Pair, serialized_type_name="tests.Pair")
        specs = [m.tree_structure(tree) for tree in trees]
        texts.append([m.treespec_dumps(spec) for spec in specs])
        assert [m.treespec_loads(text) for text in texts[-1]] == specs
        with pytest.raises(NotImplementedError, match="No registered serialization name"):
            m.treespec_dumps(m.tree_structure(Nameless(1)))
        with pytest.raises(NotImplementedError, match="is not registered"):
            m.treespec_loads(texts[-1][0].replace("builtins.list", "builtins.nothing"))
        with pytest.raises(ValueError, match="Unknown protocol 7"):
            m.treespec_dumps(specs[0], 7)
    assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="must be None or registered"):
        ours.register_pytree_node(type("Other", (), {}), lambda b: ([], None), lambda i, c: None, to_dumpable_context=str)
    assert torch is not None


def test_benchmark() -> None:
    from flambeau.utils import benchmark

    ran = []
    timer = benchmark.Timer("f(x)", globals={"x": ft.ones(4), "f": lambda x: (ran.append(1), x * 2)[1]}, label="Times", sub_label="four", description="double")
    measured = timer.timeit(20)
    assert len(ran) == 22 and measured.number_per_run == 20 and measured.title == "Times: four" and 0 < measured.median < 1
    assert "1 measurement, 20 runs , 1 thread" in repr(measured) and repr(measured).splitlines()[1:3] == ["Times: four", "double"]
    results = []
    for rows in (1, 64):
        for what, statement in (("sum", "x.sum()"), ("exp", "y = x.exp()")):
            results.append(
                benchmark.Timer(statement, "import math\nx = torch.ones(rows)", globals={"rows": rows}, label="Ops", sub_label=f"n={rows}", description=what)
                .blocked_autorange(min_run_time=0.01)
            )  # fmt: skip
    table = benchmark.Compare(results)
    table.trim_significant_figures()
    table.colorize()
    lines = str(table).splitlines()
    assert "Ops" in lines[0] and "sum" in lines[1] and lines[2].startswith("1 threads: ---") and lines[-1].startswith("Times are in ")
    assert len({len(line) for line in (lines[0], lines[2])}) == 1
    import torch.utils.benchmark as theirs

    for raw in ([1e-6] * 8, [1.0, 1.1, 1.2, 5.0], [3e-3, 4e-3]):
        spec = ("x", "pass")
        a, b = (u.Measurement(1, list(raw), u.TaskSpec(*spec)) for u in (benchmark, theirs))
        assert a.median == pytest.approx(b.median) and a.iqr == pytest.approx(b.iqr) and a.mean == pytest.approx(b.mean)
        assert a.significant_figures == b.significant_figures and a.has_warnings == b.has_warnings
        assert repr(a).split("\n", 1)[1] == repr(b).split("\n", 1)[1]
    with pytest.raises(RuntimeError, match="no C\\+\\+ interface"):
        benchmark.Timer("x", language="c++")
    fuzzer = benchmark.Fuzzer(
        [benchmark.FuzzedParameter("n", 4, 16, "loguniform"), benchmark.FuzzedParameter("m", distribution={2: 0.5, 3: 0.5})],
        [benchmark.FuzzedTensor("x", ("n", "m"), probability_contiguous=0.2)], seed=1,
    )  # fmt: skip
    first, second = ([(t["x"].tolist(), p) for t, _, p in fuzzer.take(3)] for _ in range(2))
    assert first == second and all(len(x) == p["n"] and len(x[0]) == p["m"] for x, p in first)


def test_tensorboard(tmp_path: Path, monkeypatch: Any) -> None:
    from flambeau.utils import tensorboard

    for library in ("tensorboard", "tensorboardX"):  # neither is needed
        monkeypatch.setitem(sys.modules, library, None)
    with tensorboard.SummaryWriter(tmp_path / "runs", purge_step=1) as writer:
        writer.add_scalar("loss", ft.tensor(1.5), 0, new_style=True)
        writer.add_scalars("losses", {"a": ft.tensor(1.0), "b": 2.0}, 0)
        writer.add_histogram("weights", ft.randn(10).to(ft.bfloat16), 0)
        writer.add_histogram_raw("raw", 0.0, 2.0, 3, 3.0, 5.0, [0.5, 1.5, 2.5], [1, 1, 1])
        writer.add_image("image", ft.rand(3, 4, 4), 0)
        writer.add_images("grid", [ft.rand(3, 4, 4)] * 3, 0)
        writer.add_image_with_boxes("boxes", ft.rand(3, 16, 16), ft.tensor([[1, 2, 9, 10]]), labels="one")
        writer.add_video("film", ft.rand(3, 2, 3, 4, 4))
        writer.add_audio("sound", ft.linspace(-1, 1, 20))
        writer.add_text("text", "some *text*")
        writer.add_pr_curve("curve", ft.tensor([1, 0, 1]), ft.tensor([0.9, 0.2, 0.4]))
        writer.add_custom_scalars_multilinechart(["a", "b"])
        writer.add_mesh("mesh", ft.rand(1, 4, 3), faces=ft.tensor([[[0, 1, 2]]]))
        writer.add_hparams({"lr": 0.1, "name": "x", "on": True}, {"score": ft.tensor(0.5)}, run_name="run")
        writer.add_embedding(ft.rand(3, 2), metadata=["a", "b", "c"], label_img=ft.rand(3, 3, 4, 4))
        writer.add_graph(ft.nn.Linear(1, 1), ft.ones(1))
    assert writer.log_dir == str(tmp_path / "runs") and any(p.name.startswith("events") and p.stat().st_size > 100 for p in (tmp_path / "runs").iterdir())
    files = {str(p.parent.relative_to(tmp_path / "runs")) for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    assert files == {".", "run", "losses_a", "losses_b", "00000/default"}


@pytest.mark.parametrize("dtype", "float16 float32 float64 int8 uint8 int16 int32 int64 bool complex64 complex128".split())
def test_tensorboard_tensors(dtype: str) -> None:
    from flambeau.utils.tensorboard import summary

    made = summary.tensor_proto("x", ft.tensor([[1, 0], [2, 3]]).to(getattr(ft, dtype))).value[0].tensor
    numbers = next(v for name, v in vars(made).items() if name.endswith("_val"))
    flat = np.array(numbers, np.uint16).view(np.float16) if dtype == "float16" else np.array(numbers)
    assert [d.size for d in made.tensor_shape.dim] == [2, 2]
    assert flat[:: 2 if "complex" in dtype else 1].tolist() == [1, 0, 1, 1] if dtype == "bool" else [1, 0, 2, 3]


def test_tensorboard_errors() -> None:
    from flambeau.utils.tensorboard import summary

    for wrong, error in (
        (lambda: summary.scalar("a", ft.ones(2)), AssertionError), (lambda: summary.scalar("a", "x"), ValueError),
        (lambda: summary.histogram("a", ft.ones(0), "auto"), ValueError), (lambda: summary.hparams(None, {}), TypeError),
        (lambda: summary.hparams({"a": 1}, {}, {"a": ["x"]}), TypeError), (lambda: summary.image("a", ft.ones(2), dataformats="CHW"), AssertionError),
        (lambda: summary.audio("a", ft.ones(2, 2)), AssertionError), (lambda: summary.text("a", 1), AttributeError),
        (lambda: summary.custom_scalars({"x": {"y": ["Margin", ["a"]]}}), AssertionError),
    ):  # fmt: skip
        with pytest.raises(error):
            wrong()


def test_checkpoint() -> None:
    from flambeau.utils import checkpoint as c

    log: list[str] = []

    @contextmanager
    def note(name: str) -> Any:
        log.append(name)
        yield

    x = ft.randn(3, requires_grad=True)
    c.checkpoint(lambda a: a.sin(), x, use_reentrant=False, context_fn=lambda: (note("first"), note("again"))).sum().backward()
    assert log == ["first", "again"] and ft.allclose(x.grad, x.detach().cos())
    assert c.CheckpointFunction.apply(lambda a: a * 2, True, x).tolist() == (x * 2).tolist()
    (detached,) = c.detach_variable((x,))
    assert detached.requires_grad and detached is not x and len(c.noop_context_fn()) == 2
    with c.set_checkpoint_early_stop(False), c.set_checkpoint_debug_enabled(True), c.GraphExecGroup():
        pass


HUBCONF = """
dependencies = ["torch", "math"]
import torch

def net(width, bias=True):
    "A layer."
    return torch.nn.Linear(width, 1, bias=bias)

def _hidden():
    return None
"""


def test_hub(tmp_path: Path, monkeypatch: Any) -> None:
    hub = ft.hub
    monkeypatch.setattr(hub, "_with_torch", lambda: monkeypatch.setitem(sys.modules, "torch", ft))
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    assert isinstance(hub.load(str(folder), "net", 3, source="local", bias=False), ft.nn.Linear)
    with pytest.raises(RuntimeError, match="Cannot find callable other in hubconf"):
        hub.load(str(folder), "other", source="local")
    with pytest.raises(ValueError, match='Unknown source: "disk"'):
        hub.load(str(folder), "net", source="disk")
    (folder / "hubconf.py").write_text("dependencies = ['no_such_package_here']\ndef net(): pass\n")
    with pytest.raises(RuntimeError, match="Missing dependencies: no_such_package_here"):
        hub.load(str(folder), "net", source="local")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert hub.get_dir() == str(tmp_path / "home" / "hub") and hub._get_torch_home() == str(tmp_path / "home")
    # a repository in the cache is used without the internet
    cached = Path(hub.get_dir()) / "someone_thing_main"
    cached.mkdir(parents=True)
    (cached / "hubconf.py").write_text(HUBCONF)
    assert hub.list("someone/thing", trust_repo=True, verbose=False) == ["net"] and hub.help("someone/thing", "net") == "A layer."
    # checkpoints: the hash in the name is checked, and a wrong one leaves nothing behind
    source = tmp_path / "weights.pt"
    ft.save({"w": ft.ones(2)}, source)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    good, bad = f"net-{digest[:8]}.pt", "net-00000000.pt"
    for name in (good, bad):
        (tmp_path / name).write_bytes(source.read_bytes())
    state = hub.load_state_dict_from_url((tmp_path / good).as_uri(), progress=False, check_hash=True, map_location="cpu")
    assert state["w"].tolist() == [1.0, 1.0] and (Path(hub.get_dir()) / "checkpoints" / good).exists()
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url((tmp_path / bad).as_uri(), progress=False, check_hash=True)
    assert [p.name for p in (Path(hub.get_dir()) / "checkpoints").iterdir()] == [good]
    assert hub.HASH_REGEX.search("resnet18-bfd8deac.pth")[1] == "bfd8deac"


def test_library_and_ops() -> None:
    @ft.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: ft.Tensor, factor: float) -> ft.Tensor:
        return x * factor

    @scaled.register_fake
    def _(x: Any, factor: float) -> Any:
        return ft.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    scaled.register_autograd(lambda ctx, g: (g * ctx.factor * 10, None), setup_context=setup)
    x = ft.ones(2, requires_grad=True)
    ft.ops.mine.scaled(x, 3.0).sum().backward()
    assert x.grad.tolist() == [30.0, 30.0] and ft.ops.mine.scaled.default(x, 2.0).tolist() == [2.0, 2.0]
    assert ft.ops.aten.add.Tensor(ft.ones(1), 1).item() == 2.0 and ft.ops.aten.linalg_norm(ft.ones(4)).item() == 2.0
    with pytest.raises(AttributeError, match="no such operator"):
        ft.ops.aten.no_such_operator
    with pytest.raises(AttributeError, match="no such operator"):
        ft.ops.no_such_namespace.no_such_operator


def test_futures() -> None:
    futures = ft.futures
    first, second = futures.Future(), futures.Future()
    both = futures.collect_all([first, second]).then(lambda f: [x.value() for x in f.value()])
    first.set_result(1)
    assert not both.done()
    second.set_result(2)
    assert both.wait() == [1, 2] and futures.wait_all([first, second]) == [1, 2]
    with pytest.raises(RuntimeError, match="complete again"):
        first.set_result(3)
    failed = futures.Future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        failed.wait()


def test_types_and_hooks() -> None:
    assert ft.types.Number == int | float | bool and isinstance(ft.device("cpu"), ft.types._device)
    t = ft.ones(1, requires_grad=True)
    t.register_hook(ft.utils.hooks.unserializable_hook(lambda g: None))
    ft.utils.hooks.warn_if_has_hooks(t)
    t.register_hook(lambda g: None)
    with pytest.warns(UserWarning, match="will not be serialized"):
        ft.utils.hooks.warn_if_has_hooks(t)
    with pytest.raises(RuntimeError, match="cannot load extensions written in C\\+\\+"):
        ft.utils.cpp_extension.load(name="x", sources=[])


def test_return_types_have_their_classes() -> None:
    from flambeau import return_types

    assert isinstance(ft.ones(3).topk(2), return_types.topk) and return_types.cummax.__name__ == "cummax"
    assert len(return_types.all_return_types) == len(dir(return_types)) - 1
    found = ft.ones(2, 2).max(1)
    assert (found.n_fields, found.n_sequence_fields, found.n_unnamed_fields) == (2, 2, 0)  # PyTorch's
    for made in (return_types.max([1, 2]), return_types.max((1, 2)), return_types.max(1, 2), return_types.max(values=1, indices=2)):
        assert (type(made), made.values, made.indices) == (type(found), 1, 2)

    with pytest.raises(AttributeError, match=r"torch\.return_types has no attribute 'topkk'"):
        return_types.topkk


@pytest.mark.parametrize("other", [(3,), [3], 1, "a", np.array(1), np.array([1, 2])], ids=repr)
def test_sizes_are_added_to_as_pytorchs(other: Any) -> None:
    torch = pytest.importorskip("torch")
    for add in (lambda s: s + other, lambda s: other + s, lambda s: s + s, lambda s: s + type(s)((4,))):
        try:
            wanted = add(torch.Size([1, 2]))
        except TypeError:
            with pytest.raises(TypeError):
                add(ft.Size([1, 2]))
        else:
            found = add(ft.Size([1, 2]))
            assert type(found).__name__ == type(wanted).__name__ and list(found) == list(wanted)
