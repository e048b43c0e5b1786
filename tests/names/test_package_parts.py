"""Inner modules of torch that packages import: each does what PyTorch's does."""

from __future__ import annotations

import gc
import importlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

BOTH = (flambeau, torch)


def module(m: Any, name: str) -> Any:
    """The submodule of one of the two."""
    return importlib.import_module(f"{m.__name__}.{name}")


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or its error's type and text."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


# -- torch.utils._contextlib ----------------------------------------------------------------------------------------------
def trace_of(m: Any) -> list[str]:
    """A block as a decorator of a function and of a generator, into which a value, an error and its end are sent."""
    seen: list[str] = []

    class Block(module(m, "utils._contextlib")._DecoratorContextManager):  # type: ignore[misc]
        def __enter__(self) -> None:
            seen.append("in")

        def __exit__(self, *error: Any) -> None:
            seen.append(f"out {error[0] and error[0].__name__}")

    @Block()  # type: ignore[untyped-decorator]
    def plain(x: int) -> int:
        seen.append("plain")
        return x + 1

    @Block()  # type: ignore[untyped-decorator]
    def steps() -> Iterator[Any]:
        try:
            seen.append(f"got {(yield 1)}")
        except ValueError:
            seen.append("caught")
        try:
            seen.append(f"got {(yield 2)}")
        except ValueError:
            seen.append("caught")
            yield 3
        seen.append("end")

    assert plain(1) == 2
    running = steps()
    seen.append(f"{next(running)}")
    seen.append(f"{running.send('a')}")  # type: ignore[attr-defined]
    seen.append(f"{running.throw(ValueError('b'))}")  # type: ignore[attr-defined]
    running.close()  # type: ignore[attr-defined]
    seen.append(f"{list(steps())}")
    return seen


def test_blocks_are_decorators() -> None:
    """Steps of a generator run in blocks of their own; nothing runs in one between them."""
    ours, theirs = map(trace_of, BOTH)
    assert ours == theirs


def test_blocks_that_cannot_decorate() -> None:
    """Classes, and what is both a block and a function."""

    class Twice:
        def __call__(self) -> None: ...

        def __enter__(self) -> None: ...

        def __repr__(self) -> str:
            return "Twice"

    for arguments in ((lambda: None, int), (Twice(), abs)):
        ours, theirs = (outcome(lambda m=m, a=arguments: module(m, "utils._contextlib").context_decorator(*a)) for m in BOTH)
        assert ours == theirs


