"""Names that are not there: an AttributeError that names what is near, from all namespaces."""

from __future__ import annotations

import pickle

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
