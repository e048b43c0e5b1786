"""Names that are not there: an AttributeError that names what is near, from all namespaces."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau


@pytest.mark.parametrize(
    ("place", "wrong", "meant"),
    [
        ("", "softmx", "softmax"), ("nn.functional", "rellu", "relu"), ("nn", "Linaer", "Linear"), ("optim", "Adamm", "Adam"),
        ("optim.lr_scheduler", "StpLR", "StepLR"), ("utils.data", "Dataloader", "DataLoader"), ("nn.init", "kaming_normal_", "kaiming_normal_"),
        ("nn.utils", "clip_grad_nrm_", "clip_grad_norm_"), ("autograd", "gradd", "grad"), ("linalg", "nrm", "norm"), ("distributions", "Norml", "Normal"),
        ("", "Linear", "torch.nn.Linear"), ("", "Adam", "torch.optim.Adam"), ("", "relu6", "torch.nn.functional.relu6"), ("nn", "softmax", "Softmax"),
        ("", "hamming", "hamming_window"), ("fft", "ftt", "fft"), ("special", "gammalnn", "gammaln"),
    ],
)  # fmt: skip
def test_near_names(place: str, wrong: str, meant: str) -> None:
    space = flambeau
    for part in place.split(".") if place else ():
        space = getattr(space, part)
    with pytest.raises(AttributeError) as caught:
        getattr(space, wrong)
    hint = str(caught.value).partition("Near it there ")[2]
    assert meant in hint.removeprefix("is: ").removeprefix("are: ").rstrip(".").split(", "), str(caught.value)
    assert caught.value.name == wrong
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert not hasattr(space, wrong)


def test_no_name_is_near_to_nonsense() -> None:
    with pytest.raises(AttributeError) as caught:
        flambeau.zzzzqqq
    assert "Near" not in str(caught.value)


def _namespaces() -> Iterator[tuple[Any, str]]:
    """(module, a long name of it) for each public module that PyTorch has, too."""
    for info in pkgutil.walk_packages(flambeau.__path__, "flambeau."):
        parts = info.name.split(".")[1:]
        if any(p.startswith("_") for p in parts) or parts[0] in ("cli", "trace", "compiler", "runtime", "ops"):
            continue
        try:
            theirs, ours = importlib.import_module("torch." + ".".join(parts)), importlib.import_module(info.name)
        except (Exception, SystemExit):
            continue
        listed = getattr(ours, "__all__", None) or [name for name in dir(ours) if not name.startswith("_")]
        shared = [name for name in listed if len(name) > 6 and hasattr(theirs, name)]
        if shared:
            yield ours, max(shared, key=lambda name: (len(name), name))


def test_every_namespace() -> None:
    """The error says what is near, or Python's traceback does: then it knows the module that was asked."""
    tried = 0
    for module, right in _namespaces():
        wrong = right[:3] + right[4:]
        if hasattr(module, wrong):
            continue
        with pytest.raises(AttributeError) as caught:
            getattr(module, wrong)
        tried += 1
        assert caught.value.name == wrong
        if getattr(caught.value, "obj", None) is None:
            assert right in str(caught.value).partition("Near it there ")[2], (module, str(caught.value))
    assert tried > 200