# -- torch.utils.weak -----------------------------------------------------------------------------------------------------
class Key:
    """Equals every other, and cannot be hashed."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@pytest.mark.usefixtures("short_collections")
@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["set", "drop", "pop", "delete", "or", "copy"]), st.integers(0, 4)), max_size=20))
def test_weak_dictionaries(steps: list[tuple[str, int]]) -> None:
    """Entries are found by the object itself, and go with it: a plain dictionary by numbers is the model."""
    held: dict[int, Any] = {i: Key() for i in range(5)}
    made, model = module(flambeau, "utils.weak").WeakIdKeyDictionary(), dict[int, int]()
    for step, (what, i) in enumerate(steps):
        if what == "set":
            held.setdefault(i, Key())
            made[held[i]] = model[i] = step
        elif what == "drop":
            held.pop(i, None)
            model.pop(i, None)
            gc.collect()
        elif what in ("pop", "delete"):
            assert (made.pop(held[i], None) if i in held else None) == model.pop(i, None)
        else:
            made = made.copy() if what == "copy" else made | made
        assert {id(k): v for k, v in made.items()} == {id(held[k]): v for k, v in model.items()}
        assert len(made) == len(model) and all((k in made) == (i in model) for i, k in held.items())


def test_weak_references_to_tensors() -> None:
    """They give the tensor while there is one."""
    for m in BOTH:
        weak = module(m, "utils.weak")
        x = m.ones(2)
        reference, other, entries = weak.TensorWeakRef(x), weak.WeakIdRef(x), weak.WeakTensorKeyDictionary()
        entries[x] = 3
        assert reference() is x and entries[x] == 3 and other == weak.WeakIdRef(x) and hash(other) == id(x)
        assert isinstance(other, weakref.ref) and not other == weak.WeakIdRef(m.ones(2))  # noqa: SIM201
        del x
        gc.collect()
        assert reference() is None and len(entries) == 0


# -- torch.nn.utils._per_sample_grad --------------------------------------------------------------------------------------
NETWORKS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "linear": (lambda nn: nn.Linear(4, 3), lambda n: n.standard_normal((5, 4))),
    "sequence": (lambda nn: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2, bias=False)), lambda n: n.standard_normal((5, 3, 4))),
    "convolution": (lambda nn: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU()), lambda n: n.standard_normal((3, 2, 6, 5))),
    "embedding": (lambda nn: nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 2)), lambda n: n.integers(0, 7, (4, 5))),
}


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_by_sample(name: str, reduction: str) -> None:
    """Each parameter has a gradient for each sample, as from a loop over the samples; and none of its own."""
    build, data = NETWORKS[name]
    found = []
    for m in BOTH:
        numbers = np.random.default_rng(3)
        net, x = build(m.nn), data(numbers)
        x = m.from_numpy(x.astype(np.float32) if x.dtype.kind == "f" else x)
        with m.no_grad():
            for p in net.parameters():
                p.copy_(m.from_numpy(numbers.standard_normal(tuple(p.shape)).astype(np.float32)))
        result = module(m, "nn.utils._per_sample_grad").call_for_per_sample_grads(net, loss_reduction=reduction)(x)
        getattr(result.square(), reduction)().backward()
        found.append([result.detach().numpy(), *[p.grad_sample.numpy() for p in net.parameters()]])
        assert all(p.grad is None and p.grad_sample.shape == (len(x), *p.shape) for p in net.parameters())
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_gradients_by_sample_of_other_calls() -> None:
    """The samples in the second dim; a parameter that needs none; errors of arguments."""
    net = flambeau.nn.Linear(4, 3)
    net.bias.requires_grad_(False)
    module(flambeau, "nn.utils._per_sample_grad").call_for_per_sample_grads(net, batch_first=False)(flambeau.ones(2, 5, 4)).sum().backward()
    assert net.weight.grad_sample.shape == (5, 3, 4) and not hasattr(net.bias, "grad_sample")  # PyTorch refuses the second dim for this layer
    assert bool((net.weight.grad_sample == 2).all())
    wrong: list[Callable[[Any, Any], Any]] = [
        lambda m, call: call(m.nn.Linear(2, 2), loss_reduction="max"), lambda m, call: call(3), lambda m, call: call(m.nn.Linear(2, 2), batch_size=0),
        lambda m, call: call(m.nn.Linear(2, 2), batch_size="a"), lambda m, call: call(m.nn.Linear(2, 2))(),
        lambda m, call: call(m.nn.Bilinear(2, 2, 2))(m.ones(3, 2), m.ones(4, 2)),
    ]  # fmt: skip
    for case in wrong:
        ours, theirs = (outcome(lambda m=m, c=case: c(m, module(m, "nn.utils._per_sample_grad").call_for_per_sample_grads)) for m in BOTH)
        assert isinstance(theirs, tuple) and ours == theirs


# -- the others -----------------------------------------------------------------------------------------------------------
def test_groups_of_lists() -> None:
    """Tensors of several lists by device and dtype."""
    for m in BOTH:
        part = module(m, "utils._foreach_utils")
        a, b, c = m.ones(2), m.ones(3, dtype=m.float64), m.ones(4)
        groups = part._group_tensors_by_device_and_dtype([[a, b, c], [c, b, a]], with_indices=True)
        assert [(str(key[1]).split(".")[1], [[len(t) for t in x] for x in lists], list(places)) for key, (lists, places) in groups.items()] in (
            [("float32", [[2, 4], [4, 2]], [0, 2]), ("float64", [[3], [3]], [1])], [("float64", [[3], [3]], [1]), ("float32", [[2, 4], [4, 2]], [0, 2])],
        )  # fmt: skip
        assert part._has_foreach_support([a, None], a.device) and not part._has_foreach_support([m.nn.Parameter(a)], a.device)


@given(base=st.integers(0, 2**63 - 1), worker=st.integers(0, 1000))
@settings(deadline=None)
def test_seeds_of_workers(base: int, worker: int) -> None:
    """NumPy's seeds of a worker are PyTorch's."""
    ours, theirs = (module(m, "utils.data._utils.worker")._generate_state(base, worker) for m in BOTH)
    assert ours == theirs


def test_names_of_samples() -> None:
    """What packages ask of tensors inside of transforms."""
    for m in BOTH:
        inner = module(m, "_C._functorch")
        seen: list[Any] = []

        def f(x: Any, inner: Any = inner, seen: list[Any] = seen) -> Any:
            level = inner.maybe_get_level(x)
            seen.extend((inner.is_batchedtensor(x), inner.is_gradtrackingtensor(x), level, inner.maybe_get_bdim(x), tuple(inner.get_unwrapped(x).shape)))
            return x * 2

        m.vmap(f)(m.ones(3, 2))
        assert seen == [True, False, 1, 0, (3, 2)]
        assert not inner.is_batchedtensor(m.ones(2)) and inner.maybe_get_level(m.ones(2)) == -1


def test_samples_made_by_hand() -> None:
    """A tensor's dim as samples of the vmap that runs, and back."""
    for m in BOTH:
        inner, whole = module(m, "_C._functorch"), m.arange(6.0).reshape(2, 3)

        def f(x: Any, m: Any = m, inner: Any = inner, whole: Any = whole) -> Any:
            level = inner.maybe_get_level(x)
            sample = inner._add_batch_dim(whole, 1, level)
            assert tuple(sample.shape) == (2,)
            back = inner._remove_batch_dim(sample * 2, level, 3, 1)
            assert tuple(back.shape) == (2, 3)
            return x + sample.sum() + 0 * m.ones(())

        assert m.vmap(f)(m.zeros(3)).tolist() == whole.sum(0).tolist()


