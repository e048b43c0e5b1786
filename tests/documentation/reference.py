"""`python -m tests.documentation.reference`: writes flambeau/data/documentation: arguments, result, errors and an example of each public name.

What is written comes from one place each: signatures and kinds of arguments from the records (ops/signatures.py), what arguments of a name mean from
parameters.txt, dtypes, shapes and errors from calls that are made here (probes.py), the example from a call that is run (samples.py). The first
sentences of a docstring stay beside the code. `--check` says what is stale; `--measure` counts what is missing, `--lacking` writes down of which names.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import flambeau
from flambeau import documentation
from flambeau.module_names import is_ours
from flambeau.names import torch_names
from flambeau.ops.signatures import Parameter, overloads
from tests.documentation.compare import same_text
from tests.documentation.execute import execute
from tests.documentation.probes import DTYPES, Findings, of_module, probe
from tests.documentation.samples import Sample, Scope, fixtures_of, run, sample_of
from tests.errors.table import FIXTURES

# What `import flambeau` documents, whatever other tests of this process have loaded since.
_EAGER: Final = frozenset(id(v) for name, v in vars(flambeau).items() if name not in flambeau._LAZY_NAMES)
SPACES: Final = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler",
    "torch.utils.data", "torch.linalg", "torch.fft", "torch.special", "torch.autograd", "torch.distributions", "torch.func",
)  # fmt: skip
LACKING: Final = Path(__file__).parent / "lacking.txt"
MOST_LINES: Final = 10  # of an example's output
_KINDS: Final = {
    "number": "number", "ScalarType": "torch.dtype", "Device": "torch.device, str", "Layout": "torch.layout", "MemoryFormat": "torch.memory_format",
    "Generator": "torch.Generator", "any": "",
}  # fmt: skip


class Name(NamedTuple):
    """A public name: the namespace whose file has it, and what it is."""

    space: str
    name: str
    found: Any

    @property
    def full(self) -> str:
        """As users write it."""
        return f"{self.space}.{self.name}"


def holder(space: str) -> Any:
    """The namespace, or the class."""
    if space == "torch.Tensor":
        return flambeau.Tensor
    return flambeau if space == "torch" else importlib.import_module("flambeau" + space.removeprefix("torch"))


def names() -> Iterator[Name]:
    """Every public function and class once, in the namespace that documents it when it is loaded."""
    seen: set[int] = set()
    eager: list[Name] = []
    rest: list[Name] = []
    for space in SPACES:
        place = holder(space)
        for name in sorted(torch_names()[space]):
            try:
                found = inspect.getattr_static(place, name) if space == "torch.Tensor" else getattr(place, name)
            except AttributeError:
                continue
            if isinstance(found, (FunctionType, type)) and not isinstance(found, ModuleType) and is_ours(getattr(found, "__module__", "") or ""):
                (eager if space in ("torch", "torch.Tensor") and (id(found) in _EAGER or space == "torch.Tensor") else rest).append(Name(space, name, found))
    rest.sort(key=lambda n: n.space == "torch")  # torch's lazy names are those of a namespace, if they are in one
    for n in (*eager, *rest):
        if id(n.found) not in seen:
            seen.add(id(n.found))
            yield n


# -- arguments ----------------------------------------------------------------------------------------------------
@cache
def _meanings() -> list[tuple[str, str, str]]:
    """(name, pattern, text) of parameters.txt, in order."""
    found = []
    for line in (Path(__file__).parent / "parameters.txt").read_text().splitlines():
        match = re.fullmatch(r"(\w+)(?: \((.*?)\))?: (.*)", line)
        if match and not line.startswith("#"):
            found.append((match[1], match[2] or ".*", match[3]))
    return found


@cache
def _meanings_by_name() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for name, pattern, text in _meanings():
        found.setdefault(name, []).append((pattern, text))
    return found


def meaning(full: str, parameter: str) -> str:
    """What a parameter of a function is, in words; empty where nobody has said it."""
    return next((text for pattern, text in _meanings_by_name().get(parameter, ()) if re.fullmatch(pattern, full)), "")


def _kind(p: Parameter) -> str:
    kind = _KINDS.get(p.kind.rstrip("?"), p.kind.rstrip("?"))
    if p.several:
        kind = f"{'int, ' if p.one and kind == 'int' else ''}sequence of {kind}"
    return kind


def kinds_of(name: Name) -> dict[str, str]:
    """{parameter: what it takes}, from PyTorch's schemas where the function is built in, else from annotations."""
    prefix = {"torch.nn.functional": "nn.functional.", "torch.linalg": "linalg.", "torch.fft": "fft.", "torch.special": "special."}.get(name.space, "")
    found: dict[str, list[str]] = {}
    for overload in overloads(prefix + name.name):
        for position, p in enumerate(overload):
            kinds = found.setdefault("input" if p.name == "self" and position == 0 else p.name, [])
            for part in _kind(p).split(", "):
                if part and part not in kinds:
                    kinds.append(part)
            if p.none and "None" not in kinds:
                kinds.append("None")
    return {n: _either([k for k in kinds if k != "None"] + ["None"] * ("None" in kinds)) for n, kinds in found.items() if kinds}


