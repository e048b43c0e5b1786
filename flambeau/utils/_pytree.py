"""torch.utils._pytree: nested containers as a list of leaves and a TreeSpec that puts them together again.

Containers are tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque, and what `register_pytree_node` adds. All else is a leaf.
"""

from __future__ import annotations

import importlib
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple


class SequenceKey(NamedTuple):
    """The place of a child in a sequence."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The place of a child in a mapping."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The place of a child in an object."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child."""
        return getattr(obj, self.name)


class NodeDef(NamedTuple):
    """How a container is taken apart and put together."""

    type: Any
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[Any], Any]] | None = None


class _Serialized(NamedTuple):
    """How a container's class and context are written by treespec_dumps; without functions the context itself is JSON."""

    name: str | None
    to_context: Callable[[Any], Any] | None = None
    from_context: Callable[[Any], Any] | None = None


SUPPORTED_NODES: dict[Any, NodeDef] = {}
_SERIALIZED: dict[Any, _Serialized] = {}


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], tuple[list[Any], Any]], unflatten_fn: Callable[[Iterable[Any], Any], Any], *,
    serialized_type_name: str | None = None, to_dumpable_context: Any = None, from_dumpable_context: Any = None,
    flatten_with_keys_fn: Callable[[Any], tuple[list[Any], Any]] | None = None, **_: Any,
) -> None:  # fmt: skip
    """Make objects of `cls` containers: `flatten_fn(obj) -> (children, context)`, `unflatten_fn(children, context) -> obj`."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    if (to_dumpable_context is None) != (from_dumpable_context is None):
        raise ValueError(f"Both to_dumpable_context and from_dumpable_context for {cls} must be None or registered.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    _SERIALIZED[cls] = _Serialized(serialized_type_name, to_dumpable_context, from_dumpable_context)


_register_pytree_node = register_pytree_node


def _register_namedtuple(cls: type, *, serialized_type_name: str) -> None:
    """Give a namedtuple class a name by which treespec_dumps writes it."""
    _SERIALIZED[cls] = _Serialized(serialized_type_name)


def _deregister_pytree_node(cls: type) -> None:
    """Make objects of a class leaves again."""
    del SUPPORTED_NODES[cls], _SERIALIZED[cls]
    CONSTANT_NODES.discard(cls)


def _default_factory_to_context(context: Any) -> Any:
    factory, keys = context
    return {"default_factory_module": factory.__module__, "default_factory_name": factory.__qualname__, "dict_context": keys}


def _default_factory_from_context(written: Any) -> Any:
    factory = attrgetter(written["default_factory_name"])(importlib.import_module(written["default_factory_module"]))
    return [factory, written["dict_context"]]


def register_dataclass(cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None, **_: Any) -> None:
    """Make a dataclass's objects containers of their fields."""
    import dataclasses

    names = field_names or [f.name for f in dataclasses.fields(cls) if f.init and f.name not in (drop_field_names or ())]
    register_pytree_node(cls, lambda o: ([getattr(o, n) for n in names], None), lambda children, _: cls(**dict(zip(names, children, strict=True))),
                         flatten_with_keys_fn=lambda o: ([(GetAttrKey(n), getattr(o, n)) for n in names], None))  # fmt: skip


CONSTANT_NODES: set[type] = set()


class ConstantNode(NamedTuple):
    """What stands for an object of such a class in a structure: two structures are equal where the objects are."""

    value: Any


