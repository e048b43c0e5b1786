"""The folder of models: what is in it, loading with a warm-up, and changes while the server runs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import numpy as np

from flambeau.serve import programs, text
from flambeau.serve.batching import INLINE_SECONDS, Batcher
from flambeau.serve.errors import NotFound, Unavailable
from flambeau.serve.language import LanguageModel, Scheduler
from flambeau.serve.settings import ModelSettings, ServerSettings, read_model_settings
from flambeau.serve.versions import Model, Version

log = logging.getLogger("flambeau.serve")

_FILES: Final = ("model.pt2", "model.onnx", "model.py")
Signature = tuple[Any, ...]


def batch_sizes(most: int) -> list[int]:
    """The batch sizes that get a plan: every size up to 4, then 6, 8, 12, 16, 24, ... A batch between two is padded to the next, by a third at most."""
    sizes = [n for n in (1, 2, 3, 4) if n <= most]
    n = 4
    while n < most:
        sizes += [m for m in (n + n // 2, 2 * n) if m <= most]
        n *= 2
    return sizes if sizes[-1] == most else [*sizes, most]


def _signature(folder: Path) -> Signature:
    """Name, size and time of each file of a version: what changes when it does."""
    found = []
    for root, _, files in os.walk(folder):
        for name in sorted(files):
            if name.startswith(".") or name.endswith((".tmp", ".flambeau-part", ".pyc")):
                continue
            s = os.stat(os.path.join(root, name))
            found.append((os.path.relpath(os.path.join(root, name), folder), s.st_size, s.st_mtime_ns, s.st_ino))
    return tuple(sorted(found))


class Found:
    """What a look at the folder of one model found."""

    def __init__(self, folder: Path) -> None:
        self.settings: ModelSettings | None = None
        self.failure = ""
        config = folder / "config.toml"
        self.config: Signature = ()
        try:
            self.config = (config.stat().st_size, config.stat().st_mtime_ns) if config.exists() else ()
            self.settings = read_model_settings(folder)
        except (ValueError, OSError) as error:
            self.failure = str(error)
        numbers = sorted([int(p.name) for p in folder.iterdir() if p.is_dir() and p.name.isdecimal()])
        numbers = [n for n in numbers if (folder / str(n)).is_dir() and any((folder / str(n) / f).is_file() for f in _FILES)]
        if self.settings is not None:
            wanted = self.settings.versions
            named = [int(n) for n in self.settings.weights if n.isdecimal()]
            if named and wanted == "latest":
                numbers = [n for n in numbers if n in named] or numbers[-1:]
            elif wanted == "latest":
                numbers = numbers[-1:]
            elif wanted != "all":
                numbers = [n for n in numbers if n in wanted]
        self.versions = {n: (_signature(folder / str(n)), self.config) for n in numbers}


def look(folder: Path) -> dict[str, Found]:
    """All models of a folder, by name."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_dir():
            continue
        try:
            made = Found(path)
        except OSError as error:  # it has just gone
            log.warning("look failed", extra={"fields": {"model": path.name, "error": str(error)}})
            continue
        if made.versions or made.settings is None:
            found[path.name] = made
    return found