def _either(kinds: list[str]) -> str:
    return kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def annotation(p: inspect.Parameter) -> str:
    """The words of an annotation; empty for Any."""
    if p.annotation is p.empty:
        return ""
    text = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", str(p.annotation))
    text = re.sub(r"\b(Number|Exponent)\b", "number", re.sub(r"\bWhole\b", "int", text)).replace("dtypes.dtype", "torch.dtype")
    parts = [t.strip() for t in text.split("|")]
    return "" if text in ("Any", "Any | None", "object") else _either(parts) if "[" not in text else text


def parameters_of(found: Any) -> list[inspect.Parameter] | None:
    """Those that a call gives."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return None
    return list(signature.parameters.values())


def arguments(name: Name, findings: Findings | None) -> list[str]:
    """The lines of the arguments."""
    lines = []
    kinds = kinds_of(name)
    first = True
    for p in parameters_of(name.found) or ():
        if p.name in ("self",) and name.space == "torch.Tensor":
            continue
        star = "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD)
        kind = kinds.get(p.name) or annotation(p)
        default = "" if p.default is p.empty or repr(p.default) == "<required>" or star else f"default {_shown(p.default)}"
        in_brackets = ", ".join([part for part in (kind, default) if part])
        text = meaning(name.full, p.name)
        if first and findings is not None and findings.dtypes:
            text += f". Dtypes: {_dtypes(findings.dtypes)}"
        first = False
        lines.append(f"    {star}{p.name}{f' ({in_brackets})' if in_brackets else ''}: {text}{'' if text.endswith('.') or not text else '.'}")
    return lines


def _shown(value: Any) -> str:
    return value.__name__ if isinstance(value, (type, FunctionType)) else re.sub(r" at 0x[0-9a-f]+", "", repr(value))


_GROUPS: Final = (
    ("all integers", "uint8 int8 int16 int32 int64".split()), ("all floating dtypes", "float16 bfloat16 float32 float64".split()),
    ("all complex dtypes", "complex64 complex128".split()),
)  # fmt: skip


def _dtypes(taken: tuple[str, ...]) -> str:
    if len(taken) == len(DTYPES):
        return "all"
    left = list(taken)
    words = []
    for word, members in _GROUPS:
        if set(members) <= set(left):
            words.append(word)
            left = [d for d in left if d not in members]
    return _either([*words, *left]).replace(" or ", " and ") if words or left else "any"


# -- result, example ----------------------------------------------------------------------------------------------
def result(name: Name, value: Any, findings: Findings | None) -> str:
    """The words of the result."""
    if isinstance(name.found, type):
        return ""

    def words(v: Any) -> str:
        if isinstance(v, flambeau.Tensor):
            return "Tensor"
        if isinstance(v, tuple) and hasattr(v, "_fields"):
            return f"named tuple ({', '.join(v._fields)})"
        if type(v) in (tuple, list) and v and len({type(x) for x in v}) == 1 and type(v[0]) is not type(v):
            return f"{type(v).__name__} of {words(v[0])}"
        return "None" if v is None else type(v).__name__

    if name.name.endswith("_") and name.space in ("torch", "torch.Tensor", "torch.nn.functional", "torch.nn.init") and isinstance(value, flambeau.Tensor):
        return "Tensor: the first argument, changed."
    text = words(value)
    if findings is not None and findings.shape:
        text += f", {findings.shape}"
    if findings is not None and findings.results:
        text += _result_dtypes(findings.results)
    return text + "."


def _result_dtypes(results: dict[str, str]) -> str:
    kinds = set(results.values())
    if len(results) < 2:
        return ""
    if all(a == b for a, b in results.items()):
        return "; of the dtype of the input"
    if len(kinds) == 1:
        return f"; of dtype {kinds.pop()}"
    others = {a: b for a, b in results.items() if a != b}
    if len(set(others.values())) == 1:
        return f"; of the dtype of the input, but {next(iter(others.values()))} for {_dtypes(tuple(others))}"
    return "; of dtype " + ", ".join(f"{b} for {a}" for a, b in others.items()) + (", else of the dtype of the input" if len(others) < len(results) else "")


def example(name: Name, sample: Sample) -> list[str]:
    """The lines of the example, with what they print."""
    call = sample.text()
    lines = [f"{n} = {FIXTURES[n]}" for n in fixtures_of(call)]
    random = bool(set(fixtures_of(call)) & {"net", "conv", "stack", "lstm"}) or name.found.__module__.endswith(("random", "rejection"))
    if isinstance(name.found, type) and issubclass(name.found, flambeau.nn.Module):
        lines += [f"m = {call}", *_use_of_module(call)]
    elif isinstance(name.found, type) and issubclass(name.found, flambeau.optim.Optimizer):
        lines += [f"optimizer = {call}", "p.square().sum().backward()", "_ = optimizer.step()", "p"]
    elif name.space == "torch.optim.lr_scheduler":
        lines += [f"schedule = {call}", "_ = opt.step()", "schedule.step()", "opt.param_groups[0]['lr']"]
    elif isinstance(name.found, type) and issubclass(name.found, getattr(flambeau.distributions, "Distribution", ())):
        lines += [f"d = {call}", "d.sample().shape"]
    else:
        lines.append(call)
    if "lambda_" in call:
        lines.insert(0, "lambda_ = lambda epoch: 0.5**epoch")
    if random or name.space == "torch.nn.init":
        lines.insert(0, "_ = torch.manual_seed(0)")
    return printed(lines)


def printed(lines: list[str]) -> list[str]:
    """Prompt lines with their output, of the result's shape where the values differ from run to run: memory that nobody has written, addresses."""
    seen, kept = [], []
    for value in (1.5, -7.25):
        dirty(value)
        seen.append(_printed(lines))
        kept += dirty(value)  # so that the next memory is other memory
    if seen[0] == seen[1]:
        return seen[0]
    for last in (f"{lines[-1]}.shape", f"len({lines[-1]})", f"type({lines[-1]}).__name__"):
        shown = _printed([*lines[:-1], last])
        if shown:
            return shown
    return []


