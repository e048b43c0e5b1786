"""Trees of Python containers: tuples, lists, dicts and what is registered, with anything else as leaves (torch.utils._pytree)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

PyTree = Any
Context = Any


class NodeDef(NamedTuple):
    """How a container is taken apart, (children, context), and put together again, (children, context) -> container."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]


SUPPORTED_NODES: dict[type, NodeDef] = {}


def register_pytree_node(cls: type, flatten_fn: Callable[[Any], Any], unflatten_fn: Callable[..., Any], **_: Any) -> None:
    """Make a class a container."""
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(type(x), "_fields")


def _named(x: Any) -> tuple[list[Any], Any]:
    return list(x), type(x)


_NAMEDTUPLE = NodeDef(tuple, _named, lambda children, kind: kind(*children))


def _dict(x: Any) -> tuple[list[Any], Any]:
    return list(x.values()), list(x.keys())


register_pytree_node(tuple, lambda x: (list(x), None), lambda children, _: tuple(children))
register_pytree_node(list, lambda x: (list(x), None), lambda children, _: list(children))
register_pytree_node(dict, _dict, lambda children, keys: dict(zip(keys, children, strict=True)))
register_pytree_node(OrderedDict, _dict, lambda children, keys: OrderedDict(zip(keys, children, strict=True)))
register_pytree_node(deque, lambda x: (list(x), x.maxlen), lambda children, maxlen: deque(children, maxlen))
register_pytree_node(
    defaultdict,
    lambda x: (list(x.values()), (x.default_factory, list(x.keys()))),
    lambda children, context: defaultdict(context[0], zip(context[1], children, strict=True)),
)


def _node_of(x: Any) -> NodeDef | None:
    if _is_namedtuple(x):
        return _NAMEDTUPLE
    return SUPPORTED_NODES.get(type(x))


class TreeSpec:
    """The structure of a tree. `type` is None for a leaf. Two trees of one structure have equal specs."""

    __slots__ = ("children_specs", "context", "num_leaves", "type")

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self.children_specs = children_specs
        self.num_leaves = 1 if type is None else sum([c.num_leaves for c in children_specs])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TreeSpec) and self.type is other.type and self.context == other.context
            and self.children_specs == other.children_specs
        )  # fmt: skip

    def __hash__(self) -> int:
        return hash((self.type, repr(self.context), tuple(self.children_specs)))

    def is_leaf(self) -> bool:
        """Whether the tree is one leaf."""
        return self.type is None

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        return f"TreeSpec({self.type.__name__}, {self.context}, [{', '.join(map(repr, self.children_specs))}])"


LeafSpec = TreeSpec
_LEAF = TreeSpec(None, None, [])


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a tree in order, and its structure."""
    leaves: list[Any] = []

    def walk(x: Any) -> TreeSpec:
        node = None if is_leaf is not None and is_leaf(x) else _node_of(x)
        if node is None:
            leaves.append(x)
            return _LEAF
        children, context = node.flatten_fn(x)
        return TreeSpec(node.type, context, [walk(c) for c in children])

    return leaves, walk(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree of this structure with these leaves."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten(leaves, treespec): `leaves` has length {len(given)} but the spec refers to a pytree that holds "
                         f"{treespec.num_leaves} items ({treespec}).")  # fmt: skip
    rest = iter(given)

    def build(spec: TreeSpec) -> Any:
        if spec.type is None:
            return next(rest)
        children = [build(c) for c in spec.children_specs]
        named = spec.type is tuple and isinstance(spec.context, type)
        return (_NAMEDTUPLE if named else SUPPORTED_NODES[spec.type]).unflatten_fn(children, spec.context)

    return build(treespec)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure alone."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """The tree of `func(leaf, leaves of the other trees at its place...)`."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [_flatten_as(spec, r) for r in rests]
    return tree_unflatten([func(*row) for row in zip(leaves, *others, strict=True)], spec)


def _flatten_as(spec: TreeSpec, tree: Any) -> list[Any]:
    """The parts of `tree` where a tree of structure `spec` has leaves."""
    if spec.type is None:
        return [tree]
    node = _node_of(tree)
    if node is None or node.type is not spec.type:
        raise ValueError(f"Type mismatch; expected {spec.type}, but got {type(tree)}.")
    children, _ = node.flatten_fn(tree)
    if len(children) != len(spec.children_specs):
        raise ValueError(f"Node arity mismatch; expected {len(spec.children_specs)}, but got {len(children)}.")
    return [leaf for s, c in zip(spec.children_specs, children, strict=True) for leaf in _flatten_as(s, c)]


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`func` on every leaf for what it does; returns the tree as it is."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for row in zip(leaves, *[_flatten_as(spec, r) for r in rests], strict=True):
        func(*row)
    return tree


def _only(kind: Any) -> Callable[[Any], bool]:
    return (lambda x: isinstance(x, kind)) if isinstance(kind, (type, tuple)) else kind


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """tree_map over the leaves of a type (or for which a predicate holds)."""
    wanted = _only(kind)
    return tree_map(lambda x: func(x) if wanted(x) else x, tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether `pred` holds for any leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None) -> list[Any] | None:
    """The leaves of `tree` after each was repeated for all leaves that `treespec` has below its place; None: it does not fit."""
    if treespec.type is None:
        node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
        return [tree] if node is None else None
    node = None if is_leaf is not None and is_leaf(tree) else _node_of(tree)
    if node is None:
        return [tree] * treespec.num_leaves
    if node.type is not treespec.type:
        return None
    children, context = node.flatten_fn(tree)
    if len(children) != len(treespec.children_specs) or context != treespec.context:
        return None
    result: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        flat = _broadcast_to_and_flatten(child, spec, is_leaf)
        if flat is None:
            return None
        result += flat
    return result


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure as the tree would be written, with * for leaves."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


class _Star:
    def __repr__(self) -> str:
        return "*"
