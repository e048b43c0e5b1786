"""`.pt2` files: a ZIP archive with the program as JSON and the tensors as raw bytes. Nothing in one is executed."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
from typing import Any, Final

import flambeau
from flambeau.export import codes, reading, writing
from flambeau.export.program import ExportedProgram
from flambeau.io.checkpoint import record
from flambeau.io.storage_bytes import bytes_of, check_layout, storage_from, storage_of, tensor_over
from flambeau.nn.parameter import Parameter
from flambeau.runtime import shared_memory, whole_files
from flambeau.runtime.buffers import foreign
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here
from flambeau.trace.storage import Storage

VOCABULARY: Final = "vocabulary.json"  # an extra file that says what text the tokens of a language model are (serve/text.py)
_MOST_JSON: Final = 1 << 30  # bytes of the program's text that are read


def save(
    ep: ExportedProgram, f: Any, *, extra_files: dict[str, Any] | None = None, opset_version: dict[str, int] | None = None, pickle_protocol: int = 2
) -> None:
    """Write a program to a path or a binary file object, as PyTorch's torch.export.load reads it. A path gets its content at the end, by a rename."""
    if not isinstance(ep, ExportedProgram):
        raise TypeError(f"The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' instead.")
    if hasattr(f, "write"):
        made = io.BytesIO()
        _write(ep, made, extra_files, "archive")
        f.write(made.getvalue())
        return
    path = os.fspath(f)
    if not path.endswith(".pt2"):
        warn_here(f"Expect archive file to be a file ending in .pt2, or is a buffer. Instead got {path}")
    with whole_files.replacing(path) as file:
        _write(ep, file, extra_files, os.path.splitext(os.path.basename(path))[0] or "archive")


def _write(ep: ExportedProgram, file: Any, extra_files: dict[str, Any] | None, stem: str) -> None:
    text = json.dumps(writing.document(ep), allow_nan=False)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:

        def put(name: str, data: Any) -> None:
            record(archive, f"{stem}/{name}", data)

        _tensors(put, "weights", "weight", {n: ep.state_dict[n] for n in ep.state_dict})
        _tensors(put, "constants", "tensor", ep.constants)
        put("models/model.json", text.encode())
        put("data/sample_inputs/model.pt", _sample(ep.example_inputs))
        for name, content in (extra_files or {}).items():
            put(f"extra/{name}", content if isinstance(content, bytes) else str(content).encode())
        put("archive_format", b"pt2")
        put("archive_version", b"0")
        put(".data/version", b"6\n")
        put("byteorder", b"little")


def _sample(example: Any) -> bytes:
    if example is None:
        return b""
    made = io.BytesIO()
    flambeau.save(example, made)
    return made.getvalue()


def _tensors(put: Any, folder: str, stem: str, tensors: dict[str, Any]) -> None:
    """The bytes of each storage once, and the list of the tensors over them."""
    config: dict[str, Any] = {}
    files: dict[int, str] = {}
    for name, t in tensors.items():
        plain = t.detach()
        storage = storage_of(plain)
        if id(storage) not in files:
            files[id(storage)] = f"{stem}_{len(files)}"
            put(f"data/{folder}/{files[id(storage)]}", memoryview(bytes_of(storage)) if storage.buffer and storage.buffer.nbytes else b"")
        layout = writing.tensor_meta(plain, bool(t.requires_grad))
        layout["storage_offset"] = {"as_int": plain.storage_offset()}
        config[name] = {"path_name": files[id(storage)], "is_param": isinstance(t, Parameter), "use_pickle": False, "tensor_meta": layout}
    put(f"data/{folder}/model_{folder}_config.json", json.dumps({"config": config}).encode())


def load(f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: dict[str, int] | None = None) -> ExportedProgram:
    """Read a program that torch.export.save wrote, here or in PyTorch. Pickled objects in a file are refused (RuntimeError, ValueError)."""
    if hasattr(f, "read"):
        return _read(f, extra_files)
    with open(os.fspath(f), "rb") as file:
        return _read(file, extra_files)


def load_mapped(path: str | os.PathLike[str]) -> ExportedProgram:
    """`load`, with the tensors' bytes mapped from the file: processes that load the same file share them.

    Writes to a tensor stay in this process. The file must not be changed in place while the program lives; replace it by a rename.
    """
    with open(path, "rb") as file:
        return _read(file, None, os.fspath(path))


def _read(file: Any, extra_files: dict[str, Any] | None, mapped: str | None = None) -> ExportedProgram:
    try:
        with zipfile.ZipFile(file) as archive:
            return _program(archive, extra_files, None if mapped is None else _Mapped(archive, file, mapped))
    except zipfile.BadZipFile as error:
        raise RuntimeError(f"torch.export.load: this is no .pt2 file: {error}") from None
    except (KeyError, TypeError, IndexError, AttributeError, AssertionError, RecursionError, json.JSONDecodeError) as error:
        raise ValueError(f"torch.export.load: the file's program is not what the format says ({type(error).__name__}: {error})") from error


def extra_file(path: str | os.PathLike[str], name: str) -> bytes | None:
    """The file that `save` was given under this name; None if there is none."""
    with zipfile.ZipFile(path) as archive:
        found = next((n for n in archive.namelist() if n.endswith(f"/extra/{name}")), None)
        return None if found is None else archive.read(found)


