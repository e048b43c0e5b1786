"""What can be set: of the server (options of `flambeau serve`), and of a model (`config.toml` in its folder)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from flambeau.serve.datatypes import TensorSpec

_RUNS: Final = ("auto", "inline", "thread")


@dataclass
class ServerSettings:
    """Of the whole server. Times are in seconds, sizes in bytes."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    workers: int = 1
    threads: int | None = None  # of each worker's kernels; None: the processors divided among the workers
    allow_code: bool = False  # whether model.py is run
    poll: float = 1.0  # how often the folder is looked at; 0: never
    max_body: int = 64 << 20
    max_header: int = 32 << 10
    max_connections: int = 1024
    max_pipelined: int = 16  # requests of one connection that wait for an earlier one
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    idle_timeout: float = 75.0
    write_timeout: float = 30.0  # how long a client may leave an answer unread
    drain_timeout: float = 30.0
    certificate: str | None = None
    key: str | None = None
    tokens: tuple[str, ...] = ()
    log_requests: bool = False

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        for name in ("workers", "max_body", "max_header", "max_connections", "max_pipelined"):
            if getattr(self, name) < 1:
                raise ValueError(f"flambeau serve: {name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if not self.folder.exists():
            raise FileNotFoundError(f"flambeau serve: there is no {self.folder}; give a folder of NAME/VERSION/model.pt2, a .pt2, a .onnx or a checkpoint")
        if not self.folder.is_dir():
            raise NotADirectoryError(f"flambeau serve: {self.folder} is no folder; it must hold models as NAME/VERSION/model.pt2")
        if (self.certificate is None) != (self.key is None):
            raise ValueError("flambeau serve: TLS needs both --certificate and --key")


@dataclass
class ModelSettings:
    """Of one model. `weights`: of its versions, for requests that name none; empty: the newest one has all."""

    max_batch_size: int = 32
    max_delay_ms: float = 0.0
    batching: bool | None = None  # None: if the rows of a batch turn out not to depend on each other
    queue: int = 1024  # requests that wait
    timeout_ms: float = 30_000.0
    max_elements: int = 1 << 24  # of one input
    run: str = "auto"
    versions: Any = "latest"
    weights: dict[str, float] = field(default_factory=dict)
    inputs: list[TensorSpec] = field(default_factory=list)
    outputs: list[TensorSpec] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.run not in _RUNS:
            raise ValueError(f"run = {self.run!r} is none of {', '.join(_RUNS)}")
        if self.max_batch_size < 1 or self.queue < 1 or self.max_elements < 1:
            raise ValueError("max_batch_size, queue and max_elements must be at least 1")
        if self.timeout_ms <= 0 or self.max_delay_ms < 0:
            raise ValueError("timeout_ms must be above 0, max_delay_ms at least 0")
        if self.versions not in ("latest", "all") and not (isinstance(self.versions, list) and all(isinstance(v, int) for v in self.versions)):
            raise ValueError(f'versions = {self.versions!r}: must be "latest", "all" or a list of numbers')
        if any(w < 0 for w in self.weights.values()) or (self.weights and not sum(self.weights.values())):
            raise ValueError(f"weights = {self.weights}: must be at least 0, and not all 0")


def read_model_settings(folder: Path) -> ModelSettings:
    """The settings in a model's `config.toml`, the defaults where it is not there. ValueError that names the file and what is wrong in it."""
    path = folder / "config.toml"
    try:
        given = tomllib.loads(path.read_text())
    except FileNotFoundError:
        return ModelSettings()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    known = {f.name: f for f in fields(ModelSettings)}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ValueError(f"{path}: unknown key {unknown[0]!r}; there are {', '.join(known)}")
    defaults = ModelSettings()
    try:
        for name in ("inputs", "outputs"):
            if name in given:
                given[name] = [_spec(entry) for entry in given[name]]
        for name, value in given.items():
            wanted = getattr(defaults, name)
            kinds: Any = {bool: bool, int: int, float: (int, float), str: str, dict: dict, list: list, type(None): bool}[type(wanted)]
            if name != "versions" and (not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool)):
                raise ValueError(f"{name} = {value!r} is of the wrong kind")
        return ModelSettings(**given)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: {error}") from None


def _spec(entry: Any) -> TensorSpec:
    if not isinstance(entry, dict) or set(entry) != {"name", "datatype", "shape"}:
        raise ValueError(f"an input or output is a table of name, datatype and shape, got {entry!r}")
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= -1 for n in shape):
        raise ValueError(f"shape = {shape!r}: must be a list of sizes, -1 where any is taken")
    return TensorSpec(str(entry["name"]), str(entry["datatype"]), tuple(shape))