class Repository:
    """The models that are served. `models` is replaced as a whole when something has changed."""

    def __init__(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop, metrics: Any) -> None:
        self.settings, self.loop, self.metrics = settings, loop, metrics
        self.models: dict[str, Model] = {}
        self.loaded = False  # whether all that was there at the start has been tried
        self._last: dict[str, dict[int, Any]] = {}
        self._failed: dict[tuple[str, int], Any] = {}  # what could not be loaded, so that it is tried again only when it has changed
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="flambeau-loader")
        self._busy = asyncio.Lock()

    def model(self, name: str) -> Model:
        """A model by name; NotFound, or Unavailable while it may still be on its way."""
        found = self.models.get(name)
        if found is None and not self.loaded:
            raise Unavailable(f"the model {name[:100]!r} is not there yet: models are being loaded, and /v2/health/ready says when that is done")
        if found is None:
            raise NotFound(f"there is no model {name[:100]!r}; there are {', '.join(self.models) or 'none'}")
        return found

    async def refresh(self, settled: bool = True) -> None:
        """Look at the folder; load what is new or has changed, warm it up, then let it take the place of the old. `settled`: only what has not changed
        since the last look, so that nothing is read that is still being written."""
        async with self._busy:
            found = await self.loop.run_in_executor(self._loader, look, self.settings.folder)
            before, self._last = self._last, {name: f.versions for name, f in found.items()}
            for name, f in found.items():
                await self._refresh_model(name, f, before.get(name, {}) if settled else f.versions)
            for name in [n for n in self.models if n not in found]:
                gone = self.models[name]
                self.models = {n: m for n, m in self.models.items() if n != name}
                log.info("model unloaded", extra={"fields": {"model": name}})
                for version in gone.versions.values():
                    version.close()
            self.loaded = True

    async def _refresh_model(self, name: str, found: Found, before: dict[int, Any]) -> None:
        old = self.models.get(name)
        if found.settings is None:
            if old is None or old.failure != found.failure:
                log.error("settings refused", extra={"fields": {"model": name, "error": found.failure}})
            if old is None:
                self.models = {**self.models, name: (old := Model(name, ModelSettings()))}
            old.failure = found.failure  # what ran before goes on
            return
        made = Model(name, found.settings)
        changed = old is None or old.settings != found.settings
        for number, signature in found.versions.items():
            current = old.versions.get(number) if old is not None else None
            if current is not None and current.signature == signature:
                made.versions[number] = current
                continue
            if self._failed.get((name, number)) == signature or before.get(number) != signature:
                if current is not None:
                    made.versions[number] = current
                if old is not None and number in old.failures:
                    made.failures[number] = old.failures[number]
                continue
            changed = True
            begun = perf_counter()
            try:
                load = self._load
                version = await self.loop.run_in_executor(self._loader, load, name, number, signature, found.settings)
                await version.observed.pop("start")()
                made.versions[number] = version
                self._failed.pop((name, number), None)
                self.metrics.loaded(name, number, True)
                log.info("model loaded", extra={"fields": {"model": name, "version": number, "seconds": round(perf_counter() - begun, 3), **version.observed}})
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
                made.failures[number] = why
                self._failed[name, number] = signature
                self.metrics.loaded(name, number, False)
                log.error("model refused", extra={"fields": {"model": name, "version": number, "error": why}})
                if current is not None:
                    made.versions[number] = current
        if not made.versions and old is not None and old.versions:  # a new version that cannot be loaded does not take the old one's place
            made.versions = dict(old.versions)
        if not changed and old is not None and old.versions.keys() == made.versions.keys() and old.failures == made.failures:
            old.failure = ""
            return
        self.models = {**self.models, name: made}  # the swap: the next request sees the new state
        kept = {id(v) for v in made.versions.values()}
        for version in old.versions.values() if old is not None else ():
            if id(version) not in kept:
                version.close()

    def _load(self, name: str, number: int, signature: Signature, settings: ModelSettings) -> Version:
        """In the loader's thread: read, warm up, see how it is to be run."""
        folder = self.settings.folder / name / str(number)
        made: Any
        if (folder / "model.pt2").is_file():
            made = programs.load_pt2(folder / "model.pt2", mapped=self.settings.workers > 1)
        elif (folder / "model.onnx").is_file():
            made = programs.load_onnx(folder / "model.onnx")
        elif not self.settings.allow_code:
            raise PermissionError("model.py is Python code, which would be executed: start the server with --allow-code")
        else:
            made = programs.load_code(folder / "model.py")
        version = Version(name, number, signature)
        if isinstance(made, LanguageModel):
            begin = self._speaking(version, made, settings.max_batch_size, settings)

            async def only() -> None:
                begin()

            version.observed = {"start": only, "kind": "language model"}
            return version
        program: programs.Program = made
        _rename(program, settings)
        words = None if isinstance(program, programs.CodeProgram) else text.read_text(folder)
        most = min(settings.max_batch_size, program.largest or settings.max_batch_size)
        if not program.batched or settings.batching is False:
            program.batched, most = False, 1
        elif settings.batching is None and not rows_are_independent(program):
            log.warning("no batching", extra={"fields": {"model": name, "version": number, "why": "the rows of a batch depend on each other"}})
            program.batched, most = False, 1
        version.seconds = program.warm_up(batch_sizes(most))
        inline = settings.run == "inline" or (settings.run == "auto" and not isinstance(program, programs.CodeProgram) and version.seconds < INLINE_SECONDS)
        version.program = program
        speaking = None
        if words is not None:
            language = text.LanguageProgram(program, words, batch_sizes(most))
            if language.whole:
                log.warning("no keys and values kept", extra={"fields": {"model": name, "version": number, "why": language.whole}})
            speaking = self._speaking(version, language, most, settings)

        async def start() -> None:
            if speaking is not None:
                speaking()
            version.batcher = Batcher(
                program, self.loop, most=most, delay=settings.max_delay_ms / 1000, room=settings.queue, inline=inline,
                observe=self.metrics.run_observer(name, number), name=name,
            )  # fmt: skip

        version.observed = {"start": start, "batch": most, "inline": inline, "run_seconds": round(version.seconds, 6)}
        return version

    def _speaking(self, version: Version, model: LanguageModel, most: int, settings: ModelSettings) -> Callable[[], None]:
        """Warm a language model up; what begins to serve it."""
        scheduler = Scheduler(model, self.loop, most=most, room=settings.queue, name=version.model)
        model.warm_up()

        def begin() -> None:
            scheduler.start()
            version.language = scheduler

        return begin

    def close(self) -> None:
        """Let everything go."""
        for m in self.models.values():
            for version in m.versions.values():
                version.close()
        self._loader.shutdown(wait=False)


