"""Orientation of matrix products: a product that is only ever read transposed is laid out transposed.

The gradient of a weight is such a product (x.T @ g, read as its transpose by the optimizer's step). In the readers'
layout its epilogue steps through every array by one; the other way round each access would be a gather.
"""

from __future__ import annotations

from dataclasses import replace

from flambeau.compiler.graph import VIEWS, Graph, Value


def orient(graph: Graph) -> None:
    """Change, in place, the strides of products (and of their views) that are temporaries and read transposed."""
    products = {node.outputs[0] for node in graph.nodes if node.op == "matmul"}
    fixed = {graph.root(value) for value in graph.outputs} | {value for _, value in graph.updates}
    products = {root for root in products - fixed if _can_turn(graph.values[root])}
    if not products:
        return
    views: dict[int, list[int]] = {root: [root] for root in products}
    for number, value in enumerate(graph.values):
        if value.base in products:
            views[value.base].append(number)
    read: dict[int, set[int]] = {root: set() for root in products}
    for node in graph.nodes:
        if node.op not in VIEWS:
            for operand in node.inputs:
                if graph.root(operand) in products:
                    read[graph.root(operand)].add(operand)
    for root, readers in read.items():
        values = graph.values
        if readers and all(_is_transposed(values[root], values[value]) for value in readers):
            turned = {view: _turn(values[root], values[view]) for view in views[root]}
            if any(turned[view] is None for view in (root, *readers)):
                continue
            for view, new in turned.items():
                if new is not None:  # a view that nothing reads may stay as it is
                    values[view] = new


def _can_turn(root: Value) -> bool:
    return len(root.shape) >= 2 and root.is_contiguous and root.shape[-1] > 1 and root.shape[-2] > 1


def _is_transposed(root: Value, view: Value) -> bool:
    """Whether the view's last dim runs down the rows of the product."""
    return bool(view.shape) and len(view.shape) >= 2 and view.strides[-1] == root.strides[-2] and view.strides[-2] == 1


def _turn(root: Value, view: Value) -> Value | None:
    """The same view of the product laid out transposed; None if it is more than a permutation of whole dims."""
    if view.offset or view.dynamic or view.dtype is not root.dtype:
        return None
    sizes = dict(zip(root.strides, root.shape, strict=True))
    new = {stride: stride for stride in root.strides[:-2]} | {root.strides[-2]: 1, root.strides[-1]: root.shape[-2]}
    strides = []
    for size, stride in zip(view.shape, view.strides, strict=True):
        if size != 1 and (stride not in sizes or sizes[stride] != size):
            return None
        strides.append(new.get(stride, stride))
    moving = [stride for size, stride in zip(view.shape, view.strides, strict=True) if size != 1]
    if len(set(moving)) != len(moving):
        return None
    return replace(view, strides=tuple(strides))
