"""huggingface_hub, safetensors: torch.hub without a network: a local repository, one in the cache, cached weights; a model mixin saved and loaded."""

import json
import os
import tempfile
from pathlib import Path

import torch
from huggingface_hub import PyTorchModelHubMixin

HUBCONF = '''dependencies = ["torch"]
import torch


def line(pretrained=False, width=3):
    """A line of `width` numbers."""
    model = torch.nn.Linear(width, 1)
    if pretrained:
        model.load_state_dict(torch.hub.load_state_dict_from_url("https://example.com/weights/line-abc.pth", progress=False, map_location="cpu"))
    return model
'''


class Small(torch.nn.Module, PyTorchModelHubMixin):
    def __init__(self, width: int = 2):
        super().__init__()
        self.inner = torch.nn.Linear(width, 2)


found = {}
torch.manual_seed(0)
with tempfile.TemporaryDirectory() as folder:
    local, cache = Path(folder) / "repository", Path(folder) / "hub"
    for place in (local, cache / "someone_lines_main"):
        place.mkdir(parents=True)
        (place / "hubconf.py").write_text(HUBCONF)
    torch.hub.set_dir(str(cache))
    (cache / "checkpoints").mkdir()
    torch.save({"weight": torch.tensor([[1.0, 2.0, 3.0]]), "bias": torch.tensor([0.5])}, cache / "checkpoints" / "line-abc.pth")
    trusted = {"trust_repo": True, "skip_validation": True}
    found["list"], found["help"] = torch.hub.list("someone/lines:main", **trusted), torch.hub.help("someone/lines:main", "line", **trusted).strip()
    found["local"] = list(torch.hub.load(str(local), "line", source="local", width=4).weight.shape)
    model = torch.hub.load("someone/lines:main", "line", pretrained=True, verbose=False, **trusted)
    found["cached"] = model(torch.tensor([1.0, 1.0, 1.0])).tolist()
    found["folder"] = os.path.relpath(torch.hub.get_dir(), folder)
    small = Small(width=3)
    small.save_pretrained(folder + "/small")
    again = Small.from_pretrained(folder + "/small")
    same = again.inner.weight.tolist() == small.inner.weight.tolist()
    found["mixin"] = [again.inner.in_features, same, sorted(os.listdir(folder + "/small"))]
print(json.dumps(found))
