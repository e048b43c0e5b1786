"""Checkpoints as safetensors files and as files of torch.save, by one process: the files and what is loaded are PyTorch's, and each reads the other's."""

from __future__ import annotations

import importlib
import io
import json

import pytest

import flambeau
from flambeau.distributed import checkpoint
from flambeau.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files
from flambeau.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from flambeau.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner, main
from flambeau.distributed.checkpoint.state_dict_loader import _load_state_dict
from flambeau.io import safetensors

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch says at each call that it is one process
KINDS = ("float32", "bfloat16", "float16", "float64", "int64", "uint8", "bool")
FILES = {f"model.{kind}": 1 + i % 3 for i, kind in enumerate((*KINDS, "scalar"))}


def tensors(library):
    found = {f"model.{kind}": library.arange(12).reshape(3, 4).to(getattr(library, kind)) for kind in KINDS}
    return {**found, "model.scalar": library.tensor(2.5)}


def nested(library):
    weight = library.arange(6.0).reshape(2, 3)
    state = {"weight": {"step": library.tensor(3.0), "exp_avg": weight * 2}, "bias": {}}
    groups = [{"lr": 0.5, "betas": (0.9, 0.99), "params": ["weight"]}, {"lr": 0.25, "params": []}]
    return {
        "model": {"weight": weight, "parts": [weight, {"a": weight + 1}, 4]},
        "optimizer": {"state": state, "param_groups": groups},
        "epoch": 7,
        "name": "x",
    }


def plain(x):
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(plain(v) for v in x)
    return (str(x.dtype).split(".")[-1], tuple(x.shape), x.double().tolist()) if hasattr(x, "dtype") else x


@pytest.fixture(scope="module")
def theirs():
    torch = pytest.importorskip("torch")
    importlib.import_module("torch.distributed.checkpoint.format_utils")
    return torch, torch.distributed.checkpoint


@pytest.fixture
def both(theirs):
    return ((flambeau, checkpoint), theirs)


def header(path):
    content = path.read_bytes()
    found = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    texts = {k: json.loads(v) if k == "DCP_SHARDING_INFO" else v for k, v in found.pop("__metadata__", {}).items()}
    return {name: (entry["dtype"], entry["shape"]) for name, entry in found.items()}, texts


@pytest.mark.parametrize(
    "options", [{}, {"fqn_to_index_mapping": FILES}, {"save_distributed": True}, {"fqn_to_index_mapping": FILES, "save_distributed": True}]
)
def test_safetensors_as_pytorch(options, both, tmp_path):
    for library, dcp in both:
        dcp.save(tensors(library), storage_writer=dcp.HuggingFaceStorageWriter(str(tmp_path / library.__name__), **options), no_dist=True)
    mine, other = tmp_path / "flambeau", tmp_path / "torch"
    assert sorted(p.name for p in mine.iterdir()) == sorted(p.name for p in other.iterdir())
    for path in mine.iterdir():
        if path.suffix == ".json":
            assert json.loads(path.read_text()) == json.loads((other / path.name).read_text())
        else:
            assert header(path) == header(other / path.name)
    for library, dcp in both:
        for folder in (mine, other):
            state = {name: t * 0 if t.dtype != library.bool else t & False for name, t in tensors(library).items()}
            dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(folder)), no_dist=True)
            assert plain(state) == plain(tensors(flambeau))


