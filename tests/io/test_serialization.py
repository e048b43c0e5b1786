"""torch.serialization beyond plain files: map_location, mmap, tar archives, skipped data, what a crash leaves, settings, names of globals."""

from __future__ import annotations

import collections
import copy
import fractions
import io
import os
import pathlib
import pickle
import signal
import struct
import subprocess
import sys
import tarfile
import time
import warnings

import pytest

import flambeau
from tests import processes
from tests.nn.oracle import torch


def test_map_location(tmp_path):
    base = torch.arange(6.0)
    torch.save({"a": base, "b": base[2:]}, tmp_path / "x.pt")
    seen = []

    def move(storage, location):
        seen.append((type(storage).__name__, storage.nbytes(), location))
        return storage.clone()

    for location in (None, "cpu", flambeau.device("cpu"), {"cuda:0": "cpu", "cpu": "cpu"}, lambda s, loc: s, lambda s, loc: None, move):
        mine = flambeau.load(tmp_path / "x.pt", map_location=location)
        assert mine["b"].tolist() == [2.0, 3.0, 4.0, 5.0]
        mine["a"][2] = 9.0
        assert mine["b"][0] == 9.0
    assert seen == [("UntypedStorage", 24, "cpu")]
    for location in ("cuda", flambeau.device("cuda:1"), {"cpu": "cuda:0"}):
        with pytest.raises(RuntimeError, match="no cuda device"):
            flambeau.load(tmp_path / "x.pt", map_location=location)
    with pytest.raises(TypeError, match="map_location"):
        flambeau.load(tmp_path / "x.pt", map_location=3)


def test_registered_package():
    from flambeau.io import options

    def tagger(storage):
        return "attic" if storage.nbytes() == 8 else None

    def mover(storage, location):
        return storage.clone().fill_(0) if location == "attic" else None

    before = options._packages[:]
    try:
        flambeau.serialization.register_package(5, tagger, mover)
        file = io.BytesIO()
        flambeau.save([flambeau.ones(2), flambeau.ones(3)], file)
        file.seek(0)
        assert [t.tolist() for t in flambeau.load(file)] == [[0, 0], [1, 1, 1]]
    finally:
        options._packages[:] = before


@pytest.mark.parametrize("writer", [torch, flambeau])
def test_mmap(tmp_path, writer):
    path = tmp_path / "m.pt"
    base = writer.arange(3000.0).reshape(30, 100)
    writer.save({"a": base, "t": base.t()[3:], "b": writer.ones(3, dtype=writer.bool), "e": writer.zeros(0), "d": writer.zeros(2).double()}, path)
    mine = flambeau.load(path, mmap=True)
    assert mine["a"].tolist() == base.tolist() and mine["t"].tolist() == base.t()[3:].tolist()
    assert mine["b"].tolist() == [True] * 3 and mine["e"].numel() == 0
    mapped = mine["a"].untyped_storage().data_ptr()
    regions = [line.split()[0].split("-") for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if str(path) in line]
    assert any(int(start, 16) <= mapped < int(end, 16) for start, end in regions)
    mine["a"].add_(1)  # stays in memory
    assert mine["t"][0, 0] == 4.0 and float((mine["a"] @ mine["a"].t())[0, 0]) == pytest.approx(sum(i * i for i in range(1, 101)))
    assert torch.load(path)["a"][0, 0] == 0.0
    with flambeau.serialization.set_default_mmap_options(flambeau.serialization.MAP_SHARED):
        assert flambeau.serialization.get_default_mmap_options() == flambeau.serialization.MAP_SHARED
        flambeau.load(path, mmap=True)["a"].fill_(7)
    assert torch.load(path)["a"].eq(7).all()  # went into the file
    with pytest.raises(ValueError, match="file path"):
        flambeau.load(io.BytesIO(path.read_bytes()), mmap=True)
    torch.save(torch.ones(2), path, _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        flambeau.load(path, mmap=True)


def tar_checkpoint(path):
    """A file as PyTorch before 0.1.10 wrote it, and as torch.load still reads it: two tensors over one storage, and a view of a part."""

    def member(archive, name, data):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))

    def tensor(key, storage, sizes, strides, offset):
        return pickle.dumps((key, storage, torch.FloatTensor), 2) + struct.pack(f"<i4x{len(sizes)}q{len(sizes)}qq", len(sizes), *sizes, *strides, offset)

    values = struct.pack("<q6f", 6, *range(6))
    storages = pickle.dumps(1, 2) + pickle.dumps((1, "cpu", torch.FloatStorage), 2) + values + pickle.dumps([(2, 1, 2, 3)], 2)
    tensors = pickle.dumps(2, 2) + tensor(7, 1, (2, 3), (3, 1), 0) + tensor(8, 2, (3,), (1,), 0)
    out = io.BytesIO()

    class Pickler(pickle._Pickler):
        def persistent_id(self, obj):
            return str(obj.key) if isinstance(obj, Key) else None

    Pickler(out, 2).dump(collections.OrderedDict(a=Key(7), b=Key(8), n=3))
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member(archive, "storages", storages)
        member(archive, "tensors", tensors)
        member(archive, "pickle", out.getvalue())