def dirty(value: float) -> list[flambeau.Tensor]:
    """Write a number into memory, which the next tensors get unless these are kept."""
    made = [flambeau.full((n,), value) for n in range(1, 40)]
    for t in made:
        t.tolist()
    return made


def _printed(lines: list[str]) -> list[str]:
    """Prompt lines with their output; the last one's is cut to its shape where it is long."""
    scope: dict[str, Any] = {"torch": flambeau}
    flambeau.manual_seed(0)
    shown: list[str] = []
    for number, line in enumerate(lines):
        outcome = execute(line, scope)
        if outcome.error:
            return []
        text = re.sub(r" at 0x[0-9a-f]+", " at 0x...", outcome.text.rstrip("\n")).split("\n") if outcome.text.strip() else []
        if len(text) > MOST_LINES and number == len(lines) - 1:
            again = execute(f"({line}).shape", {**scope}) if not line.startswith("_") else None
            if again is None or again.error:
                text = [*text[:MOST_LINES], "..."]
            else:
                line, text = f"{line}.shape", [again.text.strip()]
        shown += [f">>> {line}", *text]
    return shown


@cache
def _use_of_module(call: str) -> list[str]:
    """What a module is given in its example, by trying."""
    for count in (1, 2, 3):
        for given in _inputs(count):
            scope = Scope()
            try:
                module = eval(call, {}, scope)
                out = eval(f"m({given})", {}, {**{n: scope[n] for n in fixtures_of(given)}, "m": module, "torch": flambeau})
                if isinstance(out, flambeau.Tensor):
                    repr(out)
                    more = [f"{n} = {FIXTURES[n]}" for n in fixtures_of(given)]
                    return [*more, f"m({given}){'.shape' if out.ndim else ''}"]
                if isinstance(out, tuple) and isinstance(out[0], flambeau.Tensor):
                    return [*[f"{n} = {FIXTURES[n]}" for n in fixtures_of(given)], f"m({given})[0].shape"]
            except Exception:
                continue
    return ["m"]


def _inputs(count: int) -> list[str]:
    if count == 1:
        return ["x", "im", "seq", "vol", "i", "v", "torch.ones(2, 4)", "torch.ones(3, 2, 4)", "torch.ones(1, 4, 4, 4)", "torch.ones(2, 2, 6)"]
    if count == 2:
        return ["x, x", "x, torch.tensor([0, 2])", "v, v", "seq, seq", "x, torch.tensor([1, 0])", "seq, seq[:2]", "x, torch.ones(2)"]
    return ["x, x, x", "seq, seq, seq", "x, x, torch.ones(2)", "x, x, torch.ones(2, 3)"]