def test_consolidated_as_pytorch(theirs, tmp_path):
    from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files as by_pytorch

    rows = {"w": [(0, 2), (2, 5)], "b": [(0, 5)]}
    whole = {"w": flambeau.arange(15.0).reshape(5, 3), "b": flambeau.arange(5.0).double()}
    for name in ("parts", "torch"):
        (tmp_path / name).mkdir()
    for shard in range(2):
        held = {name: whole[name][slice(*cuts[shard])] for name, cuts in rows.items() if shard < len(cuts)}
        begins = {n: {"saved_offsets": [rows[n][shard][0]] + [0] * (t.ndim - 1)} for n, t in held.items()}
        safetensors.save_file(held, tmp_path / "parts" / f"shard-{shard}.safetensors", {"DCP_SHARDING_INFO": json.dumps(begins)})
    mapping = {"w": 1, "b": 2}
    for name, call in {"torch": by_pytorch, "mine": consolidate_safetensors_files}.items():
        call(str(tmp_path / "parts"), str(tmp_path / name), mapping)
        found = {}
        for path in (tmp_path / name).glob("*.safetensors"):
            found.update(safetensors.load_file(path))
        assert plain(found) == plain(whole)
    files = [{p.name: json.loads(p.read_text()) if p.suffix == ".json" else header(p)[0] for p in (tmp_path / n).iterdir()} for n in ("mine", "torch")]
    assert files[0] == files[1]
    with pytest.raises(ValueError, match="which the mapping names"):
        consolidate_safetensors_files(str(tmp_path / "parts"), str(tmp_path / "mine"), {"z": 1})
    with pytest.raises(ValueError, match="No DCP custom metadata"):
        consolidate_safetensors_files(str(tmp_path / "mine"), str(tmp_path / "again"), mapping)


def refused(call, kind, text):
    with pytest.raises(checkpoint.CheckpointException) as caught:
        call()
    error, stack = caught.value.failures[0]
    assert type(error) is kind and text in str(error) and stack


def test_safetensors_refuses(tmp_path):
    writer = checkpoint.HuggingFaceStorageWriter(tmp_path / "c", fqn_to_index_mapping={"a": 1})
    refused(lambda: checkpoint.save({"a": flambeau.ones(2), "n": 3}, storage_writer=writer, no_dist=True), ValueError, "'n' is none")
    refused(lambda: checkpoint.save({"b": flambeau.ones(2)}, storage_writer=writer, no_dist=True), KeyError, "no file for 'b'")
    (tmp_path / "empty").mkdir()
    reader = checkpoint.HuggingFaceStorageReader(tmp_path / "empty")
    refused(lambda: checkpoint.load({"a": flambeau.ones(2)}, storage_reader=reader, no_dist=True), FileNotFoundError, "has no file")
    with pytest.raises(ValueError, match="ranks 0 and 1 would write the same file 1"):
        plan = checkpoint.SavePlan([checkpoint.WriteItem(checkpoint.MetadataIndex("a", (0,)), 1)])
        writer.prepare_global_plan([plan, plan])


def test_torch_save_as_pytorch(both, tmp_path):
    shown = {}
    for library, dcp in both:
        name = library.__name__
        utils = dcp.format_utils
        library.save(nested(library), tmp_path / f"{name}.pt")
        utils.torch_save_to_dcp(tmp_path / f"{name}.pt", tmp_path / name)
    for library, dcp in both:
        for name in ("flambeau", "torch"):
            target = tmp_path / f"{name}-by-{library.__name__}.pt"
            dcp.format_utils.dcp_to_torch_save(tmp_path / name, target)
            shown[name, library.__name__] = plain(library.load(target, weights_only=True))
    assert all(found == shown["torch", "torch"] for found in shown.values())
    assert shown["torch", "torch"]["optimizer"]["param_groups"][1] == {"lr": 0.25, "params": []}


def test_some_keys(theirs, tmp_path):
    torch, dcp = theirs
    from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner as Empty
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict as by_pytorch

    checkpoint.save(nested(flambeau), checkpoint_id=tmp_path, no_dist=True)
    for keys in ({"model"}, {"optimizer.state", "epoch"}, {"model.weight"}, {"nothing"}):
        mine, other = {}, {}
        _load_state_dict(mine, checkpoint.FileSystemReader(tmp_path), planner=_EmptyStateDictLoadPlanner(keys), no_dist=True)
        by_pytorch(other, dcp.FileSystemReader(tmp_path), planner=Empty(keys), no_dist=True)
        assert plain(mine) == plain(other)
    refused(
        lambda: _load_state_dict({"a": 1}, checkpoint.FileSystemReader(tmp_path), planner=_EmptyStateDictLoadPlanner(), no_dist=True),
        AssertionError,
        "must be empty",
    )