class Key:
    def __init__(self, key):
        self.key = key


def test_tar_archives(tmp_path):
    tar_checkpoint(tmp_path / "old.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = torch.load(tmp_path / "old.pt", weights_only=False)
        mine = flambeau.load(tmp_path / "old.pt", weights_only=False)
    assert list(mine) == list(theirs) and mine["n"] == 3
    assert mine["a"].tolist() == theirs["a"].tolist() and mine["b"].tolist() == theirs["b"].tolist() == [2.0, 3.0, 4.0]
    mine["a"].zero_()
    assert mine["b"].tolist() == [0.0] * 3
    with pytest.raises(RuntimeError, match="weights_only=True"):
        flambeau.load(tmp_path / "old.pt")
    with tarfile.open(tmp_path / "no.pt", "w") as archive:
        archive.add(tmp_path / "old.pt", "other")
    with pytest.raises(RuntimeError, match="tar archive"):
        flambeau.load(tmp_path / "no.pt", weights_only=False)


def test_storages_travel(tmp_path):
    t = flambeau.arange(4.0)
    flambeau.save({"typed": flambeau.FloatStorage([1, 2]), "bytes": flambeau.UntypedStorage([3, 4])}, tmp_path / "s.pt")
    for module in (flambeau, torch):
        found = module.load(tmp_path / "s.pt")
        assert found["typed"].tolist() == [1.0, 2.0] and list(found["bytes"]) == [3, 4]
    torch.save({"typed": torch.DoubleStorage([1, 2]), "t": torch.ones(2)}, tmp_path / "s.pt")
    found = flambeau.load(tmp_path / "s.pt")
    assert isinstance(found["typed"], flambeau.DoubleStorage) and found["typed"].tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="different types"):
        flambeau.save([t, flambeau.empty(0, dtype=flambeau.int32).set_(t.untyped_storage())], tmp_path / "s.pt")


def test_attributes_and_subclasses(tmp_path):
    p = flambeau.nn.Parameter(flambeau.ones(2))
    p.role = "bias"
    t = flambeau.zeros(2)
    t.tag = 3
    flambeau.save([p, t], tmp_path / "a.pt")
    mine, theirs = flambeau.load(tmp_path / "a.pt"), torch.load(tmp_path / "a.pt")
    for q, u in (mine, theirs):
        assert q.role == "bias" and u.tag == 3 and q.requires_grad
    flambeau.save(flambeau.nn.Buffer(flambeau.ones(2), persistent=False), tmp_path / "c.pt")
    for module in (torch, flambeau):
        buffer = module.load(tmp_path / "c.pt")
        assert isinstance(buffer, module.nn.Buffer) and buffer.persistent is False and buffer.tolist() == [1.0, 1.0]
    torch.save(buffer := torch.nn.Buffer(torch.zeros(1)), tmp_path / "c.pt")
    assert isinstance(flambeau.load(tmp_path / "c.pt"), flambeau.nn.Buffer) and buffer.persistent
    torch.save(theirs, tmp_path / "b.pt")
    q, u = flambeau.load(tmp_path / "b.pt")
    assert q.role == "bias" and u.tag == 3 and isinstance(q, flambeau.nn.Parameter)


class Metres(flambeau.Tensor):
    """A subclass of a user's."""


def test_subclasses_of_users(tmp_path):
    t = flambeau.ones(2).as_subclass(Metres)
    t.unit = "m"
    flambeau.save([t, t[:1]], tmp_path / "s.pt")
    with pytest.raises(pickle.UnpicklingError, match="Metres"):
        flambeau.load(tmp_path / "s.pt")
    with flambeau.serialization.safe_globals([Metres]):
        a, b = flambeau.load(tmp_path / "s.pt")
    assert type(a) is type(b) is Metres and a.unit == "m" and a.tolist() == [1.0, 1.0]
    a.zero_()
    assert b.tolist() == [0.0]  # they still share memory
    with pytest.warns(UserWarning, match="Metres"):
        (c, _) = flambeau.load(tmp_path / "s.pt", weights_only=False)
    assert type(c) is Metres and c.unit == "m"
    d = copy.deepcopy(t)
    e = pickle.loads(pickle.dumps(t))
    assert type(d) is type(e) is Metres and d.unit == e.unit == "m" and d.data_ptr() != t.data_ptr()


def test_skip_data(tmp_path):
    with flambeau.serialization.skip_data():
        flambeau.save(flambeau.ones(3), tmp_path / "z.pt")
        assert flambeau.load(tmp_path / "z.pt").shape == (3,)
    assert torch.load(tmp_path / "z.pt").tolist() == [0.0] * 3


