"""Checkpoints by planners and storages of one's own, with DTensors and replicated values; writes the calls in their order, and what was loaded."""

import json
import os
import pickle
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.format_utils import BroadcastingTorchSaveReader, DynamicMetaLoadPlanner
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import Shard, distribute_tensor
from torch.futures import Future

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
mesh = dist.device_mesh.init_device_mesh("cpu", (size,))
folder, others = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
calls, found = [], {}


def state(scale):
    whole = torch.arange(15.0).reshape(5, 3) * scale
    return {"model": {"w": distribute_tensor(whole, mesh, [Shard(0)]), "b": torch.ones(4) * scale}, "step": int(7 * scale)}


class Doubling(dcp.DefaultSavePlanner):
    """Writes twice each tensor, and one more value than the state has."""

    def create_local_plan(self):
        calls.append("local plan")
        return super().create_local_plan()

    def create_global_plan(self, all_plans):
        calls.append(("global plan", len(all_plans)))
        plans, metadata = super().create_global_plan(all_plans)
        return plans, metadata

    def finish_plan(self, new_plan):
        calls.append("finish plan")
        return super().finish_plan(new_plan)

    def transform_object(self, write_item, object):
        return object * 2 if isinstance(object, torch.Tensor) else super().transform_object(write_item, object)


class Renaming(dcp.DefaultLoadPlanner):
    """Loads what has other names in the state."""

    def set_up_planner(self, state_dict, metadata=None, is_coordinator=False):
        self.outer = state_dict
        super().set_up_planner({"model": {"w": state_dict["weight"], "b": state_dict["bias"]}}, metadata, is_coordinator)

    def commit_tensor(self, read_item, tensor):
        calls.append(("commit", read_item.dest_index.fqn, tuple(read_item.lengths)))


class Own(dcp.DefaultLoadPlanner):
    """The default one, as a class of one's own."""


class Writer(dcp.StorageWriter):
    """A pickle for each rank."""

    def reset(self, checkpoint_id=None):
        calls.append("reset")

    def set_up_storage_writer(self, is_coordinator, *args, **kwargs):
        calls.append(("set up", is_coordinator))

    def prepare_local_plan(self, plan):
        calls.append("prepare local")
        return plan

    def prepare_global_plan(self, plans):
        calls.append("prepare global")
        return plans

    def write_data(self, plan, planner):
        kept, results = {}, []
        for item in plan.items:
            value = planner.resolve_data(item)
            value = value.tolist() if isinstance(value, torch.Tensor) else value.getvalue()
            kept[item.index.fqn, None if item.index.offset is None else tuple(item.index.offset)] = value
            results.append(WriteResult(item.index, len(str(value)), rank))
        (folder / f"part{rank}").write_bytes(pickle.dumps(kept))
        future = Future()
        future.set_result(results)
        return future

    def finish(self, metadata, results):
        calls.append(("finish", sorted((r.index.fqn, r.storage_data) for part in results for r in part if r.index.fqn == "model.w")))
        metadata.storage_data = {r.index: r.storage_data for part in results for r in part}
        (folder / "whole").write_bytes(pickle.dumps(metadata))

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


class Reader(dcp.StorageReader):
    """What Writer has written."""

    def reset(self, checkpoint_id=None):
        calls.append("reset")

    def read_metadata(self, *args, **kwargs):
        return pickle.loads((folder / "whole").read_bytes())

    def set_up_storage_reader(self, metadata, is_coordinator, *args, **kwargs):
        self.where = metadata.storage_data

    def prepare_local_plan(self, plan):
        calls.append(("read", sorted((item.dest_index.fqn, tuple(item.lengths)) for item in plan.items if item.type == LoadItemType.TENSOR)))
        return plan

    def prepare_global_plan(self, plans):
        return plans

    def read_data(self, plan, planner):
        import io

        for item in plan.items:
            index = MetadataIndex(item.storage_index.fqn, item.storage_index.offset)
            offset = None if index.offset is None else tuple(index.offset)
            value = pickle.loads((folder / f"part{self.where[index]}").read_bytes())[index.fqn, offset]
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(value))
                continue
            source = torch.tensor(value)
            for d, (start, n) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                source = source.narrow(d, start, n)
            target = planner.resolve_tensor(item).detach()
            target.copy_(source)
            planner.commit_tensor(item, target)
        future = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id):
        return True


def plain(value):
    return value.full_tensor().tolist() if hasattr(value, "full_tensor") else value.tolist() if hasattr(value, "tolist") else value


class Waiting(Writer):
    """Writes when the program has changed the state."""

    def write_data(self, plan, planner):
        changed.wait(60)
        return super().write_data(plan, planner)


