"""Trees of containers against torch.utils._pytree; and the small public functions of torch.func."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import flambeau as ft
from flambeau.utils import _pytree as ours

theirs = pytest.importorskip("torch.utils._pytree")
Point = namedtuple("Point", ("x", "y"))

TREES = [
    1, (1, 2), [1, [2, (3,)], {}], {"b": 1, "a": (2, None)}, OrderedDict(z=1, a=[2]), deque([1, (2, 3)], 5), Point(1, [2]), (), None,
    defaultdict(list, {"k": [1, 2]}), {"n": Point({"q": 1}, (2,))},
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_flatten_and_back(tree) -> None:
    leaves, spec = ours.tree_flatten(tree)
    expected, _ = theirs.tree_flatten(tree)
    assert leaves == expected and spec.num_leaves == len(expected)
    back = ours.tree_unflatten(leaves, spec)
    assert back == tree and type(back) is type(tree)
    assert ours.tree_map(lambda x: [x], tree) == theirs.tree_map(lambda x: [x], tree)
    assert ours.tree_structure(tree) == spec and hash(spec) == hash(ours.tree_structure(tree))


def test_functions_of_leaves() -> None:
    tree = {"a": (1, 2.0), "b": [3, "s"]}
    assert ours.tree_map_only(int, lambda x: x + 1, tree) == theirs.tree_map_only(int, lambda x: x + 1, tree)
    assert ours.tree_map(lambda x, y: (x, y), (1, [2]), (3, [4])) == ((1, 3), [(2, 4)])
    assert ours.tree_all(lambda x: x != 9, tree) and ours.tree_any(lambda x: x == "s", tree)
    assert ours.tree_leaves(tree, is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2.0), 3, "s"]
    with pytest.raises(ValueError, match="arity"):
        ours.tree_map(lambda x, y: x, (1, 2), (1, 2, 3))
    with pytest.raises(ValueError, match="has length 1"):
        ours.tree_unflatten([1], ours.tree_structure((1, 2)))


def test_broadcast() -> None:
    spec = ours.tree_structure((1, {"a": 2, "b": [3, 4]}))
    assert ours._broadcast_to_and_flatten(7, spec) == [7, 7, 7, 7]
    assert ours._broadcast_to_and_flatten((0, {"a": 1, "b": None}), spec) == [0, 1, None, None]
    assert ours._broadcast_to_and_flatten((0, 1, 2), spec) is None


def test_registered_classes() -> None:
    class Box:
        def __init__(self, inside) -> None:
            self.inside = inside

    ours.register_pytree_node(Box, lambda b: ([b.inside], None), lambda children, _: Box(next(iter(children))))
    try:
        assert ft.vmap(lambda b: b.inside * 2)(Box(ft.ones(2, 3))).shape == (2, 3)
        assert ft.func.grad(lambda b: (b.inside**2).sum())(Box(ft.ones(3))).inside.tolist() == [2.0, 2.0, 2.0]
    finally:
        del ours.SUPPORTED_NODES[Box]


def test_debug_unwrap() -> None:
    seen = []

    def inner(x):
        seen.append(ft.func.debug_unwrap(x, recurse=False).shape)
        seen.append(ft.func.debug_unwrap(x).shape)
        return x

    ft.vmap(ft.vmap(inner))(ft.ones(2, 3, 4))
    assert [tuple(s) for s in seen] == [(3, 4), (2, 3, 4)]
    plain = ft.ones(2)
    assert ft.func.debug_unwrap(plain) is plain


def test_functionalize_is_the_function() -> None:
    def f(x):
        y = x.clone()
        y.view(-1)[0] = 3
        return y.mul_(2)

    x = ft.ones(2, 2)
    assert ft.equal(ft.func.functionalize(f)(x), f(x)) and ft.equal(x, ft.ones(2, 2))
    assert ft.func.functionalize(f, remove="mutations_and_views").__name__ == "f"


def test_names() -> None:
    assert set(ft.func.__all__) == set(dir(ft.func))
    with pytest.raises(AttributeError, match=r"torch\.func has no attribute 'gradient'"):
        ft.func.gradient
