"""What PyTorch has and flambeau has not: the AttributeError that says so and names what is near.

`data/torch_names.txt` lists the public names of PyTorch 2.13 by namespace (made with dir()).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path


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
        r"quantize\w*|quantized_\w+|fbgemm_\w+|q_\w+|qint\w+|quint\w+|qscheme|int_repr|empty_quantized|choose_qparams_optimized|"
        r"fused_moving_avg_obs_fake_quant|dequantize",
        "of quantized tensors, which are not there yet; use the float model",
    ),
    (r"(cudnn|miopen|mkldnn)_\w+|batch_norm_(elemt|stats|gather_stats\w*|backward_\w+|update_stats)", "an operator of one library that flambeau does not use"),
    (
        r"bits\w+|u?int[1-7]|uint16|uint32|uint64|float8_\w+|float4_\w+|complex32|chalf",
        "a dtype that flambeau has not; bool, uint8, int8 to int64, float16, bfloat16, float32, float64, complex64 and complex128 are there",
    ),
)


def is_internal(space: str, name: str) -> bool:
    """Whether a name is one of PyTorch's C++ parts, which its module shows and which no other implementation can have."""
    return space == "torch" and re.fullmatch(_LEFT_OUT[0][0], name) is not None


def left_out(space: str, name: str) -> str | None:
    """Why a name of PyTorch's is left out; None if it is not."""
    if space != "torch":
        return None
    return next((why for pattern, why in _LEFT_OUT if re.fullmatch(pattern, name)), None)


def missing(space: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for `space.name` ("torch.nn", "Foo"); `known` are the names that exist there."""
    near = difflib.get_close_matches(name, [k for k in known if not k.startswith("_")], 3, 0.6)
    hint = f" Near it there {'is' if len(near) == 1 else 'are'}: {', '.join(near)}." if near else ""
    why = left_out(space, name)
    if why is not None:
        return AttributeError(f"flambeau leaves out {space}.{name}: {why}.", name=name)
    if name in torch_names().get(space, ()):
        return AttributeError(f"PyTorch has {space}.{name}, flambeau has it not yet.{hint}", name=name)
    return AttributeError(f"{space} has no attribute {name!r}, neither in PyTorch nor in flambeau.{hint}", name=name)
