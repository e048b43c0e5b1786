"""Native code: from IR text to an address, by OrcJIT. Process table first, then the disk cache, then LLVM.

LLVM is loaded when the first function is wanted. Floating-point contraction is off: only explicit fma intrinsics fuse.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.runtime import object_cache
from flambeau.statistics import counters

_lock = threading.RLock()
_addresses: dict[str, int] = {}
_trackers: list[Any] = []
_engine: Any = None
_machine: Any = None
_libraries = 0
_library_names: dict[str, str] = {}


def symbol(key: str) -> str:
    """The name under which the module of a key defines its function."""
    return "k_" + hashlib.sha256(key.encode()).hexdigest()[:20]


def _start() -> Any:
    """The JIT of this process, made at the first use."""
    global _engine
    if _engine is None:
        from llvmlite import binding

        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        _engine = binding.create_lljit_compiler(_target_machine())
    return _engine


def _target_machine() -> Any:
    global _machine
    from llvmlite import binding

    # The JIT takes its machine over; the one for compiling is ours.
    made = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=_features(), opt=3, reloc="pic", codemodel="default", jit=True
    )
    return made


def _features() -> str:
    from llvmlite import binding

    return str(binding.get_host_cpu_features().flatten())


def compile_text(text: str) -> bytes:
    """IR text -> object code, optimised for this machine. RuntimeError with the text if LLVM refuses it."""
    from llvmlite import binding

    global _machine
    _start()
    if _machine is None:
        _machine = _target_machine()
    try:
        module = binding.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise RuntimeError(f"flambeau generated IR that LLVM refuses: {error}\n{text}") from None
    options = binding.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    builder = binding.create_pass_builder(_machine, options)
    builder.getModulePassManager().run(module, builder)
    counters.kernels_compiled += 1
    return bytes(_machine.emit_object(module))


def export(key: str, suffix: str) -> int:
    """The address of a further function, `symbol(key) + suffix`, in the module of a key that has been loaded."""
    name = symbol(key) + suffix
    tracker = _engine.lookup(_library_names[symbol(key)], name)
    _trackers.append(tracker)  # LLVM unloads what no tracker holds
    return int(tracker[name])


def _link(objects: Sequence[bytes], names: Sequence[str]) -> list[int]:
    """Load object code and give the addresses of its functions."""
    global _libraries
    from llvmlite import binding

    engine = _start()
    builder = binding.JITLibraryBuilder()
    for content in objects:
        builder.add_object_img(content)
    for name in names:
        builder.export_symbol(name)
    builder.add_current_process()
    _libraries += 1
    library = f"flambeau{_libraries}"
    tracker = builder.link(engine, library)
    _trackers.append(tracker)
    for name in names:
        _library_names[name] = library
    return [tracker[name] for name in names]


def functions(items: Sequence[tuple[str, Callable[[], str]]]) -> list[int]:
    """The addresses of several functions, given as (key, emit); those that are new are linked in one go."""
    found = [_addresses.get(key) for key, _ in items]
    if all(a is not None for a in found):
        counters.kernels_in_process += len(items)
        return found  # type: ignore[return-value]
    with _lock:
        missing: dict[str, bytes] = {}
        for key, emit in items:
            if key in _addresses or key in missing:
                counters.kernels_in_process += 1
                continue
            content = object_cache.load(key)
            if content is None:
                content = compile_text(emit())
                object_cache.store(key, content)
            else:
                counters.kernels_from_disk += 1
            missing[key] = content
        if missing:
            keys = list(missing)
            try:
                linked = _link([missing[k] for k in keys], [symbol(k) for k in keys])
            except RuntimeError:
                linked = [_link_alone(k, missing[k], dict(items)[k]) for k in keys]
            _addresses.update(zip(keys, linked, strict=True))
        return [_addresses[key] for key, _ in items]


def _link_alone(key: str, content: bytes, emit: Callable[[], str]) -> int:
    """One function by itself; an entry of the disk cache that does not link is compiled again."""
    try:
        return _link([content], [symbol(key)])[0]
    except RuntimeError:
        content = compile_text(emit())
        object_cache.store(key, content)
        return _link([content], [symbol(key)])[0]


def function(key: str, emit: Callable[[], str]) -> int:
    """The address of the function of `key`; `emit()` gives its module's text if it has to be compiled."""
    known = _addresses.get(key)
    if known is not None:
        counters.kernels_in_process += 1
        return known
    return functions([(key, emit)])[0]


