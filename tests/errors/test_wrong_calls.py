"""Wrong calls beside PyTorch: the same type of error, words that name the function, and a framework that works on.

A fixed sample of the wrong calls of each section of the table; `python -m tests.errors.sweep` makes them all, and those of PyTorch's databases.
"""

from __future__ import annotations

import inspect
import itertools
import pickle
from typing import Any

import pytest

import flambeau
from flambeau.ops.signatures import overloads, problem
from tests import processes
from tests.errors.calls import STRUCTURE, WRONG, table, wrong_calls
from tests.errors.outcome import outcome, unlike
from tests.errors.sweep import Choice, differences, gathered
from tests.errors.table import SECTIONS

torch = pytest.importorskip("torch")


def test_a_sample_of_wrong_calls() -> None:
    """None ends in an error of Python's from inside of flambeau, hangs, crashes, or leaves something that spoils the next call."""
    choice = Choice(sorted(SECTIONS), sample=250, seed=2)
    theirs = gathered("torch", choice, {})
    found = list(differences(choice, theirs, gathered("flambeau", choice, theirs)))
    assert len(found) > 250
    assert [f for f in found if f[0] in ("internal", "hang", "crash", "after")] == []


def test_wrong_calls_of_modules_name_them() -> None:
    """Constructors and forwards of all modules: the module's name in the text, also where one inside of it has refused the input, and PyTorch's type."""
    choice = Choice(["modules"], sample=250, seed=5)
    theirs = gathered("torch", choice, {})
    found = list(differences(choice, theirs, gathered("flambeau", choice, theirs)))
    assert len(found) > 250
    assert [f for f in found if f[0] in ("unnamed", "type", "internal", "crash", "after")] == []


def test_every_kind_of_wrong_value_is_made() -> None:
    made = {w.how for call in table("creation") for w in wrong_calls(call)}
    assert made == {*WRONG, *STRUCTURE}


