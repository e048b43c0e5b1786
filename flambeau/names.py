"""What PyTorch has and flambeau has not: the AttributeError that says so and names what is near.

`data/torch_names.txt` lists the public names of PyTorch 2.13 by namespace (made with dir()).
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def torch_names() -> dict[str, frozenset[str]]:
    """PyTorch's public names: {"torch.nn": {"Linear", ...}, ...}."""
    found: dict[str, frozenset[str]] = {}
    space = ""
    for line in (Path(__file__).parent / "data" / "torch_names.txt").read_text().splitlines():
        if line.startswith("["):
            space = line.strip("[]")
        else:
            found[space] = frozenset(line.split())
    return found


# Names that PyTorch's modules show and that flambeau leaves out for good, or for now: a pattern and the reason.
_LEFT_OUT = (
    (
        r"AVG|SUM|AggregationType|AliasDb|AnyType|Argument|ArgumentSpec|AwaitType|Benchmark(Config|ExecutionStats)|Block|BufferDict|CallStack|Capsule|"
        r"Code|CompleteArgumentSpec|ConcreteModuleType(Builder)?|DeepCopyMemoTable|(De)?[Ss]erializationStorageContext|DispatchKey(Set)?|ErrorReport|"
        r"ExcludeDispatchKeyGuard|ExecutionPlan|FatalError|FileCheck|FunctionSchema|Gradient|Graph(ExecutorState)?|IODescriptor|InferredType|"
        r"JITException|LiteScriptModule|LockingLogger|ModuleDict|Node|NoopLogger|OperatorInfo|ParameterDict|PyTorchFile(Reader|Writer)|"
        r"Script(Class|ClassFunction|Dict|DictIterator|DictKeyIterator|List|ListIterator|Method|ModuleSerializer|Object|ObjectProperty)|"
        r"StaticModule|Tag|ThroughputBenchmark|TracingState|Type|Use|Value|\w+Type|DeviceObjType|import_ir_module\w*|merge_type_from_type_comment|"
        r"parse_(ir|schema|type_comment)|unify_type_list|bit",
        "a part of PyTorch's C++ library (TorchScript's compiler, its dispatcher, its files), which has no meaning without it",
    ),
    (
        r"quantized_(lstm|gru|rnn)\w+|fbgemm_\w+|choose_qparams_optimized|fused_moving_avg_obs_fake_quant",
        "an operator of one library's quantized kernels; use torch.ao.quantization, whose modules say the same",
    ),
    (r"(cudnn|miopen|mkldnn)_\w+|batch_norm_(elemt|stats|gather_stats\w*|backward_\w+|update_stats)", "an operator of one library that flambeau does not use"),
)


def is_internal(space: str, name: str) -> bool:
    """Whether a name is one of PyTorch's C++ parts, which its module shows and which no other implementation can have."""
    return space == "torch" and re.fullmatch(_LEFT_OUT[0][0], name) is not None


def left_out(space: str, name: str) -> str | None:
    """Why a name of PyTorch's is left out; None if it is not."""
    if space != "torch":
        return None
    return next((why for pattern, why in _LEFT_OUT if re.fullmatch(pattern, name)), None)


class MissingName(AttributeError):
    """The AttributeError of a name that is not there. Its text is made when somebody reads it: `hasattr` asks often, and shows nothing."""

    def __init__(self, space: str, name: str, known: Iterable[str]) -> None:
        super().__init__(name=name)
        self.space = space
        self.known = known

    def __str__(self) -> str:
        space, name = self.space, str(self.name)
        why = left_out(space, name)
        if why is not None:
            return f"flambeau leaves out {space}.{name}: {why}."
        module = sys.modules.get(space.replace("torch", "flambeau", 1))
        found = near(space, name, {*self.known, *dir(module), *getattr(module, "__all__", ())})
        hint = f" Near it there {'is' if len(found) == 1 else 'are'}: {', '.join(found)}." if found else ""
        if name in torch_names().get(space, ()):
            return f"PyTorch has {space}.{name}, flambeau has it not yet.{hint}"
        if name.startswith("_") or space not in torch_names():  # the list has PyTorch's public names only, and not of all namespaces
            return f"{space} has no attribute {name!r} in flambeau.{hint}"
        return f"{space} has no attribute {name!r}, neither in PyTorch nor in flambeau.{hint}"

    def __reduce__(self) -> tuple[type[AttributeError], tuple[str]]:
        return AttributeError, (str(self),)


