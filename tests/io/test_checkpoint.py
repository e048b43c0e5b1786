"""Checkpoints: both directions with PyTorch, sharing, refusal of code, damaged and hostile files."""

from __future__ import annotations

import collections
import fractions
import io
import os
import pickle
import random
import zipfile

import pytest

import flambeau
from flambeau import nn
from tests.nn.oracle import close, torch

DTYPES = "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128".split()


def same_layout(mine, theirs):
    assert tuple(mine.shape) == tuple(theirs.shape) and tuple(mine.stride()) == tuple(theirs.stride())
    assert mine.storage_offset() == theirs.storage_offset() and str(mine.dtype) == str(theirs.dtype)
    assert mine.requires_grad == theirs.requires_grad
    assert mine.detach().tolist() == theirs.detach().tolist()


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("legacy", [False, True])
def test_reads_every_dtype(tmp_path, name, legacy):
    t = (torch.randn(3, 4) * 3).to(getattr(torch, name))
    torch.save(t, tmp_path / "t.pt", _use_new_zipfile_serialization=not legacy)
    same_layout(flambeau.load(tmp_path / "t.pt"), t)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("legacy", [False, True])
def test_writes_every_dtype(tmp_path, name, legacy):
    t = flambeau.arange(6).reshape(2, 3).to(getattr(flambeau, name))
    flambeau.save(t, tmp_path / "t.pt", _use_new_zipfile_serialization=not legacy)
    assert zipfile.is_zipfile(tmp_path / "t.pt") is not legacy
    same_layout(t, torch.load(tmp_path / "t.pt", weights_only=True))
    same_layout(flambeau.load(tmp_path / "t.pt"), t)


def everything():
    base = torch.arange(12.0).view(3, 4)
    return {
        "a": base, "b": base.t(), "c": base[1:, ::2], "p": torch.nn.Parameter(base.clone()), "empty": torch.zeros(0, 3),
        "scalar": torch.tensor(3.0), "plain": [1, 2.5, "x", None, True, (1, 2), {"q": 2**70}, b"bytes", 3j],
        "size": torch.Size([1, 2]), "dtype": torch.float32, "device": torch.device("cpu"),
        "ordered": collections.OrderedDict(a=1), "set": {1, 2}, "counter": collections.Counter([1, 1, 2]),
    }  # fmt: skip


@pytest.mark.parametrize("legacy", [False, True])
def test_reads_structures_and_keeps_sharing(tmp_path, legacy):
    theirs = everything()
    torch.save(theirs, tmp_path / "e.pt", _use_new_zipfile_serialization=not legacy)
    mine = flambeau.load(tmp_path / "e.pt")
    for key in ("a", "b", "c", "p", "empty", "scalar"):
        same_layout(mine[key], theirs[key])
    for key in ("plain", "ordered", "set", "counter"):
        assert mine[key] == theirs[key]
    assert isinstance(mine["p"], nn.Parameter) and mine["dtype"] is flambeau.float32 and tuple(mine["size"]) == (1, 2)
    mine["a"][1, 2] = 99.0
    assert mine["b"][2, 1].item() == 99.0 and mine["c"][0, 1].item() == 99.0


