"""From an exported program to a folder with a library in it: plans, code, weights, header, examples."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from flambeau.deploy import code, examples, header, link, python_loader, web_module, webgpu, weights
from flambeau.deploy.errors import BuildError
from flambeau.deploy.interface import Interface, argument, check_name, symbols_of
from flambeau.deploy.library_code import Library
from flambeau.deploy.record import Recorded
from flambeau.deploy.variants import Symbol, Variant, agree, cover, make
from flambeau.export.archive import load
from flambeau.export.graph_signature import InputKind
from flambeau.export.program import ExportedProgram
from flambeau.runtime.target import Target
from flambeau.runtime.whole_files import replacing

_WEBGPU: Final = "webgpu"  # the target that is no machine of LLVM's
_MOST_INSIDE: Final = 256 << 20  # bytes of weights in a library: the text of the module has three times as many
_STACK: Final = 1 << 18  # bytes, of a WebAssembly module


def build(
    model: Any, target: str, out: Any, *, name: str | None = None, weights_inside: bool = False, report: Callable[[str], None] = lambda text: None
) -> list[Path]:  # fmt: skip
    """Make a library of a program; the files, in the folder `out`.

    `model`: an ExportedProgram, or the path of a `.pt2` file. `target`: a name of `Target.named`, or "webgpu". `name`: what the library's functions
    begin with; the file's name without it. `weights_inside`: they are part of the library, instead of a file beside it. `report` is told what happens.
    BuildError (a RuntimeError) for what cannot be built, with what must change; ValueError for a target that is not known.
    """
    check(target)
    program = model if isinstance(model, ExportedProgram) else load(model)
    stem = Path(os.fspath(model)).stem if not isinstance(model, ExportedProgram) else "model"
    called = check_name(name if name is not None else re.sub(r"\W", "_", stem).lower())
    symbols = symbols_of(program)
    if target == _WEBGPU:
        if weights_inside:
            raise BuildError("a module for WebGPU has its weights beside it: they go to the GPU as they are")
        plans, block = webgpu.plans(program, symbols, report)
        return write(Path(os.fspath(out)), webgpu.build(_interface(program, called, target, symbols, plans[0].recorded, block, False), plans, block))
    machine = Target.named(target)
    wasm = machine.architecture == "wasm32"
    variants = cover(symbols, partial(make, program, target=machine), agree, report)
    first = variants[0].recorded
    block = weights.pack([(n, program.tensor(n)) for _, n in first.held])
    if weights_inside and len(block.content) > _MOST_INSIDE:
        raise BuildError(f"{len(block.content)} bytes of weights are too many for the library itself; leave them beside it")
    interface = _interface(program, called, target, symbols, first, block, weights_inside)

    def compiled(variants: list[Variant], machine: Target) -> tuple[bytes, list[str]]:
        library = Library(called, symbols, variants, block, weights_inside, wasm)
        texts = {key: text for v in variants for key, text in v.texts.items()}
        report(f"{len(texts)} kernels in {len(variants)} plans for {machine.name}")
        return code.object_of(library.text(), texts.values(), library.exported(), machine), library.exported()

    content, exported = compiled(variants, machine)
    if wasm:
        contents = {".wasm": content}
        if target == "wasm32":  # and once more for engines with relaxed multiply-adds
            relaxed = Target.named("wasm32-relaxed")
            contents[".relaxed.wasm"] = compiled(cover(symbols, partial(make, program, target=relaxed), agree, lambda text: None), relaxed)[0]
        return _web(Path(os.fspath(out)), interface, machine, contents, block.content, exported)
    return _native(Path(os.fspath(out)), interface, machine, content, block.content)


def check(target: str) -> None:
    """ValueError for a target that is not known, BuildError if there is no linker for it here: it is better told before the plans are made."""
    if target == _WEBGPU:
        return
    try:
        link.check(Target.named(target))
    except ValueError as error:
        raise ValueError(f"{error}, {_WEBGPU}") from None


def _interface(
    program: ExportedProgram, name: str, target: str, symbols: tuple[Symbol, ...], first: Recorded, block: weights.Weights, inside: bool
) -> Interface:  # fmt: skip
    """What callers see of a program."""
    given = [s.arg.name for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    tensors = [n for n, call in zip(given, _user_calls(program), strict=True) if call]
    inputs = tuple([argument(n, m.shape, m.dtype, symbols) for n, m in zip(tensors, first.input_metas, strict=True)])
    results = [s.arg.name for s in program.graph_signature.output_specs]
    outputs = tuple([argument(n, m.shape, m.dtype, symbols) for n, m in zip(results, first.output_metas, strict=True)])
    return Interface(name, target, symbols, inputs, outputs, len(block.content), inside)


def _user_calls(program: ExportedProgram) -> list[bool]:
    """Of each of the user's inputs, whether it is a tensor."""
    from flambeau.tensor import Tensor

    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    specs = program.graph_signature.input_specs
    return [isinstance(n.meta.get("val"), Tensor) for n, s in zip(nodes, specs, strict=True) if s.kind is InputKind.USER_INPUT]


def _native(folder: Path, x: Interface, target: Target, content: bytes, block: bytes) -> list[Path]:
    """Write the folder of a native library."""
    folder.mkdir(parents=True, exist_ok=True)
    shared, static = f"lib{x.name}{link.suffix(target)}", f"lib{x.name}.a"
    with tempfile.TemporaryDirectory() as temporary:
        own = Path(temporary)
        (own / f"{x.name}.o").write_bytes(content)
        link.shared(own / f"{x.name}.o", own / shared, target)
        link.archive(own / f"{x.name}.o", own / static, target)
        files: dict[str, bytes] = {
            shared: (own / shared).read_bytes(), static: (own / static).read_bytes(), f"{x.name}.h": header.header(x).encode(),
            "CMakeLists.txt": header.cmake(x, shared).encode(), "example.c": examples.in_c(x).encode(), "example.rs": examples.in_rust(x).encode(),
            f"{x.name}.py": python_loader.module(x, shared).encode(),
        }  # fmt: skip
    if not x.inside:
        files[f"{x.name}.weights"] = block
    return write(folder, files)


def _web(folder: Path, x: Interface, target: Target, contents: dict[str, bytes], block: bytes, exported: list[str]) -> list[Path]:
    """Write the folder of a WebAssembly library: what npm takes. `contents`: object files by the ending of what is made of each."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory() as temporary:
        own = Path(temporary)
        for ending, content in contents.items():
            (own / "code.o").write_bytes(content)
            link.wasm(own / "code.o", own / "code.wasm", exported, target, _STACK)
            files[x.name + ending] = (own / "code.wasm").read_bytes()
    if not x.inside:
        files[f"{x.name}.weights"] = block
    module = {f"{x.name}.mjs": web_module.module(x, ".relaxed.wasm" in contents), f"{x.name}.d.mts": web_module.types(x)}
    files |= {name: text.encode() for name, text in {**module, "package.json": web_module.package(x, [*module, *files])}.items()}
    return write(folder, files)


def write(folder: Path, files: dict[str, bytes]) -> list[Path]:
    """Write files, each whole or not at all."""
    made = []
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            file.write(content)
        made.append(path)
    return made
