"""Models of torchvision, timm and transformers as exported programs; a program that flambeau (`-m flambeau run`) and PyTorch both run.

`save FOLDER NAME...` makes each model with random weights, exports it, and writes the program, its decomposition and arrays of inputs and outputs.
`read FOLDER NAME...` loads and runs what the other has written, and prints a line of JSON for each. It imports nothing of flambeau's tests, so that any
interpreter can run it as a file.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TORCHVISION = {
    "alexnet": 64, "convnext_tiny": 64, "densenet121": 64, "efficientnet_b0": 64, "mnasnet0_5": 64, "mobilenet_v3_small": 64, "regnet_y_400mf": 64,
    "resnet18": 64, "shufflenet_v2_x0_5": 64, "swin_t": 64,
}  # fmt: skip
TIMM = {
    "resnet10t": {}, "mobilenetv3_small_050": {}, "convnext_atto": {}, "vit_tiny_patch16_224": {"img_size": 64}, "mobilevit_xxs": {},
    "edgenext_xx_small": {}, "ghostnet_050": {}, "efficientvit_b0": {}, "poolformer_s12": {}, "gmixer_12_224": {"img_size": 64},
}  # fmt: skip
_TEXT = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "max_position_embeddings": 64}
TRANSFORMERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bert": ("BertForSequenceClassification", _TEXT),
    "Roberta": ("RobertaForMaskedLM", _TEXT),
    "DistilBert": ("DistilBertForMaskedLM", {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "Albert": ("AlbertForMaskedLM", {**_TEXT, "embedding_size": 16}),
    "Electra": ("ElectraForSequenceClassification", {**_TEXT, "embedding_size": 16}),
    "GPT2": ("GPT2LMHeadModel", {"vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "Llama": ("LlamaForCausalLM", _DECODER),
    "Qwen3": ("Qwen3ForCausalLM", {**_DECODER, "head_dim": 8}),
    "T5": ("T5EncoderModel", {"vocab_size": 100, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}),
    "ViT": ("ViTForImageClassification", {**_TEXT, "image_size": 32, "patch_size": 8}),
}
NAMES = [f"{package}/{name}" for package, names in (("torchvision", TORCHVISION), ("timm", TIMM), ("transformers", TRANSFORMERS)) for name in names]


_KEPT: list[Any] = []  # libraries that declare operators, as long as they live


def _import_torchvision() -> Any:
    """torchvision; of a build for another PyTorch, whose operators in C++ do not load, without them: no model here calls one."""
    import torch

    try:
        import torchvision
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
        place: Any = importlib.util.find_spec("torchvision")
        text = (Path(place.origin).parent / "_meta_registrations.py").read_text()
        library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for name in sorted(set(re.findall(r'(?:register_meta\("|register_fake\("torchvision::)(\w+)', text))):
            library.define(f"{name}() -> ()")
        _KEPT.append(library)
        for loaded in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[loaded]
        import torchvision
    return torchvision


def _transformer(name: str) -> tuple[Any, Any]:
    import torch
    import transformers

    cls, settings = TRANSFORMERS[name]
    more = {"use_cache": False} if cls.endswith(("CausalLM", "LMHeadModel")) else {}
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, cls)(config)

    class First(torch.nn.Module):
        """The first output, a tensor, in place of an object of transformers'."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return self.model(x, return_dict=False, **more)[0]

    x = torch.randn(2, 3, 32, 32) if name == "ViT" else torch.randint(3, 100, (2, 16))
    return First(), x


def make(name: str) -> tuple[Any, Any]:
    """A model with random weights, in evaluation, and its input. Weights that all models begin with (zeros, ones) are made random too: they would hide much."""
    import torch

    torch.manual_seed(0)
    package, _, model_name = name.partition("/")
    vision = _import_torchvision()
    if package == "torchvision":
        model = getattr(vision.models, model_name)(weights=None)
        x = torch.randn(2, 3, TORCHVISION[model_name], TORCHVISION[model_name])
    elif package == "timm":
        import timm

        model, x = timm.create_model(model_name, num_classes=10, **TIMM[model_name]), torch.randn(2, 3, 64, 64)
    else:
        model, x = _transformer(model_name)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.numel() > 1 and float(parameter.std()) < 1e-3:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
        for key, buffer in model.named_buffers():
            if key.endswith("running_mean"):
                buffer.copy_(torch.randn(buffer.shape) * 0.1)
            elif key.endswith("running_var"):
                buffer.copy_(torch.rand(buffer.shape) + 0.5)
    return model.eval(), x


def save(folder: Path, name: str) -> dict[str, Any]:
    """Export a model, and write its program, input and output, and its decomposition where there is one (`core_error` says why not)."""
    import torch

    model, x = make(name)
    stem = folder / name.replace("/", "-")
    program = torch.export.export(model, (x,))
    torch.export.save(program, f"{stem}.pt2")
    with torch.no_grad():
        np.savez(f"{stem}.npz", x=x.numpy(), y=model(x).numpy())
    found: dict[str, Any] = {"nodes": len(list(program.graph.nodes)), "parameters": sum([p.numel() for p in model.parameters()])}
    try:
        core = program.run_decompositions()
        torch.export.save(core, f"{stem}-core.pt2")
    except Exception as error:
        return {**found, "core": None, "core_error": f"{type(error).__name__}: {str(error)[:200]}"}
    return {**found, "core": len(list(core.graph.nodes))}


def read(folder: Path, name: str) -> dict[str, Any]:
    """Load and run a program and its decomposition; the greatest difference of each from the outputs that were written, as a share of the greatest output."""
    import torch

    stem = folder / name.replace("/", "-")
    arrays = np.load(f"{stem}.npz")
    found: dict[str, Any] = {"core": None}
    for kind, file in (("program", f"{stem}.pt2"), ("core", f"{stem}-core.pt2")):
        if kind == "core" and not Path(file).exists():
            continue
        with torch.no_grad():
            y = torch.export.load(file).module()(torch.tensor(arrays["x"])).numpy()
        if y.shape != arrays["y"].shape or not np.isfinite(y).all() or not np.abs(arrays["y"]).max():
            raise ValueError(f"outputs of shape {y.shape}, expected finite ones of {arrays['y'].shape}")
        found[kind] = float(np.abs(y - arrays["y"]).max() / np.abs(arrays["y"]).max())
    return found


def main(arguments: list[str]) -> None:
    """`save` or `read`, a folder, names."""
    warnings.simplefilter("ignore")
    action: Callable[[Path, str], dict[str, Any]] = {"save": save, "read": read}[arguments[0]]
    for name in arguments[2:]:
        start = time.perf_counter()
        try:
            found = action(Path(arguments[1]), name)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {str(error)[:400]}"}
        print(json.dumps({"name": name, **found, "seconds": round(time.perf_counter() - start, 1)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
