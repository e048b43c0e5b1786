"""Objects of the installed PyTorch that meet flambeau's by a mixed import: one TypeError that says which import it is, and nothing is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

import flambeau
from flambeau import foreign
from tests import processes

torch = pytest.importorskip("torch")
nn = torch.nn

X = flambeau.ones(1, 2)
Y = torch.ones(1, 2)
IMAGE = flambeau.ones(1, 1, 2, 2)


class Net(nn.Module):  # type: ignore[misc,name-defined]
    def forward(self, x: Any) -> Any:
        return nn.functional.relu(x)


GIVEN: dict[str, Callable[[], Any]] = {  # PyTorch's objects to flambeau's functions
    "part of Sequential": lambda: flambeau.nn.Sequential(nn.Linear(2, 2)),
    "part of ModuleList": lambda: flambeau.nn.ModuleList([Net()]),
    "attribute": lambda: setattr(flambeau.nn.Linear(2, 2), "inner", nn.Linear(2, 2)),
    "parameter": lambda: setattr(flambeau.nn.Linear(2, 2), "weight", nn.Linear(2, 2).weight),
    "Parameter": lambda: flambeau.nn.Parameter(Y),
    "buffer": lambda: flambeau.nn.Linear(2, 2).register_buffer("b", Y),
    "module's input": lambda: flambeau.nn.Linear(2, 2)(Y),
    "embedding's input": lambda: flambeau.nn.Embedding(2, 2)(torch.tensor([0])),
    "recurrent input": lambda: flambeau.nn.LSTM(2, 2)(torch.ones(1, 1, 2)),
    "optimizer": lambda: flambeau.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1),
    "optimizer's group": lambda: flambeau.optim.Adam([{"params": nn.Linear(2, 2).parameters()}]),
    "schedule": lambda: flambeau.optim.lr_scheduler.StepLR(torch.optim.SGD([nn.Parameter(Y.clone())], 0.1), 1),
    "state": lambda: flambeau.nn.Linear(2, 2).load_state_dict(nn.Linear(2, 2).state_dict()),
    "clipping": lambda: flambeau.nn.utils.clip_grad_norm_(nn.Linear(2, 2).parameters(), 1.0),
    "add": lambda: flambeau.add(X, Y), "+": lambda: X + Y, "+ from the right": lambda: Y + X, "==": lambda: X == Y, "@": lambda: X @ Y.T,
    "cat": lambda: flambeau.cat([X, Y]), "stack": lambda: flambeau.stack([Y]), "einsum": lambda: flambeau.einsum("ij,ij", X, Y),
    "where": lambda: flambeau.where(X > 0, Y, 0.0), "linear": lambda: flambeau.nn.functional.linear(X, Y), "equal": lambda: flambeau.equal(X, Y),
    "loss": lambda: flambeau.nn.functional.cross_entropy(X, torch.tensor([0])),
    "index": lambda: X[Y > 0], "written": lambda: X.__setitem__(0, Y), "copied": lambda: X.clone().copy_(Y), "out": lambda: flambeau.add(X, X, out=Y),
    "gradient": lambda: setattr(X.clone(), "grad", Y), "data": lambda: setattr(X.clone(), "data", Y),
    "number without dims": lambda: flambeau.mul(X, torch.tensor(2.0)),
    "dtype": lambda: flambeau.ones(2, dtype=torch.float64), "dtype of a sum": lambda: X.sum(dtype=torch.float64), "to": lambda: X.to(torch.float64),
    "dtype of a copy": lambda: flambeau.zeros_like(X, dtype=torch.float64), "default dtype": lambda: flambeau.set_default_dtype(torch.float64),
    "limits": lambda: flambeau.finfo(torch.float32), "device": lambda: flambeau.ones(2, device=torch.device("cpu")),
    "to a device": lambda: X.to(torch.device("cpu")), "generator": lambda: flambeau.rand(2, generator=torch.Generator()),
}  # fmt: skip
CALLED: dict[str, Callable[[], Any]] = {  # flambeau's tensors to PyTorch's functions and modules
    "Linear": lambda: nn.Linear(2, 2)(X), "Conv2d": lambda: nn.Conv2d(1, 1, 1)(IMAGE), "Sequential": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())(X),
    "BatchNorm1d": lambda: nn.BatchNorm1d(2)(X), "Embedding": lambda: nn.Embedding(2, 2)(flambeau.tensor([0])),
    "own module": lambda: Net()(X), "CrossEntropyLoss": lambda: nn.CrossEntropyLoss()(X, flambeau.tensor([0])),
    "linear": lambda: nn.functional.linear(X, X), "add": lambda: torch.add(X, X), "cat": lambda: torch.cat([X, X]), "mixed": lambda: torch.add(Y, X),
    "parameter": lambda: torch.relu(flambeau.nn.Parameter(X.clone())), "compiled": lambda: flambeau.compile(nn.Linear(2, 2))(X),
    "checkpoint": lambda: flambeau.utils.checkpoint.checkpoint(nn.Linear(2, 2), X, use_reentrant=False),
    "functional_call": lambda: flambeau.func.functional_call(nn.Linear(2, 2), {}, X), "vmap": lambda: flambeau.vmap(nn.Linear(2, 2))(X),
}  # fmt: skip


@pytest.mark.parametrize("case", [*GIVEN, *[f"PyTorch's {name}" for name in CALLED]])
def test_the_import_is_named(case: str) -> None:
    call = CALLED[case.removeprefix("PyTorch's ")] if case.startswith("PyTorch's ") else GIVEN[case]
    pending = flambeau.ones(3) * 2
    with pytest.raises(TypeError, match="installed PyTorch") as caught:
        call()
    text = str(caught.value)
    assert "from flambeau import" in text and "flambeau run" in text, text
    assert pending.tolist() == [2, 2, 2] and X.tolist() == [[1, 1]]


def test_conversion_is_no_mistake() -> None:
    y = torch.arange(4.0)
    for make in (flambeau.from_dlpack, flambeau.as_tensor, flambeau.asarray):
        shared = make(y)
        assert shared.tolist() == [0, 1, 2, 3] and shared.data_ptr() == y.data_ptr()
    assert flambeau.tensor(y).data_ptr() != y.data_ptr() and flambeau.from_dlpack(y.bfloat16()).dtype is flambeau.bfloat16


def test_our_own_objects_are_not_foreign() -> None:
    things = (
        X, flambeau.nn.Linear(1, 1), flambeau.float32, flambeau.device("cpu"), flambeau.Size((1,)), flambeau.max(X, 1), flambeau.Generator(),
        flambeau.strided, flambeau.ones(2, 2).to_sparse(), flambeau.optim.SGD([X], 0.1), 1, None, "torch", [X], torch.Size((1,)), torch.max(Y, 1),
    )  # fmt: skip
    assert foreign.first(things) is None
    assert all(foreign.is_foreign(x) for x in (Y, Net(), torch.float32, torch.device("cpu"), nn.Parameter(Y), torch.strided))


def test_pytorch_is_never_imported() -> None:
    program = "import sys, flambeau, flambeau.nn, flambeau.optim; flambeau.ones(2) + 1; assert 'torch' not in sys.modules"
    processes.run([sys.executable, "-c", program], check=True)
