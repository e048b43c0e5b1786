"""tensorboard: a writer's event files of every kind, read again by tensorboard itself."""

import hashlib
import json
import math
import tempfile
from pathlib import Path

import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
found = {}
with tempfile.TemporaryDirectory() as folder:
    with SummaryWriter(folder, purge_step=1) as writer:
        for step in range(3):
            writer.add_scalar("loss", torch.tensor(1.0 / (step + 1)), step)
        writer.add_scalar("new", 0.1, 0, new_style=True, double_precision=True)
        writer.add_scalars("both", {"a": 1.0, "b": torch.tensor(2.0)}, 0)
        for bins in ("tensorflow", "auto", [-1.0, 0.0, 1.0]):
            writer.add_histogram(f"weights {bins}", torch.randn(50), 0, bins=bins)
        writer.add_histogram("few", torch.randn(500), 0, bins="fd", max_bins=3)
        writer.add_histogram_raw("raw", 0.0, 2.0, 3, 3.0, 5.0, [0.5, 1.5, 2.5], [1, 1, 1])
        writer.add_image("image", torch.rand(3, 4, 5), 0)
        writer.add_image("grey", (torch.rand(4, 5) * 255).to(torch.uint8), 0, dataformats="HW")
        writer.add_images("grid", torch.rand(3, 3, 4, 5), 0)
        writer.add_image_with_boxes("boxes", torch.rand(3, 16, 16), torch.tensor([[1, 2, 9, 10]]), 0)
        writer.add_audio("sound", torch.linspace(-1, 1, 20), 0, sample_rate=8000)
        writer.add_text("text", "some *text*", 0)
        writer.add_tensor("tensor", torch.arange(6.0).reshape(2, 3))
        writer.add_pr_curve("curve", torch.tensor([1, 0, 1, 1]), torch.tensor([0.9, 0.2, 0.4, 0.7]), 0, num_thresholds=5)
        writer.add_custom_scalars({"all": {"lines": ["Multiline", ["a", "b"]], "band": ["Margin", ["a", "b", "c"]]}})
        writer.add_mesh("mesh", torch.rand(1, 4, 3), faces=torch.tensor([[[0, 1, 2], [1, 2, 3]]]), config_dict={"a": 1})
        writer.add_hparams({"lr": 0.1, "name": "x", "on": True, "n": 3}, {"score": 0.5}, {"lr": [0.1, 0.2]}, run_name="run")
        writer.add_embedding(torch.rand(3, 2), metadata=["a", "b", "c"], label_img=torch.rand(3, 3, 4, 4), global_step=1)
    for file in sorted(Path(folder).rglob("*")):
        name = str(file.relative_to(folder))
        if "tfevents" not in name:
            found[name] = file.read_text().split() if file.suffix == ".tsv" else file.name
            continue
        for event in EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                key = f"{Path(name).parent} {value.tag} {event.step} {kind}"
                if kind == "tensor":  # tensorboard's loader has made tensors of the older kinds
                    numbers = [float(v) for v in [*value.tensor.float_val, *value.tensor.double_val] if math.isfinite(v)]
                    text = value.tensor.tensor_content + b"".join(value.tensor.string_val)
                    hidden = "image" if value.metadata.plugin_data.plugin_name == "images" else hashlib.sha256(text).hexdigest()
                    found[key] = [numbers, hidden, value.metadata.plugin_data.plugin_name, len(value.metadata.plugin_data.content)]
                else:
                    found[key] = [str(kind), value.metadata.plugin_data.plugin_name]
found = {str(k): v for k, v in found.items()}
print(json.dumps(found))
