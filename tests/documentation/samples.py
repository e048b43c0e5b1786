"""A valid call of each public name, as text: from the table of tests/errors, or found by trying small arguments that fit the signature."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import flambeau
from tests.errors.table import FIXTURES, SECTIONS

TENSORS: Final = ("x", "v", "s", "im", "i", "b", "seq", "c", "vol", "w", "s3")
# What is tried for arguments that are no tensors, by name.
VALUES: Final = {
    "in_features": "3", "out_features": "2", "in_channels": "2", "out_channels": "3", "num_features": "2", "num_channels": "2", "num_groups": "1",
    "kernel_size": "3 2", "output_size": "2 (2,2) (2,2,2)", "normalized_shape": "3", "num_embeddings": "5", "embedding_dim": "3", "d_model": "4",
    "nhead": "2", "num_heads": "1", "embed_dim": "3", "input_size": "3", "hidden_size": "4", "padding": "1", "pad": "(1,1)", "dim": "0 1 -1 (0,)",
    "dim0": "0", "dim1": "1", "dim2": "1", "axis0": "0", "axis1": "1", "p": "0.5 2", "size": "(2,3) 2 (6,) (4,4) 3", "shape": "(3,2)", "sizes": "(2,3)",
    "chunks": "2", "k": "1", "n": "3 2 1", "m": "2", "steps": "3", "start": "0", "end": "3", "value": "1.0", "fill_value": "1.0", "exponent": "2",
    "threshold": "0.5", "lambd": "0.5", "min": "1.0 v", "max": "2.0 v", "repeats": "2 (2,1)", "shifts": "1", "diagonal": "0", "dims": "(0,) (1,0)",
    "sections": "1", "indices_or_sections": "1 2", "split_size_or_sections": "1", "split_sizes": "[1,1]", "q": "0.5", "dtype": "torch.float64",
    "num_classes": "4", "upscale_factor": "1 2", "downscale_factor": "2", "scale_factor": "2", "groups": "1 2", "window_length": "5", "bins": "4",
    "weight_decay": "0.0", "lr": "0.1", "params": "[p]", "optimizer": "opt", "gamma": "0.5", "step_size": "2", "T_max": "4", "T_0": "4",
    "milestones": "[1,3]", "lr_lambda": "(lambda_)", "max_lr": "0.5", "base_lr": "0.1", "total_steps": "4", "dataset": "data", "data_source": "data",
    "datasets": "[data,data]", "sampler": "[0,1,2]", "batch_size": "2", "drop_last": "False", "weights": "[1.0,2.0]", "num_samples": "2",
    "func": "torch.sin", "module": "net", "parameters": "[p]", "name": "'weight'", "max_norm": "1.0", "clip_value": "0.5", "unflattened_size": "(1,2) (2,1)",
    "loc": "0.0 v", "scale": "1.0 v 0.5", "rate": "1.0 v", "concentration": "1.0 v", "df": "3.0", "df1": "3.0", "df2": "4.0", "low": "0.0 0", "high": "1.0 5",
    "probs": "0.5 v", "concentration0": "2.0", "concentration1": "2.0", "total_count": "3", "temperature": "torch.tensor(0.5)", "n_classes": "6",
    "cutoffs": "[2,4]", "in1_features": "3", "in2_features": "3", "stride": "1 (3,1)", "ord": "2", "tensors": "(x,x) [x,x] [v,v] v [s,s]", "operands": "(x,s)",
    "encoder_layer": "torch.nn.TransformerEncoderLayer(4,2)", "num_layers": "1", "decoder_layer": "torch.nn.TransformerDecoderLayer(4,2)",
    "equation": "'ij->ji'", "padding_mode": "0", "interpolation_mode": "0", "align_corners": "False", "mode": "'fan_in' 'nearest'", "reduce": "'sum' 'amax'",
    "indices": "i (i,) torch.tensor([[0,1],[1,0]])", "index": "i 0 torch.zeros(2,3,dtype=torch.int64)", "std": "1.0", "mean": "0.0", "base": "2.0",
    "base_distribution": "normal", "reinterpreted_batch_ndims": "1", "transforms": "torch.distributions.ExpTransform()", "covariance_matrix": "s",
    "num_parameters": "1", "training": "True", "train": "True", "eps": "1e-5", "momentum": "0.1", "dimension": "1", "step": "1", "signal_ndim": "1",
    "correction": "1", "rank": "0", "num_replicas": "1", "lengths": "[4,2]", "schedulers": "[torch.optim.lr_scheduler.StepLR(opt,2)]", "min_val": "0.0",
    "max_val": "1.0", "negative_slope": "0.1", "gain": "1.0", "val": "0.5", "sparsity": "0.5", "nonlinearity": "'relu'", "device": "'cpu'", "obj": "x v",
    "base_transform": "torch.distributions.ExpTransform()", "parts": "[torch.distributions.ExpTransform()]", "lower": "0.1", "upper": "0.3",
}  # fmt: skip
# Functions that are not tried at random: they change this process, wait, ask for other machines, or are about something else than their arguments.
LEFT_ALONE: Final = re.compile(
    r"torch\.(set_|use_|manual_seed|seed|initial_seed|fork|wait|save|load|from_file|compile|init_|autocast|_|cuda|jit|sparse\.log|get_|is_|sym_|Event|Stream|"
    r"Tag|utils\.data\.(get_worker|argument|functional_datapipe|non_|guaranteed|runtime_|_)|DisableTorch|Generator|resize|quantize|rnn_|distributions\.(kl|"
    r"register_kl|identity)|nn\.functional\.(handle|has_torch|boolean|assert_|Scaling|Swizzle)|Tensor\.(cuda|ipu|mtia|xpu|hpu|share|register|record|module_load|"
    r"set_|__|apply_|map|is_shared|pin_memory|resize|rename|refine|align|reinforce|data_ptr|q_|int_repr|dequantize|names|cauchy|untyped|storage|type$|new$))"
)


class Sample(NamedTuple):
    """A call: what is called, as text, and the texts of its arguments; `method`: the first argument stands before the point."""

    function: str
    args: tuple[str, ...]
    kwargs: tuple[tuple[str, str], ...]
    method: bool = False

    def text(self) -> str:
        """The call."""
        args = [*self.args[int(self.method) :], *[f"{k}={v}" for k, v in self.kwargs]]
        head = f"{self.args[0]}.{self.function.rsplit('.', 1)[1]}" if self.method else self.function
        return f"{head}({', '.join(args)})"


class Scope(dict[str, Any]):
    """The names of a call's text; fixtures are made when they are first asked for."""

    def __init__(self) -> None:
        super().__init__(torch=flambeau, lambda_=lambda epoch: 0.5**epoch)

    def __missing__(self, name: str) -> Any:
        if name not in FIXTURES:
            raise KeyError(name)
        value = self[name] = eval(FIXTURES[name], {"torch": flambeau})
        return value