def test_modes_and_hooks_are_seen() -> None:
    """Whether a mode is active, which fake tensors' block is, and the tables of every module's hooks."""
    for m in BOTH:
        guards, fake = module(m, "_guards"), module(m, "_subclasses.fake_tensor")
        assert guards.active_fake_mode() is None
        with fake.FakeTensorMode() as mode:
            assert guards.active_fake_mode() is mode and guards.detect_fake_mode([m.ones(2)]) is mode
        assert not m._C._is_torch_function_mode_enabled()
        with m.overrides.TorchFunctionMode():
            assert m._C._is_torch_function_mode_enabled()
        x = m.ones(4)
        assert m._C._is_alias_of(x, x[1:]) and not m._C._is_alias_of(x, m.ones(4))
        inner = module(m, "nn.modules.module")
        handle = inner.register_module_parameter_registration_hook(lambda *a: None)
        assert len(inner._global_parameter_registration_hooks) == 1
        handle.remove()
        assert m.autograd.forward_ad._current_level == -1
        with m.autograd.forward_ad.dual_level():
            assert m.autograd.forward_ad._current_level == 0
        assert m.autograd.forward_ad._current_level == -1
        assert m.distributed._rank_not_in_group(m.distributed.GroupMember.NON_GROUP_MEMBER) and not m.distributed._rank_not_in_group(None)


def test_operators_over_functions() -> None:
    """A package's own: it runs what is registered for the CPU, and says if nothing is."""
    for m in BOTH:
        ops = module(m, "_ops")

        class Twice(ops.HigherOrderOperator):  # type: ignore[misc, name-defined]
            def __init__(self, name: str) -> None:
                super().__init__(name)

            def __call__(self, f: Any, x: Any) -> Any:
                return super().__call__(f, x)

        made = Twice("twice_of_tests")
        assert made.name() == str(made) == "twice_of_tests" and made.namespace == "higher_order"
        for key in ("CompositeExplicitAutograd", "AutogradCPU"):
            made.py_impl(getattr(m._C.DispatchKey, key))(lambda f, x: f(f(x)))
        assert made(lambda x: x + 1, m.ones(2)).tolist() == [3, 3]
        with pytest.raises(TypeError, match="abstract class HigherOrderOperator"):
            ops.HigherOrderOperator("x")


@pytest.mark.parametrize("name", ["weight", "running_mean", "note", "weight.x", "", "missing"])
def test_swapped_tensors(name: str) -> None:
    """Another tensor under a name, and errors."""

    def call(m: Any) -> Any:
        net = m.nn.BatchNorm1d(2)
        net.note = "text"
        swap = module(m, "nn.utils._named_member_accessor").swap_tensor
        before = swap(net, name, m.zeros(2))
        return before.tolist(), getattr(net, name).tolist(), list(net._parameters), list(net._buffers)

    ours, theirs = (outcome(lambda m=m: call(m)) for m in BOTH)
    assert ours == theirs


def test_state_for_a_rank_that_is_not_there() -> None:
    """A sharded optimizer's state goes to no rank then: its state_dict() says so, the call does not."""

    def call(m: Any) -> Any:
        m.distributed.init_process_group("gloo", store=m.distributed.HashStore(), rank=0, world_size=1)
        try:
            made = module(m, "distributed.optim").ZeroRedundancyOptimizer(m.nn.Linear(2, 2).parameters(), optimizer_class=m.optim.SGD, lr=0.1)
            made.consolidate_state_dict(to=1)
            return type(outcome(made.state_dict)), "has not been consolidated on this rank" in outcome(made.state_dict)[1]
        finally:
            m.distributed.destroy_process_group()

    ours, theirs = map(call, BOTH)
    assert ours == theirs == (tuple, True)