MissingName.__name__ = MissingName.__qualname__ = "AttributeError"  # as it is called in tracebacks
MissingName.__module__ = "builtins"


def missing(space: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for `space.name` ("torch.nn", "Foo"); `known` are the names that exist there."""
    return MissingName(space, name, known)


def otherwise(space: str, name: str, known: Iterable[str]) -> Any:
    """What the last line of a module's `__getattr__` gives: PyTorch's module of that name, imported now; else the error of `missing`."""
    from flambeau.inner_modules import submodule

    found = submodule(space, name)
    if found is None:
        raise missing(space, name, known)
    return found


def answering(space: str, members: Mapping[str, Any]) -> Callable[[str], Any]:
    """A module's `__getattr__`, for a namespace all of whose names are there: it says what is near to one that is not.

    `members` are the module's globals; `dir` of it lists PyTorch's modules, too, which are imported when they are asked for.
    """

    def listed() -> list[str]:
        from flambeau.inner_modules import submodules

        return sorted({*members, *submodules(space)})

    if isinstance(members, dict):
        members.setdefault("__dir__", listed)

    def missing_name(name: str) -> Any:
        return otherwise(space, name, members)

    return missing_name


def near(space: str, name: str, known: Iterable[str]) -> list[str]:
    """Names like this one that flambeau has, the nearest first, three at most; those of other namespaces with their namespace.

    Another namespace's name must be nearer: the same but for one letter in six, or for capitals.
    """
    scored: list[tuple[float, str, str, str]] = []
    for other, listed in torch_names().items():
        own = other == space
        if other == "torch.Tensor" and not own:
            continue  # methods are found at tensors
        for candidate in listed:
            if candidate.startswith("_") and not name.startswith("_"):
                continue
            score = likeness(name, candidate)
            if score >= (0.6 if own else 0.83):
                scored.append((score + 0.05 * own, candidate if own else f"{other}.{candidate}", other, candidate))
    if space not in torch_names():
        scored += [(score, k, "", k) for k in known if not k.startswith("_") and (score := likeness(name, k)) >= 0.7]
    best: list[str] = []
    top = 0.0
    for score, text, place, candidate in sorted(scored, key=lambda entry: (-entry[0], entry[1])):
        if len(best) == 3 or score < top - 0.12:
            break
        if candidate not in [b.rpartition(".")[2] for b in best] and (not place or (left_out(place, candidate) is None and _exists(place, candidate))):
            best.append(text)
            top = max(top, score)
    return best


def likeness(a: str, b: str) -> float:
    """How like two names are, from 0 to 1; capitals and underscores count little."""
    if a == b:
        return 1.0
    if b.startswith(a) and len(a) >= 4:
        return 0.85
    if abs(len(a) - len(b)) > 3 or not a or not b:
        return 0.0
    plain = difflib.SequenceMatcher(None, a.lower().replace("_", ""), b.lower().replace("_", "")).ratio()
    return plain - 0.02


def meant(name: str, known: Iterable[str]) -> str:
    """ " Did you mean dim?" for a keyword that a function has not, or nothing."""
    best = max(((likeness(name, k), k) for k in known), default=(0.0, ""))
    return f" Did you mean {best[1]}?" if best[0] >= 0.6 else ""


def _exists(space: str, name: str) -> bool:
    try:
        return hasattr(importlib.import_module(space.replace("torch", "flambeau", 1)), name)
    except ImportError:
        return False
