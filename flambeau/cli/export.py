"""`flambeau export`: a checkpoint as a file that others read: a program (.pt2), an ONNX model, a page, a program with weights of 8 or 4 bits."""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import flambeau as torch
from flambeau.cli import networks
from flambeau.runtime.whole_files import replacing
from flambeau.utils._pytree import tree_leaves

FAILURES: Final = (OSError, RuntimeError, ValueError, TypeError, NotImplementedError, ImportError)
_ENDINGS: Final = {"pt2": ".pt2", "onnx": ".onnx", "page": ".html", "int8": "-int8.pt2", "int4": "-int4.pt2"}
FORMS: Final = tuple(_ENDINGS)


def export(options: argparse.Namespace) -> int:
    """Write the file, and say what is there; returns the exit status."""
    try:
        trained = networks.read(options.checkpoint, options.network, options.input, options.range)
        if options.group is not None and options.to not in ("int8", "int4"):
            raise ValueError(f"--group is of --to int8 and int4, not of {options.to}")
        path = Path(options.out if options.out is not None else trained.name + _ENDINGS[options.to])
        if trained.program is not None and path.resolve() == Path(options.checkpoint).resolve():
            raise ValueError(f"{path} is the program itself; give another file with -o")
        lines = _WRITERS.get(options.to, _quantized)(trained, path, options)
    except FAILURES as error:
        print(f"flambeau export: {error}", file=sys.stderr)
        return 1
    for line in lines:
        print(line)
    beside = path.with_name(path.name + ".data")
    for file in [path, *([beside] if path.suffix == ".onnx" and beside.exists() else [])]:
        print(f"{file.stat().st_size:>12,} bytes  {file}")
    return 0


def _program(trained: networks.Trained, path: Path, options: Any) -> list[str]:
    trained.save(trained.exported(), path)
    return _compared(trained, torch.export.load(path).module(), _sizes(trained))


def _onnx(trained: networks.Trained, path: Path, options: Any) -> list[str]:
    return _compared(trained, _written(trained, path), _sizes(trained))


def _written(trained: networks.Trained, path: Path) -> Callable[..., Any]:
    """Write an ONNX model; what runs it, by names of inputs."""
    from flambeau.onnx import export as onnx_export

    if trained.program is None:  # the module's own dims keep their names
        args, kwargs, shapes = trained.arguments()
        made = onnx_export(trained.model, args, kwargs=kwargs, dynamic_shapes=shapes, input_names=[x.name for x in trained.form.inputs])
    else:
        made = onnx_export(trained.program)
    made.save(path, external_data=made.model_proto.ByteSize() > 1 << 30)  # below that one file is less to lose
    return lambda **given: made(*given.values())


def _page(trained: networks.Trained, path: Path, options: Any) -> list[str]:
    from flambeau.cli import demo, demo_web

    facts: dict[str, Any] = {k: trained.facts[k] for k in ("letters",) if k in trained.facts}
    if trained.name == "digits" and trained.model is not None:
        facts["accuracy"] = f"{100 * demo.accuracy(trained.model, demo.digits().test):.1f}"
    if trained.name == "gpt" and "letters" not in facts:
        raise ValueError(f"{options.checkpoint} does not have the letters of its numbers under 'letters', as `flambeau demo --gpt` writes them")
    with tempfile.TemporaryDirectory() as folder:
        text = demo_web.page_of(trained, facts, Path(folder))
    with replacing(path) as file:
        file.write(text.encode())
    return ["open it in a browser; it needs no server and no network"]


def _quantized(trained: networks.Trained, path: Path, options: Any) -> list[str]:
    from flambeau.ao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    if trained.model is None:
        raise ValueError(f"{options.checkpoint} is a program, whose layers are operators already; give the checkpoint that it was made of")
    config = Int8WeightOnlyConfig(options.group) if options.to == "int8" else Int4WeightOnlyConfig(32 if options.group is None else options.group)
    holder = torch.nn.ModuleList([copy.deepcopy(trained.model)])  # which can be a dense layer itself
    before = {id(m) for m in holder.modules()}
    quantize_(holder, config)
    changed = sum([id(m) not in before for m in holder.modules()])
    if not changed:
        raise ValueError(f"the network {trained.name} has no torch.nn.Linear, whose weights become {options.to}")
    small = networks.Trained(trained.name, holder[0].eval(), trained.form, trained.facts)
    said = f"{changed} dense layers have weights of {options.to}"
    if path.suffix == ".onnx":
        return [said, *_compared(trained, _written(small, path), _sizes(trained), exact=False)]
    small.save(small.exported(), path)
    return [said, *_compared(trained, torch.export.load(path).module(), _sizes(trained), exact=False)]


_WRITERS: Final[dict[str, Callable[[networks.Trained, Path, Any], list[str]]]] = {"pt2": _program, "onnx": _onnx, "page": _page}


def _sizes(trained: networks.Trained) -> list[str]:
    """For which sizes the file holds."""
    return [f"{name}: any size from {low} to {high}" for name, (low, high) in trained.form.ranges.items() if low < high]


def _compared(trained: networks.Trained, made: Any, lines: list[str], exact: bool = True) -> list[str]:
    """How far what has been written is from the network, at other sizes than those of the example. RuntimeError if that is more than rounding."""
    if trained.model is None:
        return lines
    given = trained.example(more=2)
    worst = 0.0
    with torch.no_grad():
        for a, b in zip(tree_leaves(made(**given)), tree_leaves(trained.call(given)), strict=True):
            if isinstance(b, torch.Tensor) and b.numel() and b.dtype.is_floating_point:
                worst = max(worst, ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1e-30)).item())
    if exact and not worst < 1e-3:
        raise RuntimeError(f"what was written differs from the network by {worst:.1e} of the greatest output; please report this")
    return [*lines, f"read back, it differs from the network by {worst:.1e} of the greatest output"]
