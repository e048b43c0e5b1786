"""CommDebugMode: a block that counts the collectives of a program, by module, forward and backward."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from flambeau.distributed.tensor.debug._modules import CommModules
from flambeau.distributed.watchers import WATCHERS

_TRIVIAL: Final = frozenset("detach t view to as_strided transpose".split())
_YELLOW, _RED, _PLAIN = "\033[1;33m", "\033[1;31m", "\033[0m"


class CommDebugMode:
    """A block that counts collectives.

    `get_comm_counts()[torch.ops.c10d_functional.all_reduce]` is how many of these there were; what redistributes DTensors and the functional collectives
    are counted under their operators in c10d_functional (in _dtensor where a tensor is cut along another dim), others under those in c10d.
    `comm_module_counts` has them by module. Functions of DTensors are listed by their public names; those of a backward pass, which
    is recorded as a whole, are not.
    """

    def __init__(self) -> None:
        self.comm_counts: dict[Any, int] = defaultdict(int)
        self.comm_module_counts: dict[str, dict[str, dict[Any, int]]] = {}
        self.comm_module_operation_counts: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.advanced_module_tracker = CommModules()

    # -- what is told (watchers.py) -------------------------------------------------------------------------------
    def collective(self, operator: Any) -> None:
        """A collective was called."""
        where = self.advanced_module_tracker
        self.comm_counts[operator] += 1
        for name in {where.name, *where.module_parents_dict.get(where.name, ())}:
            self._counts(name)["backward" if where.is_bw else "forward"][operator] += 1

    def operation(self, name: str, tensors: Sequence[Any]) -> None:
        """A function was given DTensors."""
        where = self.advanced_module_tracker
        listed = self.comm_module_operation_counts.setdefault(where.name, {"operations_list": []})["operations_list"]
        listed.append({
            "name": name, "input_shape": [t.shape for t in tensors], "input_sharding": [t.placements for t in tensors],
            "device_mesh": str(tensors[0].device_mesh) if tensors else "", "is_bw": where.is_bw, "is_activation_checkpointing": where.activation_checkpointing,
        })  # fmt: skip

    def _counts(self, name: str) -> dict[str, dict[Any, int]]:
        return self.comm_module_counts.setdefault(name, {"forward": defaultdict(int), "backward": defaultdict(int)})

    def __enter__(self) -> Self:
        self.comm_counts.clear()
        self.comm_module_counts.clear()
        self.comm_module_operation_counts.clear()
        self._counts("Global")
        self.advanced_module_tracker.__enter__()
        WATCHERS.append(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        WATCHERS.remove(self)
        self.advanced_module_tracker.__exit__(kind, error, traceback)

    # -- what is answered -----------------------------------------------------------------------------------------
    def get_total_counts(self) -> int:
        """How many collectives there were."""
        return sum(self.comm_counts.values())

    def get_comm_counts(self) -> dict[Any, int]:
        """How many there were of each operator."""
        return self.comm_counts

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """By module: its parameters."""
        return self.advanced_module_tracker.module_parameters_dict

    def get_sharding_info(self) -> dict[str, Any]:
        """By parameter that is a DTensor: its placements."""
        return self.advanced_module_tracker.sharding_dict

    def __repr__(self) -> str:
        return f"CommDebugMode(get_total_counts()={self.get_total_counts()})"

    # -- as text --------------------------------------------------------------------------------------------------
    def _operations(self, name: str, noise_level: int) -> tuple[list[dict[str, Any]], ...]:
        """The functions of a module: forward, backward, computed again. From level 3 on also those that move nothing; at level 0 none."""
        listed = self.comm_module_operation_counts.get(name, {"operations_list": []})["operations_list"] if noise_level > 0 else []
        shown = [each for each in listed if noise_level > 2 or each["name"] not in _TRIVIAL]
        again = [each for each in shown if each["is_activation_checkpointing"]]
        return [e for e in shown if not e["is_bw"]], [e for e in shown if e["is_bw"] and not e["is_activation_checkpointing"]], again

    def _collectives(self, name: str, way: str) -> list[tuple[str, int]]:
        found = self.comm_module_counts.get(name, {}).get(way, {})
        return [(str(operator), count) for operator, count in found.items()]

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """A table of modules with their collectives, and from level 1 on their parameters and functions of DTensors."""
        lines: list[str] = []
        for name, about in self.advanced_module_tracker.module_helper_dict.items():
            indent = "    " * about["depth"]
            lines.append(f"{indent}{name}")
            if noise_level > 0 and "module_type" in about:
                lines.append(f"{indent}*module type: {about['module_type']}")
            if noise_level > 0 and "parameters" in about:
                lines += [f"{indent}*Parameter List", *[f"{indent} *{key}: {placements}" for key, placements in about["parameters"].items()]]
            forward, backward, again = self._operations(name, noise_level)
            ways = (("FORWARD PASS", "forward", forward), ("BACKWARD PASS", "backward", backward), ("ACTIVATION CHECKPOINTING", "", again))
            for title, way, operations in ways:
                collectives = self._collectives(name, way)
                if collectives or operations:
                    lines.append(f"{indent}  {title}")
                lines += [f"{_YELLOW}{indent}    *{operator}: {count}{_PLAIN}" for operator, count in collectives]
                for each in operations:
                    lines.append(f"{_YELLOW}{indent}    **{each['name']}{_PLAIN}")
                    for label, key in (("shape", "input_shape"), ("sharding", "input_sharding"), ("device mesh", "device_mesh")):
                        lines.append(f"{_RED}{indent}      {label}: {each[key]}{_PLAIN}")
        return "".join(f"{line}\n" for line in lines)

    def log_comm_debug_tracing_table_to_file(self, file_name: str = "comm_mode_log.txt", noise_level: int = 3) -> None:
        """Write the table, without colours."""
        with open(file_name, "w") as file:
            file.write(re.sub(r"\x1B\[[0-?]*[ -/]*[@-~]", "", self.generate_comm_debug_tracing_table(noise_level)))

    def generate_json_dump(self, file_name: str = "comm_mode_log.json", noise_level: int = 3) -> None:
        """Write the same as JSON: modules inside of modules."""
        with open(file_name, "w") as file:
            json.dump(self._as_json("Global", noise_level), file, indent=4)

    def _as_json(self, name: str, noise_level: int) -> dict[str, Any]:
        about = self.advanced_module_tracker.module_helper_dict[name] if noise_level > 0 else {}
        forward, backward, again = (
            [{**e, "input_shape": [str(s) for s in e["input_shape"]], "input_sharding": [str(p) for p in e["input_sharding"]]} for e in listed]
            for listed in self._operations(name, noise_level)
        )
        return {
            "fqn": name, "module_type": about.get("module_type", ""), "parameters": list(about.get("parameters", {}).items()),
            "children": [self._as_json(child, noise_level) for child in self.advanced_module_tracker.parent_dict.get(name, [])],
            "collectives_forward": self._collectives(name, "forward"), "collectives_backward": self._collectives(name, "backward"),
            "operations_forward": forward, "operations_backward": backward, "operations_checkpointing": again,
        }  # fmt: skip