# -- single cases ---------------------------------------------------------------------------------------------------
CASES: dict[str, tuple[Any, type[Exception], tuple[str, ...]]] = {
    "clamp": (lambda m: m.clamp(m.ones(2), "a"), TypeError, ("clamp", "min", "str")),
    "clamp of a method": (lambda m: m.ones(2).clamp_(...), TypeError, ("clamp", "min", "ellipsis")),
    "fill_": (lambda m: m.ones(2).fill_(None), TypeError, ("fill", "value", "NoneType")),
    "repeat": (lambda m: m.ones(2, 2).repeat(-1), RuntimeError, ("repeat",)),
    "topk": (lambda m: m.ones(3).topk(2, sorted=3), TypeError, ("topk", "sorted", "bool", "int")),
    "a flag": (lambda m: m.ones(3).copy_(m.ones(3), 2.5), TypeError, ("copy_", "non_blocking", "bool", "float")),
    "sizes": (lambda m: m.ones(6).reshape(2, "b"), TypeError, ("reshape", "shape", "str")),
    "dims": (lambda m: m.ones(2, 3).sum((0, "a")), TypeError, ("sum", "dim", "str")),
    "a tensor as a dim": (lambda m: m.softmax(m.ones(2, 3), m.ones(2, 3)), TypeError, ("softmax", "dim", "Tensor")),
    "an int of more than 64 bits": (lambda m: m.ones(2).sum(2**70), ValueError, ("sum", "dim", "Overflow")),
    "a module's input": (lambda m: m.nn.Linear(2, 2)("a"), TypeError, ("linear", "input", "str")),
    "a constructor": (lambda m: m.nn.Linear("a", 2), TypeError, ("empty", "size", "str")),
    "an optimizer": (lambda m: m.optim.SGD(5), TypeError, ("SGD", "params=5")),
    "grad mode": (lambda m: m.set_grad_enabled(m.ones(2)), TypeError, ("set_grad_enabled", "enabled", "bool")),
    "no tensor below": (lambda m: m._softmax_backward_data(m.ones(2), 0, 0, m.float32), TypeError, ("_softmax_backward_data", "output", "int")),
    "no dtype below": (lambda m: m._softmax_backward_data(m.ones(2), m.ones(2), 0, 3), TypeError, ("_softmax_backward_data", "input_dtype", "int")),
    "odd sizes": (lambda m: m.testing.make_tensor((object(),), dtype=m.float32, device="cpu"), TypeError, ("make_tensor", "shape", "object")),
    "a module's constructor": (lambda m: m.nn.Conv1d(3, 4, 3, groups=2), ValueError, ("Conv1d", "in_channels")),
    "an inherited constructor": (lambda m: m.nn.CELU(alfa=2.0), TypeError, ("CELU", "alfa")),
    "a recurrent constructor": (lambda m: m.nn.LSTM(3, 2, num_layers="a"), TypeError, ("LSTM", "num_layers")),
    "a distribution": (lambda m: m.distributions.Normal(None, 1.0), ValueError, ("Normal", "NoneType")),
    "a cell's state": (lambda m: m.nn.LSTMCell(2, 3)(m.ones(2), m.ones(0)), IndexError, ("LSTMCell",)),
    "a cell's stacked state": (lambda m: m.nn.LSTMCell(2, 3)(m.ones(2, 2), m.ones(2, 2, 3)), TypeError, ("LSTMCell", "hx")),
    "outputs": (lambda m: m.autograd.grad("a", m.ones(2, requires_grad=True)), AssertionError, ("grad", "outputs", "str")),
    "inputs": (lambda m: m.autograd.grad(m.ones(2, requires_grad=True).sum(), "a"), RuntimeError, ("grad", "inputs", "str")),
    "what is written and read": (lambda m: (lambda x: x.index_copy_(None, m.tensor([0, 1]), x))(m.ones(2)), TypeError, ("index_copy", "dim", "NoneType")),
    "a generator": (lambda m: m.ones(2).normal_(generator=m.nn.ReLU()), TypeError, ("normal_", "generator", "ReLU")),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    call, kind, words = CASES[name]
    with pytest.raises(kind):
        call(torch)
    with pytest.raises(kind) as caught:
        call(flambeau)
    for word in words:
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("name", ["int32", "uint8", "bool", "float64", "float16", "complex64"])
def test_a_fill_value_in_a_tensor_counts_as_its_number(name: str) -> None:
    kinds = {str(m.full((2,), m.tensor(1, dtype=getattr(m, name))).dtype).rpartition(".")[2] for m in (torch, flambeau)}
    assert len(kinds) == 1


def test_known_calls_see_wrong_arguments_too() -> None:
    """A call that is learned, then the same one with a wrong argument, in a trace and at once."""
    x = flambeau.ones(2, 3)
    for _ in range(8):
        x.sum(1).tolist()
        x.reshape(3, 2).tolist()
    for _ in range(3):
        with pytest.raises(TypeError, match="sum"):
            x.sum("a")
        with pytest.raises(TypeError, match="reshape"):
            x.reshape("a")
        assert x.sum(1).tolist() == [3.0, 3.0]


def test_calls_that_are_learned_see_wrong_arguments_too() -> None:
    """Where calls are learned (trace/immediate.py), what a body only asks for its truth was taken in any kind."""
    from flambeau.ops.remembered import _at_root
    from flambeau.trace.recorder import local

    form = flambeau.nn.functional.batch_norm.__globals__["FORM"]
    x, v = flambeau.ones(1, 2, 6, 6), flambeau.ones(2)
    for _ in range(12):  # until it is known, and then
        for training, momentum in (("a", 0.1), (None, 0.1), (abs, 0.1), (False, "a"), (False, None), (False, (1,))):
            with pytest.raises(TypeError, match=r"batch_norm\(\): argument '(training|momentum)'"):
                _at_root(form, local.main, (x, v, v, v, v, training, momentum, 1e-5))
        assert _at_root(form, local.main, (x, v, v, v, v, False, 0.1, 1e-5)).shape == x.shape


def test_errors_of_the_users_functions_stay_theirs() -> None:
    def broken(x: Any) -> Any:
        return x.no_such_name

    with pytest.raises(AttributeError, match="no_such_name"):
        flambeau.func.vmap(broken)(flambeau.ones(3))
    with pytest.raises(KeyError, match="mine"):
        flambeau.nn.Linear(2, 2).apply(lambda m: {}["mine"])
    with pytest.raises(ZeroDivisionError):
        flambeau.optim.lr_scheduler.LambdaLR(flambeau.optim.SGD([flambeau.nn.Parameter(flambeau.ones(2))], lr=0.1), lambda n: 1 / 0)


def test_a_tensor_of_one_number_is_a_number() -> None:
    x = flambeau.arange(6.0).reshape(2, 3)
    for one in (flambeau.tensor(1), flambeau.tensor([1])):
        assert x.sum(one).tolist() == [3.0, 12.0]
        assert flambeau.softmax(x, one).shape == (2, 3)
    assert x.reshape(flambeau.tensor(3), 2).shape == (3, 2)


def test_guarded_functions_are_what_they_were() -> None:
    import inspect

    from flambeau.nn import functional as F

    assert list(inspect.signature(F.interpolate).parameters) == list(inspect.signature(torch.nn.functional.interpolate).parameters)
    F.interpolate(flambeau.ones(1, 1, 2, 2), scale_factor=2)
    assert list(inspect.signature(F.interpolate).parameters) == list(inspect.signature(torch.nn.functional.interpolate).parameters)
    assert pickle.loads(pickle.dumps(F.interpolate)) is F.interpolate
    assert list(inspect.signature(flambeau.nn.Linear).parameters) == ["in_features", "out_features", "bias", "device", "dtype"]


def test_frames_can_be_listed() -> None:
    """A debugger reads the variables of every frame, also of code that has taken the place of a function with free variables."""
    import sys

    seen = []

    def trace(frame: Any, event: str, argument: Any) -> Any:
        seen.append(len(frame.f_locals))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        flambeau.nn.Conv2d(2, 2, 1)(flambeau.ones(1, 2, 3, 3))
        flambeau.fx.symbolic_trace(lambda x: flambeau.nn.functional.interpolate(x, scale_factor=2))
    finally:
        sys.settrace(before)
    assert seen


def test_keywords_that_are_nearly_right() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'biass'. Did you mean bias\?"):
        flambeau.nn.Linear(2, 2, biass=True)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'weight_deca'. Did you mean weight_decay\?"):
        flambeau.optim.SGD([flambeau.ones(2, requires_grad=True)], weight_deca=0.1)


def test_keywords_that_are_nearly_right_and_that_python_refuses() -> None:
    """Functions take no unknown keywords, which would cost every call; what is meant is said where the error is shown."""

    program = "import flambeau as f; f.nn.functional.relu(f.ones(2), inplce=True)"
    said = processes.python("-c", program).stderr
    assert "unexpected keyword argument 'inplce'. Did you mean inplace?" in said


def test_flags_behind_decorators() -> None:
    """Functions whose signature a decorator hides look at their arguments by the one that they show."""
    x = flambeau.arange(6.0).reshape(2, 3)
    for _ in range(3):
        for call in (lambda m, x: m.sort(x, descending="yes"), lambda m, x: m.nanmedian(x, 1, 2), lambda m, x: m.svd(x, some=0.5)):
            with pytest.raises(TypeError):
                call(torch, torch.ones(2, 3))
            with pytest.raises(TypeError, match="must be bool"):
                call(flambeau, x)
        assert flambeau.sort(x, 1, True)[0].tolist() == [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]
    for call in (lambda: flambeau.svd(x, *[None] * 9), lambda: flambeau.sort(x, *[None] * 9), lambda: flambeau.linalg.qr(x, *[None] * 9)):
        with pytest.raises(TypeError, match=r"positional arguments|must be"):
            call()


def test_flags_of_a_backward_pass_do_not_become_the_grad_mode() -> None:
    """`create_graph` of a tensor became the grad mode, and the next collection of garbage failed."""
    w = flambeau.ones(3, requires_grad=True)
    for wrong in (flambeau.ones(2, 3), "a", 2.5, None):
        for call in (lambda v: flambeau.autograd.grad((w * 2).sum(), w, create_graph=v), lambda v: (w * 2).sum().backward(create_graph=v)):
            with pytest.raises(TypeError, match="create_graph"):
                call(wrong)
            assert flambeau.is_grad_enabled() is True
    assert flambeau.autograd.grad((w * 2).sum(), w, create_graph=1)[0].requires_grad is False


def test_classes_of_numbers_are_dtypes() -> None:
    """PyTorch takes bool, int, float and complex wherever it takes a dtype."""
    for number, name in ((bool, "bool"), (int, "int64"), (float, "float64"), (complex, "complex128")):
        for m in (torch, flambeau):
            x = m.ones(2, 3)
            made = [
                m.zeros(2, dtype=number), m.full((2,), 1, dtype=number), m.tensor([1], dtype=number), m.as_tensor([1], dtype=number), x.to(number),
                m.zeros_like(x, dtype=number), m.empty(2, dtype=number), m.eye(2, dtype=number), x.new_zeros(2, dtype=number), x.sum(dtype=number),
                m.nn.Linear(2, 2).to(m.float64).weight if number is bool else m.cumsum(x, 0, dtype=number),
            ]  # fmt: skip
            assert {str(t.dtype).rpartition(".")[2] for t in made} <= {name, "float64"}, m
            assert m.promote_types(number, number) == getattr(m, name)


def test_sizes_that_no_memory_holds_fail_at_once() -> None:
    huge = 2**62
    image = flambeau.ones(1, 1, 3, 3)
    packed = flambeau.nn.utils.rnn.pack_padded_sequence(flambeau.ones(2, 1, 1), [2])
    calls = {
        "vander": lambda: flambeau.vander(flambeau.ones(3), huge), "adaptive": lambda: flambeau.nn.functional.adaptive_max_pool2d(image, huge),
        "packed": lambda: flambeau.nn.utils.rnn.pad_packed_sequence(packed, total_length=huge), "mvlgamma": lambda: flambeau.mvlgamma(image, huge),
        "split": lambda: flambeau.tensor_split(image, huge), "combinations": lambda: flambeau.combinations(flambeau.ones(2), huge, True),
        "linalg": lambda: flambeau.linalg.vander(flambeau.ones(3), N=huge),
    }  # fmt: skip
    for call in calls.values():
        with pytest.raises(RuntimeError, match=r"can't allocate memory|Storage size calculation overflowed"):
            call()


# Callables of which no wrong call is accepted that PyTorch refuses, and none ends inside: their checks were missing once.
CHECKED = (
    "torch.arange", "torch.autograd.set_detect_anomaly", "torch.broadcast_shapes", "torch.func.vjp", "torch.nn.Parameter",
    "torch.nn.functional.ctc_loss", "torch.nn.functional.interpolate", "torch.nn.functional.softmax",
    "torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grads_with_norm_", "torch.nn.utils.rnn.unpad_sequence", "torch.optim.Adamax",
    "torch.optim.NAdam", "torch.optim.lr_scheduler.MultiplicativeLR", "torch.use_deterministic_algorithms", "x.is_contiguous", "x.numpy", "x.to",
    "x.type",
)  # fmt: skip
# Taken by flambeau alone: None where it is the default, which is not told from no argument.
TAKEN = {("x.is_contiguous", "None")}


@pytest.mark.parametrize("name", CHECKED)
def test_checked_arguments(name: str) -> None:
    made = 0
    for call in table():
        if call.text.partition(" ")[0] == name:
            for wrong in wrong_calls(call):
                theirs, ours = outcome(wrong, torch), outcome(wrong, flambeau)
                made += 1
                found = unlike(wrong, theirs, ours)
                assert found not in ("internal", "accepted") or (name, wrong.how) in TAKEN, f"{wrong.key}: {ours} and {theirs}"
    assert made


def test_positions_of_methods_are_pytorchs() -> None:
    """The arguments by position, in the order of one of PyTorch's overloads: `x.softmax(1, torch.float64)` took the dtype for something else."""
    checked = 0
    for theirs, ours in ((torch, flambeau), (torch.Tensor, flambeau.Tensor)):
        for name in dir(theirs):
            function = getattr(ours, name, None)
            if name.startswith("_") or not callable(function) or not overloads(name):
                continue
            given = list(inspect.signature(function).parameters.values())
            if any(p.kind is p.VAR_POSITIONAL for p in given):
                continue
            mine = [p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
            orders = [[p.name for p in o if not p.keyword] for o in overloads(name)]
            known = set(mine).intersection(*map(set, orders)) - {"self", "input"}
            checked += len(known)
            assert any([n for n in mine if n in known] == [n for n in order if n in known] for order in orders), (name, mine, orders)
    assert checked > 300
    for module in (torch, flambeau):
        x = module.ones(2, 3, dtype=module.float32)
        assert x.softmax(1, module.float64).dtype is x.log_softmax(1, module.float64).dtype is module.float64


@pytest.mark.parametrize("kind", [int, float, complex])
def test_numbers_of_python_from_several_elements(kind: type) -> None:
    for m in (torch, flambeau):
        for x in (m.ones(2), m.ones(0), m.eye(3).to_sparse()):
            with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
                kind(x)
            with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
                x.item()


def test_the_list_of_signatures_is_pytorchs() -> None:
    from pathlib import Path

    from tests.errors.signatures import lines

    assert lines() == (Path(flambeau.__file__).parent / "data" / "signatures.txt").read_text().splitlines()


def test_overloads() -> None:
    assert [[p.name for p in o] for o in overloads("clamp")] == [["self", "min", "max"], ["self", "min", "max"]]
    x = flambeau.ones(2)
    good: list[Any] = [0, 1.5, True, flambeau.tensor(1.0), None]
    for low, high in itertools.product(good, good):
        mixed = any(isinstance(v, flambeau.Tensor) for v in (low, high)) and any(isinstance(v, (int, float)) for v in (low, high))
        if not mixed:
            assert problem("clamp", ("input", "min", "max"), (x, low, high), (None, None, None)) is None


def test_keywords_of_in_place_forms_arrive() -> None:
    """What calls a function on the way to it has no parameters of the same names."""
    x = flambeau.ones(2)
    assert x.addcmul_(x.clone(), x.clone(), value=2.0).tolist() == [3.0, 3.0]
    assert x.addcdiv_(x.clone(), x.clone(), value=1.0).tolist() == [4.0, 4.0]