# -- the whole ----------------------------------------------------------------------------------------------------
def details(name: Name) -> str:
    """All of one name."""
    sample = sample_of(name.full, name.found)
    findings, value, shown = None, None, []
    if sample is not None:
        own = [p.name for p in parameters_of(name.found) or () if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        findings = probe(sample, own, kinds_of(name))
        value = run(sample)
        shown = example(name, sample)
        if isinstance(name.found, type) and issubclass(name.found, flambeau.nn.Module):
            use = _use_of_module(sample.text())[-1]
            given = use[2 : use.rindex(")")] if use.startswith("m(") else ""
            findings = findings._replace(raises=(*findings.raises, *of_module(sample.text(), given)))
        if not findings.raises:
            findings = findings._replace(raises=(("Nothing", "of its own"),))
    parts = []
    lines = arguments(name, None if isinstance(name.found, type) else findings)
    if lines:
        parts.append("\n".join(["Args:", *lines]))
    if sample is not None and (told := result(name, value, findings)):
        parts.append(f"Returns:\n    {told}")
    elif not isinstance(name.found, type):
        returns = annotation(inspect.Parameter("r", inspect.Parameter.KEYWORD_ONLY, annotation=inspect.signature(name.found).return_annotation))
        if returns:
            parts.append(f"Returns:\n    {returns}.")
    if findings is not None and findings.raises:
        parts.append("\n".join(["Raises:", *["    Nothing of its own." if kind == "Nothing" else f"    {kind}: {when}." for kind, when in findings.raises]]))
    if shown:
        parts.append("\n".join(["Example:", *[f"    {line}" if line else "" for line in shown]]))
    return "\n\n".join(parts)


def made() -> dict[Path, str]:
    """Every file, with its text."""
    texts: dict[str, list[str]] = {}
    for name in names():
        start = time.perf_counter()
        text = details(name)
        if "--slow" in sys.argv and time.perf_counter() - start > 1:
            print(f"{name.full}: {time.perf_counter() - start:.1f} s", flush=True)
        if text:
            texts.setdefault(name.space, []).append(f"{documentation.MARK}{name.name}\n{text}\n")
    return {documentation.FOLDER / f"{space}.txt": "Written by scripts/docstrings: do not edit.\n" + "".join(parts) for space, parts in texts.items()}


def lacking(full: str, found: Any) -> list[str]:
    """Which parts a public name's docstring has not: words of its own, each argument, result, errors, example."""
    text = found.__doc__ or ""
    missing = [] if documentation.own_words(found).strip() else ["sentence"]
    own = [p for p in parameters_of(found) or () if p.name not in ("self", "cls")]
    told = dict(re.findall(r"^    \*{0,2}(\w+)(?: \(.*?\))?:(.*)$", text.split("Args:\n")[-1].split("\n\n")[0] if "Args:\n" in text else "", re.M))
    if any(not told.get(p.name, "").strip() for p in own):
        missing.append("arguments")
    if "Returns:\n" not in text and not isinstance(found, type):
        missing.append("result")
    if "Raises:\n" not in text and own:
        missing.append("errors")
    if ">>> " not in text:
        missing.append("example")
    return missing


def measure(verbose: bool) -> Counter[str]:
    """How many public names lack each part."""
    counts: Counter[str] = Counter()
    for name in names():
        missing = lacking(name.full, name.found)
        counts.update(missing)
        counts["names"] += 1
        counts["whole"] += not missing
        if verbose and missing:
            print(f"{name.full}: {', '.join(missing)}")
    return counts


def short_of() -> set[str]:
    """Lines of lacking.txt as they are now."""
    return {f"{n.full}: {', '.join(missing)}" for n in names() if (missing := lacking(n.full, n.found))}


def same(old: str, new: str) -> bool:
    """Equal, but for one unit of the last digit of what examples print."""
    a, b = old.split("\n"), new.split("\n")
    return len(a) == len(b) and all(x == y or (not x.lstrip().startswith(">>>") and same_text(x, y)) for x, y in zip(a, b, strict=True))


def main() -> int:
    """Write the files, or say which are stale or what is missing."""
    if "--lacking" in sys.argv:
        head = "# Public names whose docstrings lack something yet. The list may only become shorter (test_reference.py)."
        LACKING.write_text("\n".join([head, *sorted(short_of())]) + "\n")
        return 0
    if "--measure" in sys.argv:
        counts = measure("--names" in sys.argv)
        print(", ".join(f"{n} {what}" for what, n in counts.most_common()))
        return 0
    texts = made()
    stale = [path for path, text in texts.items() if not path.exists() or not same(path.read_text(), text)]
    for path in stale if "--check" in sys.argv else ():
        print(f"{path.name} is stale: run scripts/docstrings")
    if "--check" in sys.argv:
        return int(bool(stale))
    documentation.FOLDER.mkdir(exist_ok=True)
    for path, text in texts.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