class _Mapped:
    """Records of an archive as storages over a mapping of its file."""

    def __init__(self, archive: zipfile.ZipFile, file: Any, path: str) -> None:
        self.archive, self.file = archive, file
        self.whole = shared_memory.from_file(path, False, file.seek(0, os.SEEK_END)).buffer()

    def storage(self, name: str) -> Storage | None:
        """A record's storage; None where it does not lie at a multiple of 64 bytes, so that it must be read."""
        info = self.archive.getinfo(name)
        self.file.seek(info.header_offset + 26)  # the lengths of name and extra field, which stand before the data
        start = info.header_offset + 30 + sum(struct.unpack("<HH", self.file.read(4)))
        if start % 64 or not info.file_size:
            return None
        if start + info.file_size > self.whole.nbytes:
            raise RuntimeError(f"torch.export.load: the record {name!r} lies outside the file: it is damaged")
        return Storage(foreign(self.whole.address + start, info.file_size, self.whole))


def _program(archive: zipfile.ZipFile, extra_files: dict[str, Any] | None, mapped: _Mapped | None = None) -> ExportedProgram:
    names = archive.namelist()
    stem = next((n.rpartition("archive_format")[0] for n in names if n.endswith("archive_format")), None)
    if stem is None:
        raise RuntimeError("torch.export.load: this is no .pt2 file: it has no record archive_format")

    def check(name: str) -> zipfile.ZipInfo:
        try:
            info = archive.getinfo(stem + name)
        except KeyError:
            raise RuntimeError(f"torch.export.load: the file has no record {name}") from None
        if info.compress_type != zipfile.ZIP_STORED:
            raise RuntimeError(f"torch.export.load: the record {name} is compressed, which .pt2 files are not")
        return info

    def get(name: str) -> bytes:
        return archive.read(check(name))

    version = get("archive_version").decode(errors="replace").strip()
    if version != "0":
        raise ValueError(f"Saved archive version {version} does not match our current archive version 0.")
    if f"{stem}byteorder" in names and get("byteorder") != b"little":
        raise NotImplementedError("torch.export.load: the file's tensors are big-endian")
    models = [n for n in names if n.startswith(f"{stem}models/") and n.endswith(".json")]
    if not models:
        raise RuntimeError("torch.export.load: the file has no record models/model.json: it holds no exported program")
    name = f"{stem}models/model.json" if f"{stem}models/model.json" in models else models[0]
    if archive.getinfo(name).file_size > _MOST_JSON:
        raise RuntimeError("torch.export.load: the program's text is longer than 1 GiB")
    model = name[len(stem) + len("models/") : -len(".json")]
    data = json.loads(archive.read(name))

    def storage(name: str) -> Storage:
        check(name)
        found = None if mapped is None else mapped.storage(stem + name)
        return storage_from(get(name)) if found is None else found

    state = _read_tensors(get, storage, "weights", model)
    constants = _read_tensors(get, storage, "constants", model)
    example = None
    if f"{stem}data/sample_inputs/{model}.pt" in names:
        sample = get(f"data/sample_inputs/{model}.pt")
        try:
            example = flambeau.load(io.BytesIO(sample)) if sample else None
        except Exception as error:  # they are of no use to the program
            warn_here(f"torch.export.load: the file's example inputs are left out: {error}")
    if extra_files is not None:
        for key in extra_files:
            extra_files[key] = get(f"extra/{key}").decode()
    return reading.program_of(data, state, constants, example)


def _read_tensors(get: Any, storage_of_record: Any, folder: str, model: str) -> dict[str, Any]:
    config = json.loads(get(f"data/{folder}/{model}_{folder}_config.json"))["config"]
    storages: dict[str, Storage] = {}
    found: dict[str, Any] = {}
    for name, entry in config.items():
        if entry["use_pickle"] or entry["tensor_meta"] is None:
            raise RuntimeError(f"torch.export.load: {name!r} is a pickled object, which could execute anything: it is not read")
        m, path = entry["tensor_meta"], entry["path_name"]
        if "/" in path or path in ("", ".", ".."):
            raise ValueError(f"torch.export.load: {path!r} is no name of a record")
        if path not in storages:
            storages[path] = storage_of_record(f"data/{folder}/{path}")
        kind = codes.dtype_of(m["dtype"])
        size, stride = [s["as_int"] for s in m["sizes"]], [s["as_int"] for s in m["strides"]]
        offset = m["storage_offset"]["as_int"]
        storage = storages[path]
        nbytes = storage.buffer.nbytes if storage.buffer is not None else 0
        wrong = check_layout(nbytes // kind.itemsize, size, stride, offset)
        if wrong is not None and math.prod(size):
            raise RuntimeError(f"torch.export.load: {name!r}: {wrong}")
        t: Tensor = tensor_over(storage, kind, size, stride, offset) if math.prod(size) else flambeau.empty(size, dtype=kind)
        if entry["is_param"]:
            found[name] = Parameter(t, requires_grad=bool(m["requires_grad"]))
        else:
            found[name] = t
    return found