@pytest.mark.parametrize("legacy", [False, True])
def test_writes_structures_and_keeps_sharing(tmp_path, legacy):
    x = flambeau.arange(12.0).reshape(3, 4)
    things = {"x": x, "t": x.t(), "part": x[1:, ::2], "size": x.shape, "dtype": flambeau.int64}
    flambeau.save(things, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
    theirs = torch.load(tmp_path / "w.pt", weights_only=True)
    same_layout(x, theirs["x"])
    same_layout(x[1:, ::2], theirs["part"])
    theirs["x"][0, 1] = 7
    assert theirs["t"][1, 0] == 7 and theirs["size"] == torch.Size([3, 4]) and theirs["dtype"] is torch.int64
    mine = flambeau.load(tmp_path / "w.pt")
    mine["x"][1, 2] = 7
    assert mine["part"][0, 1].item() == 7
    if not legacy:
        torch.load(tmp_path / "w.pt", mmap=True)  # records are aligned


def test_a_legacy_file_of_a_module_and_an_optimizer():
    layer, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer = flambeau.optim.Adam(layer.parameters())
    layer(flambeau.ones(3)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    flambeau.save({"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "empty": flambeau.ones(0)}, file, _use_new_zipfile_serialization=False)
    file.seek(0)
    read = torch.load(file, weights_only=True)
    theirs.load_state_dict(read["model"])
    torch.optim.Adam(theirs.parameters()).load_state_dict(read["optimizer"])
    same_layout(layer.weight, theirs.weight)
    assert read["empty"].shape == (0,)


def test_networks_and_optimizers_travel_both_ways(tmp_path):
    theirs = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    optimizer = torch.optim.Adam(theirs.parameters(), amsgrad=True)
    theirs(torch.randn(2, 1, 4, 4)).sum().backward()
    optimizer.step()
    torch.save({"model": theirs.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    read = flambeau.load(tmp_path / "c.pt")
    mine = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2))
    mine.load_state_dict(read["model"])
    our_optimizer = flambeau.optim.Adam(mine.parameters(), amsgrad=True)
    our_optimizer.load_state_dict(read["optimizer"])
    flambeau.save({"model": mine.state_dict(), "optimizer": our_optimizer.state_dict()}, tmp_path / "d.pt")
    back = torch.load(tmp_path / "d.pt", weights_only=True)
    assert list(back["model"]) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(back["model"][key], value, rtol=0, atol=0)
    optimizer.load_state_dict(back["optimizer"])
    theirs.load_state_dict(back["model"])


def test_file_objects():
    x = flambeau.arange(5)
    file = io.BytesIO()
    flambeau.save(x, file)
    file.seek(0)
    assert flambeau.load(file).tolist() == x.tolist()
    file.seek(0)
    assert torch.load(file).tolist() == x.tolist()


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.pt"
    flambeau.save(flambeau.ones(2), path)
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        flambeau.save({"f": lambda: 0}, path)
    assert flambeau.load(path).tolist() == [1.0, 1.0] and os.listdir(tmp_path) == ["x.pt"]


class Evil:
    def __reduce__(self):
        return os.system, ("echo this must not run > PWNED",)


@pytest.mark.parametrize("legacy", [False, True])
def test_code_is_refused_by_name(tmp_path, legacy, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, "h.pt", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(pickle.UnpicklingError, match=r"GLOBAL (posix|nt)\.system"):
        flambeau.load("h.pt")
    assert not os.path.exists("PWNED")


def test_whole_modules_need_permission(tmp_path):
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 2)), tmp_path / "m.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"torch\.nn\.modules\.container\.Sequential"):
        flambeau.load(tmp_path / "m.pt")
    module = flambeau.load(tmp_path / "m.pt", weights_only=False)
    assert isinstance(module, nn.Sequential) and isinstance(module[0], nn.Linear)
    flambeau.save(module, tmp_path / "n.pt")
    again = torch.load(tmp_path / "n.pt", weights_only=False)
    x = torch.ones(1, 3)
    close(module(flambeau.ones(1, 3)), again(x))


def attempt(data):
    """Reading must end in a value or in one of these; anything else fails the test."""
    try:
        flambeau.load(io.BytesIO(data))
    except (RuntimeError, pickle.UnpicklingError, EOFError):
        return False
    return True


@pytest.mark.parametrize("legacy", [False, True])
def test_damaged_files(legacy):
    file = io.BytesIO()
    torch.save(everything(), file, _use_new_zipfile_serialization=not legacy)
    data = file.getvalue()
    source = random.Random(0)
    failed = 0
    for i in range(150):
        changed = bytearray(data)
        if i % 3 == 0:
            del changed[source.randrange(len(changed)) :]
        for _ in range(source.randrange(1, 6)):
            if changed:
                changed[source.randrange(len(changed))] = source.randrange(256)
        failed += not attempt(bytes(changed))
    assert failed > 100


def test_hostile_pickles():
    file = io.BytesIO()
    flambeau.save(flambeau.arange(12.0).reshape(3, 4).t(), file)
    with zipfile.ZipFile(file) as archive:
        records = {info.filename: archive.read(info) for info in archive.infolist()}
    source = random.Random(1)
    for _ in range(250):
        changed = bytearray(records["archive/data.pkl"])
        for _ in range(source.randrange(1, 4)):
            changed[source.randrange(len(changed))] = source.randrange(256)
        again = io.BytesIO()
        with zipfile.ZipFile(again, "w") as archive:
            for name, data in records.items():
                archive.writestr(name, bytes(changed) if name.endswith("data.pkl") else data)
        attempt(again.getvalue())


@pytest.mark.parametrize("layout", [(0, (4, 4), (4, 1)), (9, (2, 2), (2, 1)), (0, (2, 2), (100, 1)), (-1, (1,), (1,)), (0, (2,), (-1,)), (0, (1 << 62,), (0,))])
def test_tensors_outside_their_storage(layout):
    from flambeau.io.globals import rebuild_tensor

    storage = flambeau.TypedStorage(12, dtype=flambeau.float32)
    offset, size, stride = layout
    if size == (1 << 62,):  # an expanded tensor lies inside, however large it is
        assert rebuild_tensor(storage, offset, size, stride).shape[0] == 1 << 62
        return
    with pytest.raises(pickle.UnpicklingError, match="outside its storage"):
        rebuild_tensor(storage, offset, size, stride)


def test_compressed_records_are_refused():
    again = io.BytesIO()
    with zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(["a" * 100], 2))
    with pytest.raises(RuntimeError, match=r"compressed|larger than the file"):
        flambeau.load(io.BytesIO(again.getvalue()))


def test_safe_globals(tmp_path):
    from flambeau.io import globals as names

    torch.save({"f": collections.Counter}, tmp_path / "g.pt")
    assert flambeau.load(tmp_path / "g.pt")["f"] is collections.Counter
    torch.save({"d": fractions.Fraction(1, 3)}, tmp_path / "h.pt")
    with pytest.raises(pickle.UnpicklingError, match=r"fractions\.Fraction"):
        flambeau.load(tmp_path / "h.pt")
    with names.safe_globals([fractions.Fraction]):
        assert flambeau.load(tmp_path / "h.pt")["d"] == fractions.Fraction(1, 3)
    assert names.get_safe_globals() == []


def test_python_pickle_and_missing_folder(tmp_path):
    t = flambeau.arange(6.0).reshape(2, 3).t()
    assert pickle.loads(pickle.dumps(t)).tolist() == t.tolist()
    with pytest.raises(RuntimeError, match="does not exist"):
        flambeau.save(t, tmp_path / "none" / "x.pt")
    with pytest.raises(FileNotFoundError):
        flambeau.load(tmp_path / "none.pt")