def _rename(program: programs.Program, settings: ModelSettings) -> None:
    """Names and shapes as config.toml wants them. ValueError if they contradict the program's."""
    if settings.output_names:
        if len(settings.output_names) != len(program.outputs):
            raise ValueError(f"output_names has {len(settings.output_names)} names, the model has {len(program.outputs)} outputs")
        program.outputs = [type(s)(n, s.datatype, s.shape) for s, n in zip(program.outputs, settings.output_names, strict=True)]
    for kind in ("inputs", "outputs"):
        wanted, own = getattr(settings, kind), getattr(program, kind)
        if not wanted:
            continue
        if len(wanted) != len(own):
            raise ValueError(f"config.toml lists {len(wanted)} {kind}, the model has {len(own)}")
        for w, o in zip(wanted, own, strict=True):
            if w.datatype != o.datatype or len(w.shape) != len(o.shape) or any(b not in (-1, a) for a, b in zip(w.shape, o.shape, strict=True)):
                raise ValueError(f"config.toml's {w.described()} is not the model's {o.described()}")
        setattr(program, kind, list(wanted))


def rows_are_independent(program: programs.Program) -> bool:
    """Whether each row of a batch gets what it gets alone. If not (a mean over dim 0, say), requests of different clients must not share a batch."""
    alone = [program.sample(1, seed) for seed in range(3)]
    if any(a is None for a in alone):
        return False
    try:
        together = program.run([np.concatenate([a[i] for a in alone if a is not None]) for i in range(len(program.inputs))])
        for row, a in enumerate(alone):
            assert a is not None
            for one, many in zip(program.run(a), together, strict=True):
                if many.shape != (3, *one.shape[1:]):
                    return False
                if one.dtype.kind == "f":
                    coarse = one.dtype.itemsize == 2
                    if not np.allclose(one[0], many[row], rtol=2e-2 if coarse else 1e-4, atol=2e-2 if coarse else 1e-5, equal_nan=True):
                        return False
                elif not np.array_equal(one[0], many[row]):
                    return False
    except Exception as error:
        log.warning("rows not compared", extra={"fields": {"error": f"{type(error).__name__}: {error}"}})
        return False
    return True