def register_constant(cls: type) -> None:
    """Make objects of a class containers without leaves: they are part of the structure. TypeError unless they can be compared and hashed by value."""
    if cls.__eq__ is object.__eq__:  # type: ignore[comparison-overlap]
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__eq__` implementation.")
    if cls.__hash__ is None:
        raise TypeError("register_constant(cls) expects `cls` to have a non-default `__hash__` implementation.")

    def flatten(constant: Any) -> tuple[list[Any], ConstantNode]:
        return [], ConstantNode(constant)

    register_pytree_node(cls, flatten, lambda _, context: context.value, flatten_with_keys_fn=flatten)
    CONSTANT_NODES.add(cls)


def is_constant_class(cls: type) -> bool:
    """Whether objects of a class are constants of structures."""
    return isinstance(cls, type) and cls in CONSTANT_NODES


def _sequence_keys(children: Iterable[Any], context: Any) -> tuple[list[Any], Any]:
    return [(SequenceKey(i), c) for i, c in enumerate(children)], context


def _mapping_keys(d: Any) -> tuple[list[Any], Any]:
    children, context = SUPPORTED_NODES[type(d)].flatten_fn(d)
    return [(MappingKey(k), c) for k, c in zip(d, children, strict=True)], context


for _cls, _flat, _make, _keys in (
    (tuple, lambda x: (list(x), None), lambda v, c: tuple(v), lambda x: _sequence_keys(x, None)),
    (list, lambda x: (x, None), lambda v, c: list(v), lambda x: _sequence_keys(x, None)),
    (dict, lambda x: (list(x.values()), list(x.keys())), lambda v, c: dict(zip(c, v, strict=True)), _mapping_keys),
    (OrderedDict, lambda x: (list(x.values()), list(x.keys())), lambda v, c: OrderedDict(zip(c, v, strict=True)), _mapping_keys),
    (
        defaultdict, lambda x: (list(x.values()), [x.default_factory, list(x.keys())]),
        lambda v, c: defaultdict(c[0], zip(c[1], v, strict=True)), _mapping_keys,
    ),
    (deque, lambda x: (list(x), x.maxlen), lambda v, c: deque(v, maxlen=c), lambda x: _sequence_keys(x, x.maxlen)),
):  # fmt: skip
    SUPPORTED_NODES[_cls] = NodeDef(_cls, _flat, _make, _keys)
_SERIALIZED.update({cls: _Serialized(f"{cls.__module__}.{cls.__qualname__}") for cls in (tuple, list, dict, OrderedDict, deque)})
_SERIALIZED[defaultdict] = _Serialized("collections.defaultdict", _default_factory_to_context, _default_factory_from_context)
_SERIALIZED[namedtuple] = _Serialized("collections.namedtuple", lambda cls: _registered_name(cls), lambda name: _registered_class(name))
_NAMEDTUPLE = NodeDef(None, lambda x: (list(x), type(x)), lambda v, c: c(*v), lambda x: (
    [(GetAttrKey(n), c) for n, c in zip(x._fields, x, strict=True)], type(x)))  # fmt: skip


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class was made by namedtuple."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple) and callable(getattr(cls, "_make", None))


def is_namedtuple(obj: Any) -> bool:
    """Whether an object, or a class, is a namedtuple."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether an object is a namedtuple."""
    return is_namedtuple_class(type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether a class is a C structure as a tuple (os.stat_result)."""
    return isinstance(cls, type) and cls.__bases__ == (tuple,) and all(isinstance(getattr(cls, n, None), int) for n in ("n_fields", "n_sequence_fields"))


def is_structseq(obj: Any) -> bool:
    """Whether an object, or a class, is a C structure as a tuple."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether an object is a C structure as a tuple."""
    return is_structseq_class(type(obj))


def _definition(tree: Any) -> NodeDef | None:
    found = SUPPORTED_NODES.get(type(tree))
    return _NAMEDTUPLE if found is None and is_namedtuple_class(type(tree)) else found


class TreeSpec:
    """The shape of a tree: the type and context of the root, the specs of its children. A leaf has type None."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type = type
        self.context = context
        self.children_specs = children_specs
        leaf = type is None
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children_specs)
        self.num_leaves: int = 1 if leaf else sum(c.num_leaves for c in children_specs)
        self.num_children = len(children_specs)

    def is_leaf(self) -> bool:
        """Whether the tree is one leaf."""
        return self.type is None

    def children(self) -> list[TreeSpec]:
        """The specs of the children."""
        return list(self.children_specs)

    def child(self, index: int) -> TreeSpec:
        """The spec of one child."""
        return self.children_specs[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and self.type is other.type and self.context == other.context and self.children_specs == other.children_specs

    def __hash__(self) -> int:
        return hash((self.type, str(self.context), self.num_nodes))

    def __repr__(self, indent: int = 0) -> str:
        if self.type is None:
            return "*"
        inner = ",\n".join(" " * (indent + 2 if i else 0) + c.__repr__(indent + 2) for i, c in enumerate(self.children_specs))
        return f"TreeSpec({self.type.__name__}, {self.context!r}, [{inner}])"

    def flatten_up_to(self, tree: Any) -> list[Any]:
        """The subtrees of `tree` where this spec has leaves; ValueError where it has another shape."""
        if self.type is None:
            return [tree]
        definition = _definition(tree)
        kind = tuple if definition is _NAMEDTUPLE else type(tree)
        if definition is None or (kind is not self.type and not {kind, self.type} <= {dict, OrderedDict, defaultdict}):
            raise ValueError(f"Type mismatch; expected {self.type!r}, but got {type(tree)!r}.")
        children, context = definition.flatten_fn(tree)
        if len(children) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(children)}.")
        if self.type in (dict, OrderedDict) and isinstance(tree, dict):
            if set(tree) != set(self.context):
                raise ValueError(f"Node keys mismatch; expected {self.context!r}, but got {list(tree)!r}.")
            children = [tree[k] for k in self.context]
        elif context != self.context:
            raise ValueError(f"Node context mismatch for node type {self.type!r}; expected {self.context!r}, but got {context!r}.")
        return [leaf for child, spec in zip(children, self.children_specs, strict=True) for leaf in spec.flatten_up_to(child)]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves; ValueError unless there are as many as the spec has."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(given)} but the spec refers to a pytree that holds {self.num_leaves} items ({self})."
            )
        return self._build(iter(given))

    def _build(self, leaves: Any) -> Any:
        if self.type is None:
            return next(leaves)
        definition = _NAMEDTUPLE if self.type is tuple and isinstance(self.context, type) else SUPPORTED_NODES[self.type]
        return definition.unflatten_fn([c._build(leaves) for c in self.children_specs], self.context)


class LeafSpec(TreeSpec):
    """The spec of one leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])


PyTreeSpec = TreeSpec
PyTree = Any
Context = Any
_LEAF = LeafSpec()


def tree_is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether an object is no container, or `is_leaf` says that it counts as none."""
    return (is_leaf is not None and is_leaf(tree)) or _definition(tree) is None


def _is_leaf(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    return tree_is_leaf(tree, is_leaf)


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves from left to right, spec)."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> TreeSpec:
    definition = None if is_leaf is not None and is_leaf(tree) else _definition(tree)
    if definition is None:
        leaves.append(tree)
        return _LEAF
    children, context = definition.flatten_fn(tree)
    kind = tuple if definition is _NAMEDTUPLE else type(tree)
    return TreeSpec(kind, context, [_flatten(c, leaves, is_leaf) for c in children])


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree with these leaves."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}.")
    return treespec.unflatten(leaves)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves from left to right."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    """The leaves from left to right."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The spec."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """`func` of every leaf (and of what the other trees have in its place), as a tree of the same shape."""
    leaves, spec = tree_flatten(tree, is_leaf)
    return spec.unflatten([func(*args) for args in zip(leaves, *[spec.flatten_up_to(r) for r in rests], strict=True)])


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """Call `func` for every leaf; returns the tree."""
    leaves, spec = tree_flatten(tree, is_leaf)
    for args in zip(leaves, *[spec.flatten_up_to(r) for r in rests], strict=True):
        func(*args)
    return tree


def _chooser(types: Any) -> Callable[[Any], bool]:
    return types if callable(types) and not isinstance(types, type) else (lambda x: isinstance(x, types))  # type: ignore[return-value]


def map_only(type_or_types_or_pred: Any, /) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """A decorator: the function applies to values of these types (or for which the predicate holds), others stay."""
    choose = _chooser(type_or_types_or_pred)
    return lambda func: lambda x: func(x) if choose(x) else x


def tree_map_only(type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """tree_map of the leaves of these types."""
    return tree_map(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types_or_pred: Any, /, func: Callable[[Any], Any], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """tree_map_ of the leaves of these types."""
    return tree_map_(map_only(type_or_types_or_pred)(func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether the predicate holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether the predicate holds for a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether the predicate holds for all leaves of these types."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_any_only(type_or_types: Any, /, pred: Callable[[Any], bool], tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether the predicate holds for a leaf of these types."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, type_or_types))


def tree_flatten_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """([(keys on the way, leaf), ...], spec)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[tuple[Any, ...], Any]]:
    """[(keys on the way, leaf), ...]."""
    found: list[tuple[tuple[Any, ...], Any]] = []

    def walk(node: Any, path: tuple[Any, ...]) -> None:
        definition = None if is_leaf is not None and is_leaf(node) else _definition(node)
        if definition is None:
            found.append((path, node))
            return
        if definition.flatten_with_keys_fn is None:
            raise ValueError(
                f"Did not find a flatten_with_keys_fn for type: {type(node)}. Please pass a flatten_with_keys_fn argument to register_pytree_node."
            )
        for key, child in definition.flatten_with_keys_fn(node)[0]:
            walk(child, (*path, key))

    walk(tree, ())
    return found


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """tree_map of a function that is given the keys on the way first."""
    keyed, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [[path for path, _ in keyed], [leaf for _, leaf in keyed], *[spec.flatten_up_to(r) for r in rests]]
    return spec.unflatten([func(*args) for args in zip(*columns, strict=True)])


def keystr(kp: tuple[Any, ...]) -> str:
    """Keys as text: "['a'][0].b"."""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: tuple[Any, ...]) -> Any:
    """What lies under the keys."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None) -> list[Any] | None:
    """The leaves of `tree`, each repeated for all leaves that the spec has below it; None where the shapes do not fit."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or type(tree) is not treespec.type:
        return None
    definition = _definition(tree)
    assert definition is not None
    children, context = definition.flatten_fn(tree)
    if len(children) != treespec.num_children or context != treespec.context:
        return None
    result: list[Any] = []
    for child, spec in zip(children, treespec.children_specs, strict=True):
        part = _broadcast_to_and_flatten(child, spec, is_leaf)
        if part is None:
            return None
        result += part
    return result


def _encoded(value: Any) -> Any:
    """What json cannot write itself: the members of an Enum, by class and name."""
    if isinstance(value, Enum):
        cls = type(value)
        return {"__enum__": True, "fqn": f"{cls.__module__}:{cls.__qualname__}", "name": value.name}
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _decoded(value: dict[str, Any]) -> Any:
    """The inverse of `_encoded`."""
    if "__enum__" not in value:
        return value
    module, _, path = value["fqn"].partition(":")
    return attrgetter(path)(importlib.import_module(module))[value["name"]]


def _registered_name(cls: Any) -> str:
    found = _SERIALIZED.get(cls)
    if found is None:
        raise NotImplementedError(f"Serializing {cls} in pytree is not registered.")
    if found.name is None:
        raise NotImplementedError(
            f"No registered serialization name for {cls} found. Please update your _register_pytree_node call with a `serialized_type_name` kwarg."
        )
    return found.name


def _registered_class(name: str) -> Any:
    found = next((cls for cls, how in _SERIALIZED.items() if how.name == name), None)
    if found is None:
        raise NotImplementedError(f"Deserializing {name} in pytree is not registered.")
    return found


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A spec as JSON, as PyTorch writes it: `[1, {"type": "builtins.list", "context": "null", "children_spec": [...]}]`.

    NotImplementedError for a class that was registered without a `serialized_type_name`; ValueError for a protocol other than 1.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"treespec_dumps(treespec): Expected `treespec` to be instance of TreeSpec but got item of type {type(treespec)}.")
    if protocol not in (None, 1):
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")

    def dump(spec: TreeSpec) -> Any:
        if spec.type is None:
            return {"type": None, "context": None, "children_spec": []}
        cls = namedtuple if spec.type is tuple and isinstance(spec.context, type) else spec.type
        name, how = _registered_name(cls), _SERIALIZED[cls]
        try:
            context = json.dumps(spec.context, default=_encoded) if how.to_context is None else how.to_context(spec.context)
        except TypeError as error:
            raise TypeError(
                "Unable to serialize context. Please make the context json dump-able, or register a custom serializer using _register_pytree_node."
            ) from error
        return {"type": name, "context": context, "children_spec": [dump(c) for c in spec.children_specs]}

    return json.dumps([1, dump(treespec)], default=_encoded)


def treespec_loads(serialized: str) -> TreeSpec:
    """The spec of treespec_dumps. NotImplementedError for the name of a class that is not registered here."""
    protocol, tree = json.loads(serialized)
    if protocol != 1:
        raise ValueError(f"Unknown protocol {protocol}. Available protocols: [1]")

    def load(data: Any) -> TreeSpec:
        if data["type"] is None:
            return _LEAF
        cls = _registered_class(data["type"])
        how = _SERIALIZED[cls]
        context = json.loads(data["context"], object_hook=_decoded) if how.from_context is None else how.from_context(data["context"])
        return TreeSpec(tuple if cls is namedtuple else cls, context, [load(c) for c in data["children_spec"]])

    return load(tree)


def treespec_pprint(treespec: TreeSpec) -> str:
    """The spec as the repr of a tree whose leaves are `*`."""

    class Star:
        def __repr__(self) -> str:
            return "*"

    return repr(treespec.unflatten([Star()] * treespec.num_leaves))


def _dict_flatten(d: dict[Any, Any]) -> tuple[list[Any], list[Any]]:
    """(values, keys)."""
    return list(d.values()), list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    """The dict of these values under the context's keys."""
    return dict(zip(context, values, strict=True))


def _list_flatten(d: list[Any]) -> tuple[list[Any], None]:
    """(items, None)."""
    return d, None


def _list_unflatten(values: Iterable[Any], context: Any) -> list[Any]:
    """The list of these values."""
    return list(values)


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], Any]:
    """Keys with the values, and the keys."""
    return _mapping_keys(d)  # type: ignore[no-any-return]


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[tuple[Any, Any]], None]:
    """Positions with the items, and None."""
    return _sequence_keys(d, None)  # type: ignore[return-value]


_tuple_flatten_with_keys = _list_flatten_with_keys


def _get_node_type(tree: Any) -> Any:
    """The class under which a container is registered; namedtuples are one class."""
    return namedtuple if is_namedtuple_instance(tree) and type(tree) not in SUPPORTED_NODES else type(tree)  # as PyTorch registers them


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of the arguments."""
    return [leaf for a in (*args, *kwargs.values()) for leaf in tree_leaves(a)]


from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.utils._pytree", globals())