def parts(folder):
    """Names, bytes and begins of the safetensors files of a folder."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        content = path.read_bytes()
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        texts = header.pop("__metadata__", {})
        found[str(path.relative_to(folder))] = ({k: (v["dtype"], v["shape"]) for k, v in header.items()}, json.loads(texts.get("DCP_SHARDING_INFO", "{}")))
    return found


def failures(call):
    """(the exception's name, the ranks that failed) of a call that must fail."""
    try:
        call()
    except BaseException as error:
        return type(error).__name__, sorted(error.failures), [type(e).__name__ for e, _ in error.failures.values()]
    raise AssertionError("it did not fail")


dcp.save(state(1), checkpoint_id=folder / "files", planner=Doubling())
changed = threading.Event()
beside = {"own": state(2), "list": [1, 2]}
future = dcp.async_save(beside["own"], storage_writer=Waiting(), process_group=dist.new_group())
beside["own"]["model"]["w"].to_local().zero_(), beside["own"]["model"]["b"].zero_()
dist.all_reduce(torch.ones(3))  # the program's own collectives go on
changed.set()
future.result()
dist.barrier()
loaded = state(0)
dcp.load(loaded, storage_reader=Reader())
found["beside"] = [plain(loaded["model"]["w"]), plain(loaded["model"]["b"]), loaded["step"]]
dist.barrier()
dcp.save(state(3), storage_writer=Writer())
for name, options in {"shards": {}, "consolidated": {"enable_consolidation": True}}.items():
    model = {"w": state(1)["model"]["w"], **({"b": torch.ones(4)} if name == "consolidated" else {})}
    dcp.save(model, storage_writer=dcp.HuggingFaceStorageWriter(str(folder / name), save_distributed=True, **options))
found["safetensors"] = {name: parts(folder / name) for name in ("shards", "consolidated")}
moments = {k: {"step": torch.tensor(3.0), "exp_avg": distribute_tensor(torch.arange(15.0).reshape(5, 3), mesh, [Shard(0)])} for k in ("w", "v")}
dcp.save({"model": state(1)["model"], "optimizer": {"state": moments, "param_groups": [{"lr": 0.5, "params": ["w", "v"]}]}}, checkpoint_id=folder / "trained")
dcp.save({"flat": torch.ones(3), "nested": {"n": 4}}, checkpoint_id=folder / "unflat", planner=dcp.DefaultSavePlanner(flatten_state_dict=False))
dist.barrier()


def read(folder):
    """What is loaded of a folder's checkpoints."""
    loaded, found = state(0), {}
    dcp.load(loaded, checkpoint_id=folder / "files")
    found["doubled"] = [plain(loaded["model"]["w"]), plain(loaded["model"]["b"]), loaded["step"]]
    renamed = {"weight": state(0)["model"]["w"], "bias": torch.zeros(4)}
    dcp.load(renamed, checkpoint_id=folder / "files", planner=Renaming())
    found["renamed"] = [plain(renamed["weight"]), plain(renamed["bias"])]
    unflat = {"flat": torch.zeros(3), "nested": {}}
    dcp.load(unflat, checkpoint_id=folder / "unflat", planner=dcp.DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False))
    found["unflat"] = [plain(unflat["flat"]), unflat["nested"]]
    for name in ("shards", "consolidated"):
        loaded = {"w": state(0)["model"]["w"]}
        dcp.load(loaded, storage_reader=dcp.HuggingFaceStorageReader(str(folder / name)))
        found["safetensors " + name] = plain(loaded["w"])
    return found


found |= read(folder)
loaded = state(0)
dcp.load(loaded, storage_reader=Reader())
found["own storage"] = [plain(loaded["model"]["w"]), plain(loaded["model"]["b"]), loaded["step"]]
moments = load_sharded_optimizer_state_dict({}, "optimizer", dcp.FileSystemReader(folder / "trained"))
cut = moments["optimizer"]["state"]["w"]["exp_avg"]
cut = cut.to_local() if hasattr(cut, "to_local") else cut.local_tensor()
found["moments"] = [plain(cut), plain(moments["optimizer"]["state"]["v"]["step"]), moments["optimizer"]["param_groups"]]
if rank == 0:
    torch.save({"model": {"w": torch.arange(15.0).reshape(5, 3), "b": torch.arange(4.0), "n": 3}}, folder / "one.pt")
dist.barrier()


def one(state):
    """A state from the file that rank 0 reads."""
    dcp.load(state, storage_reader=BroadcastingTorchSaveReader(), planner=DynamicMetaLoadPlanner(), checkpoint_id=folder / "one.pt")
    return state


whole = one({"model": {"w": torch.zeros(5, 3), "b": torch.zeros(4)}})
found["broadcast"] = [plain(whole["model"]["w"]), plain(whole["model"]["b"])]
if not others:  # PyTorch hangs in the first of these
    found["broadcast to parts"] = plain(one({"model": state(0)["model"]})["model"]["w"])
    found["broadcast of what is missing"] = failures(lambda: one({"z": torch.zeros(2)}))
absent = folder / "files" if rank == 0 else folder / "nothing"
for name, call in {
    "missing": lambda: dcp.load({"model": {"z": torch.zeros(4)}}, checkpoint_id=folder / "files", planner=Own()),
    "size": lambda: dcp.load({"model": {"b": torch.zeros(9)}}, checkpoint_id=folder / "files", planner=Own()),
    "on one": lambda: dcp.load({"model": {"b": torch.zeros(4 + rank)}}, checkpoint_id=folder / "files"),
    "no folder on one": lambda: dcp.load({"model": {"b": torch.zeros(4)}}, checkpoint_id=absent),
}.items():
    found[name] = failures(call)
found["no folder on one"] = found["no folder on one"][:2]  # PyTorch: an AssertionError in place of FileNotFoundError
found["calls"] = list(calls)
found["of others"] = [read(other) for other in others]
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