def fixtures_of(text: str) -> list[str]:
    """The fixtures that a call names, in order."""
    names = [n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)]
    return [n for n in dict.fromkeys(names) if n in FIXTURES]


@cache
def table() -> dict[str, list[Sample]]:
    """{public name: its calls in calls.txt and in the table of tests/errors}."""
    found: dict[str, list[Sample]] = {}
    for section in ((Path(__file__).parent / "calls.txt").read_text(), *SECTIONS.values()):
        for line in section.split("\n") if isinstance(section, str) else section:
            try:
                call = ast.parse(line.strip()).body[0].value  # type: ignore[attr-defined]
            except (SyntaxError, IndexError, AttributeError):
                continue
            if not isinstance(call, ast.Call) or any(k.arg is None for k in call.keywords):
                continue
            name, args = ast.unparse(call.func), [ast.unparse(a) for a in call.args]
            kwargs = tuple((str(k.arg), ast.unparse(k.value)) for k in call.keywords)
            head, _, rest = name.partition(".")
            before, _, method = name.rpartition(".")
            if "(" in before:  # of a tensor that is made on the way
                found.setdefault(f"torch.Tensor.{method}", []).append(Sample(f"torch.Tensor.{method}", (before, *args), kwargs, True))
            elif head in TENSORS and rest.isidentifier():
                found.setdefault(f"torch.Tensor.{rest}", []).append(Sample(f"torch.Tensor.{rest}", (head, *args), kwargs, True))
            elif head == "torch":
                found.setdefault(name, []).append(Sample(name, tuple(args), kwargs))
    return found


def run(sample: Sample, scope: Scope | None = None) -> Any:
    """The result of a call, its elements computed. The same random numbers each time."""
    flambeau.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = eval(sample.text(), {"__builtins__": __builtins__}, scope if scope is not None else Scope())
        for r in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(r, flambeau.Tensor):
                repr(r)
    return result


def tried(name: str, found: Any) -> Iterator[Sample]:
    """Calls that may be valid, simple ones first."""
    try:
        parameters = list(inspect.signature(found).parameters.values())
    except (TypeError, ValueError):
        return
    method = name.startswith("torch.Tensor.")
    required = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and (p.default is p.empty or repr(p.default) == "<required>")]
    several = [p for p in parameters if p.kind is p.VAR_POSITIONAL]
    choices: list[list[str]] = []
    for number, p in enumerate(required):
        named = VALUES.get(p.name, "").split() if p.name in VALUES else []
        annotation = str(p.annotation)
        tensors = list(TENSORS) if "Tensor" in annotation or not named or (number == 0 and method) else []
        choices.append([*named, *tensors] if named and "Tensor" not in annotation else [*tensors, *named])
    if several and not required:
        choices.append(VALUES.get(several[0].name, "2 (2,3)").split() if not method else list(TENSORS))
    for args in sorted(itertools.islice(itertools.product(*choices), 3000), key=lambda a: sum(c.index(x) for c, x in zip(choices, a, strict=True)))[:600]:
        yield Sample(name, args, (), method)


@cache
def sample_of(name: str, found: Any) -> Sample | None:
    """A valid call of a public name; None where none is known."""
    candidates = table().get(name, [])
    if not LEFT_ALONE.match(name):
        candidates = [*candidates, *tried(name, found)]
    for sample in candidates:
        try:
            if run(sample) is not NotImplemented:
                return sample
        except Exception:
            continue
    return None
