"""Patterns of layers and functions in a traced model's graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.fx import Node
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import type_before_parametrizations


class MatchAllNode:
    """In a pattern: any node."""


def _match(modules: Mapping[str, Module], node: Any, current: Any) -> bool:
    """Whether one node is what one part of a pattern says: a class of modules, a function, or the target as text."""
    if isinstance(current, type) and issubclass(current, MatchAllNode):
        return True
    if not isinstance(node, Node):
        return False
    if isinstance(current, type) and issubclass(current, Module):
        return node.op == "call_module" and type_before_parametrizations(modules[str(node.target)]) is current
    if callable(current):
        return node.op == "call_function" and node.target is current
    return isinstance(current, str) and node.target == current


def live_users(node: Node) -> list[Node]:
    """The nodes that use this one, but for those that nobody uses (the state that `y, state = lstm(x)` drops)."""
    return [user for user in node.users if user.users or user.op == "output"]


def apply_match(modules: Mapping[str, Module], pattern: Any, node: Node, matched_node_pattern: list[Node]) -> list[Node] | None:
    """The nodes that a pattern (a tuple: each the only user of the one before) takes from `node` on, behind those already matched; None if it does not."""
    parts = pattern if isinstance(pattern, tuple) else (pattern,)
    found = list(matched_node_pattern)
    here: Node | None = node
    for i, part in enumerate(parts):
        if here is None or not _match(modules, here, part):
            return None
        found.append(here)
        if i + 1 < len(parts):
            users = live_users(here)
            here = users[0] if len(users) == 1 else None
    return found