def test_command(tmp_path, capsys):
    flambeau.save({"a": flambeau.ones(3)}, tmp_path / "a.pt")
    main(["torch_to_dcp", str(tmp_path / "a.pt"), str(tmp_path / "c")])
    main(["dcp_to_torch", str(tmp_path / "c"), str(tmp_path / "b.pt")])
    assert flambeau.load(tmp_path / "b.pt")["a"].tolist() == [1, 1, 1]
    with pytest.raises(SystemExit):
        main(["dcp_to_torch", str(tmp_path / "nothing"), str(tmp_path / "b.pt")])
    assert "no checkpoint is at" in capsys.readouterr().err


def test_file_of_torch_save_for_many(tmp_path):
    flambeau.save({"model": {"w": flambeau.arange(4.0), "n": 3}}, tmp_path / "a.pt")

    def load(state):
        reader, planner = BroadcastingTorchSaveReader(), DynamicMetaLoadPlanner()
        checkpoint.load(state, storage_reader=reader, planner=planner, checkpoint_id=tmp_path / "a.pt", no_dist=True)

    state = {"model": {"w": flambeau.zeros(4)}}
    load(state)
    assert state["model"]["w"].tolist() == [0, 1, 2, 3]
    refused(lambda: load({"model": {"n": 3}}), RuntimeError, "Non-tensor value identified at model.n")
    refused(lambda: load({"model": {"n": flambeau.zeros(2)}}), RuntimeError, "Non-tensor value identified at model.n")
    refused(lambda: load({"z": flambeau.zeros(4)}), KeyError, "has no z")
    refused(lambda: load({"model": {"w": flambeau.zeros(5)}}), ValueError, "Size mismatch")


def test_failures_that_cannot_be_sent_are_told(tmp_path):
    class Odd(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a} {b}")

    class Writer(checkpoint.FileSystemWriter):
        def write_data(self, plan, planner):
            raise Odd("a", "b")

    refused(lambda: checkpoint.save({"a": 1}, storage_writer=Writer(tmp_path), no_dist=True), RuntimeError, "Odd: a b")
    refused(lambda: checkpoint.load({"a": 1}, checkpoint_id=tmp_path / "nothing", no_dist=True), FileNotFoundError, "nothing")


def test_beside_with_ones_own(tmp_path):
    calls = []

    class Doubling(checkpoint.DefaultSavePlanner):
        def transform_object(self, write_item, object):
            calls.append(write_item.index.fqn)
            return object * 2 if isinstance(object, flambeau.Tensor) else super().transform_object(write_item, object)

    x, listed = flambeau.arange(3.0), [1, 2]
    future = checkpoint.async_save({"x": x, "n": listed}, checkpoint_id=tmp_path, planner=Doubling())
    x.zero_(), listed.append(3)
    assert isinstance(future.result(timeout=60), checkpoint.Metadata) and sorted(calls) == ["n", "x"]
    state = {"x": flambeau.zeros(3), "n": None}
    checkpoint.load(state, checkpoint_id=tmp_path, no_dist=True)
    assert state["x"].tolist() == [0, 2, 4] and state["n"] == [1, 2]

    class Failing(Doubling):
        def resolve_data(self, write_item):
            raise OSError("full")

    failed = checkpoint.async_save({"x": x}, checkpoint_id=tmp_path, planner=Failing()).exception(timeout=60)
    assert isinstance(failed, checkpoint.CheckpointException) and "full" in str(failed)


def test_tensors_of_a_file_one_by_one(tmp_path):
    held = {"a": flambeau.arange(6).reshape(2, 3), "b": flambeau.ones(2, dtype=flambeau.bfloat16), "none": flambeau.zeros(0, 3)}
    safetensors.save_file(held, tmp_path / "x.safetensors", {"who": "me"})
    with safetensors.opened(tmp_path / "x.safetensors") as file:
        assert sorted(file.names()) == sorted(held) and file.metadata == {"who": "me"}
        assert file.kind("a") == (flambeau.int64, (2, 3)) and plain({name: file.tensor(name) for name in held}) == plain(held)
        kept = file.tensor("a")
    assert kept.tolist() == held["a"].tolist()
    stream = io.BytesIO()
    safetensors.write(stream, held)
    assert plain(safetensors.load(stream.getvalue())) == plain(held)
    (tmp_path / "y").write_bytes(b"")
    with pytest.raises(safetensors.SafetensorError, match="is empty"), safetensors.opened(tmp_path / "y"):
        pass
