"""The examples of PyTorch's documentation: the `>>>` lines of the installed PyTorch's docstrings.

An Example is a name and its chunks: prompt lines that follow each other without output between them, each chunk split into
statements by Python's own parser. Chunks that are no Python (elisions, missing brackets) are kept as text; nobody can run them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

SPACES = (
    "torch Tensor nn nn.functional nn.init nn.utils nn.utils.clip_grad nn.utils.parametrizations nn.utils.parametrize nn.utils.prune "
    "nn.utils.rnn nn.utils.stateless nn.utils.fusion nn.utils.memory_format nn.attention nn.attention.flex_attention nn.attention.bias "
    "nn.parallel nn.parameter nn.grad optim optim.lr_scheduler optim.swa_utils linalg fft special masked signal.windows random autograd "
    "autograd.forward_ad autograd.functional autograd.graph autograd.function autograd.grad_mode autograd.profiler autograd.gradcheck "
    "autograd.anomaly_mode func utils utils.data utils.data.datapipes.iter utils.data.datapipes.map utils.checkpoint utils.benchmark "
    "utils.dlpack utils.hooks utils._pytree testing amp serialization sparse distributions distributions.constraints distributions.transforms "
    "distributions.kl distributions.utils jit fx fx.proxy fx.subgraph_rewriter overrides types profiler multiprocessing package futures "
    "library compiler return_types storage cpu accelerator mps cuda backends.cpu backends.cuda backends.mkl backends.mkldnn backends.mps "
    "backends.opt_einsum backends.cudnn nested"
).split()


class Example(NamedTuple):
    """The examples of one docstring. `chunks`: lists of statements' sources."""

    name: str
    chunks: list[list[str]]


def prompt_lines(text: str) -> Iterator[list[tuple[str, str]]]:
    """The chunks of a docstring: lists of (prompt, code)."""
    chunk: list[tuple[str, str]] = []
    for line in text.splitlines():
        match = re.match(r"\s*(>>>|\.\.\.)( |$)(.*)$", line)
        if match is None or (match[1] == "..." and not chunk):
            if chunk:
                yield chunk
            chunk = []
        else:
            chunk.append((match[1], match[3]))
    if chunk:
        yield chunk


def statements(chunk: list[tuple[str, str]]) -> list[str]:
    """The statements of a chunk: parsed as a whole, else each that begins with `>>>` by itself, else as they are."""
    whole = textwrap.dedent("\n".join(code for _, code in chunk))
    try:
        return [_source(whole, node) for node in ast.parse(whole).body]
    except SyntaxError:
        pass
    pieces: list[list[str]] = []
    for prompt, code in chunk:
        if prompt == ">>>":
            pieces.append([code])
        else:
            pieces[-1].append(code)
    found: list[str] = []
    for piece in pieces:
        text = textwrap.dedent("\n".join(piece))
        try:
            found.extend(_source(text, node) for node in ast.parse(text).body)
        except SyntaxError:
            found.append(text)
    return found


def _source(text: str, node: ast.stmt) -> str:
    """A statement's text, with its decorators."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    if first == node.lineno:  # several statements on a line
        return ast.get_source_segment(text, node) or "\n".join(lines)
    return "\n".join(lines)


def of_docstring(name: str, text: str | None) -> Example | None:
    """The example of a docstring; None where there is none."""
    chunks = [s for s in map(statements, prompt_lines(text or "")) if s]
    return Example(name, chunks) if chunks else None


def _documented(space: str, holder: Any) -> Iterator[tuple[str, Any]]:
    """(dotted name, object) of the public members of a module or class, and of the methods of its classes."""
    for name in sorted(getattr(holder, "__all__", None) or dir(holder)):
        if name.startswith("_") and not re.fullmatch(r"__\w+__", name):
            continue
        value = inspect.getattr_static(holder, name, None) if isinstance(holder, type) else getattr(holder, name, None)
        if value is None or isinstance(value, ModuleType) or name in ("__doc__", "__class__", "__all__", "__builtins__"):
            continue
        yield f"{space}.{name}", getattr(holder, name, value) if isinstance(holder, type) else value
        if isinstance(value, type) and not isinstance(holder, type) and (value.__module__ or "").startswith("torch") and name != "Tensor":
            for inner, member in list(vars(value).items()):
                if not inner.startswith("_"):
                    yield f"{space}.{name}.{inner}", member


def examples() -> list[Example]:
    """All examples of the installed PyTorch, each text once, under the shortest of its names."""
    found: dict[str, Example] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for space in SPACES:
            try:
                holder: Any = importlib.import_module("torch" if space in ("torch", "Tensor") else f"torch.{space}")
                holder = holder.Tensor if space == "Tensor" else holder
            except ImportError:
                continue
            prefix = "torch" if space == "torch" else f"torch.{space}"
            candidates = [(prefix, holder), *_documented(prefix, holder)]
            for name, value in candidates:
                text = getattr(value, "__doc__", None)
                if not isinstance(text, str) or ">>>" not in text:
                    continue
                example = of_docstring(name, text)
                if example is None:
                    continue
                key = repr(example.chunks)
                if key not in found or len(found[key].name) > len(name):
                    found[key] = example
    return sorted(found.values())