def test_settings():
    ours, theirs = flambeau.serialization, torch.serialization
    assert ours.get_crc32_options() is theirs.get_crc32_options() is True
    assert ours.get_default_load_endianness() is None
    ours.set_default_load_endianness(ours.LoadEndianness.BIG)
    try:
        assert ours.get_default_load_endianness() is ours.LoadEndianness.BIG
    finally:
        ours.set_default_load_endianness(None)
    for module in (ours, theirs):
        with pytest.raises(TypeError):
            module.set_default_load_endianness("big")
        with pytest.raises(ValueError, match="mmap"):
            module.set_default_mmap_options(77)
    version = type("M", (), {"__version__": "1.12.3", "__name__": "m"})
    for required in ((1, 11), (1, 12, 4), (1, 12, 3), (0, 3, 1)):
        assert ours.check_module_version_greater_or_equal(version, required) == theirs.check_module_version_greater_or_equal(version, required)
    assert ours.normalize_storage_type(flambeau.FloatStorage) is flambeau.FloatStorage
    assert ours.location_tag(flambeau.ones(1).untyped_storage()) == "cpu"
    with ours.mkdtemp() as folder:
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)


def test_names_of_unsafe_globals(tmp_path):
    torch.save({"t": torch.ones(2), "f": fractions.Fraction(1, 2), "m": torch.nn.Linear(1, 1)}, tmp_path / "u.pt")
    theirs = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "u.pt"))
    assert flambeau.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "u.pt") == theirs == [
        "fractions.Fraction", "torch.nn.modules.linear.Linear"
    ]  # fmt: skip
    flambeau.save({"f": fractions.Fraction(1, 2), "g": fractions.Fraction}, tmp_path / "v.pt", pickle_protocol=4)
    assert flambeau.serialization.get_unsafe_globals_in_checkpoint(str(tmp_path / "v.pt")) == ["fractions.Fraction"]
    with pytest.raises(pickle.UnpicklingError) as ours:
        flambeau.load(tmp_path / "u.pt")
    with pytest.raises(pickle.UnpicklingError) as theirs:
        torch.load(tmp_path / "u.pt")
    line = "WeightsUnpickler error: Unsupported global: GLOBAL fractions.Fraction was not an allowed global by default."
    assert line in str(ours.value) and line in str(theirs.value)
    with flambeau.serialization.safe_globals([os.system]), pytest.raises(pickle.UnpicklingError, match="whose module posix is blocked"):
        file = io.BytesIO()
        torch.save({"x": os.system}, file)
        flambeau.load(io.BytesIO(file.getvalue()))


def test_whole_modules_warn(tmp_path, monkeypatch):
    flambeau.save(flambeau.nn.Linear(2, 2), tmp_path / "m.pt")
    with pytest.warns(UserWarning, match=r"weights_only=False.*torch\.nn\.modules\.linear\.Linear"):
        module = flambeau.load(tmp_path / "m.pt", weights_only=False)
    assert module(flambeau.ones(1, 2)).shape == (1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flambeau.save(module.state_dict(), tmp_path / "s.pt")
        flambeau.load(tmp_path / "s.pt", weights_only=False)  # names nothing but tensors
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(pickle.UnpicklingError):
        flambeau.load(tmp_path / "m.pt", weights_only=False)
    optimizer = torch.optim.RMSprop([torch.nn.Parameter(torch.ones(1))])  # lies in another file here
    torch.save(optimizer.param_groups, tmp_path / "o.pt")
    assert flambeau.load(tmp_path / "o.pt")[0]["lr"] == 0.01


def test_safetensors_by_load(tmp_path):
    from flambeau.io import safetensors

    safetensors.save_file({"a": flambeau.ones(2)}, tmp_path / "x.safetensors")
    assert flambeau.load(tmp_path / "x.safetensors")["a"].tolist() == [1.0, 1.0]


_SAVER = """
import sys, flambeau
big = flambeau.ones(4_000_000)
flambeau.save(flambeau.full((4_000_000,), 2.0), sys.argv[1])
print("ready", flush=True)
while True:
    big.add_(1)
    flambeau.save(big, sys.argv[1])
"""


def test_a_killed_save_leaves_a_whole_file(tmp_path):
    """Whatever moment the process dies at, the file under the path is one of those that were saved."""
    path = tmp_path / "w.pt"
    for delay in (0.01, 0.04, 0.09):
        process = processes.popen([sys.executable, "-c", _SAVER, str(path)], stdout=subprocess.PIPE, text=True)
        assert processes.line_of(process) == "ready\n"
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        t = torch.load(path, weights_only=True)
        assert t.numel() == 4_000_000 and t.min() == t.max() >= 1
