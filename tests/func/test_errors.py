"""What the transforms refuse, with PyTorch's error types and words."""

from __future__ import annotations

import pytest

import flambeau as ft
from tests.func.oracle import World, same_error

ERRORS = {
    "item": (lambda w: w.func.vmap(lambda x: x * x.sum().item())(w.array(3, 2)), "vmap: It looks like you're calling .item() on a Tensor."),
    "control flow": (lambda w: w.func.vmap(lambda x: x if x.sum() > 0 else -x)(w.array(3, 2)), "data-dependent control flow"),
    "nonzero": (lambda w: w.func.vmap(lambda x: x.nonzero())(w.array(3, 2)), "vmap"),
    "mask": (lambda w: w.func.vmap(lambda x: x[x > 0])(w.array(3, 2)), "vmap"),
    "sizes": (lambda w: w.func.vmap(lambda x, y: x)(w.array(3, 2), w.array(2, 2)), "in the mapped dimension, got sizes [3, 2]"),
    "no inputs": (lambda w: w.func.vmap(lambda: 1)(), "got no inputs"),
    "nothing mapped": (lambda w: w.func.vmap(lambda x: x, in_dims=(None,))(w.array(3)), "Expected at least one Tensor to vmap over"),
    "structure": (lambda w: w.func.vmap(lambda x: x, in_dims=(0, 0))(w.array(3)), "in_dims is not compatible with the structure of `inputs`"),
    "type of in_dims": (lambda w: w.func.vmap(lambda x: x, in_dims=[0])(w.array(3)), "expected `in_dims` to be int or a (potentially nested) tuple"),
    "kind of in_dim": (lambda w: w.func.vmap(lambda x: x, in_dims=("a",))(w.array(3)), "in_dim must be either"),
    "no tensor": (lambda w: w.func.vmap(lambda x, y: x, in_dims=(0, 0))(w.array(3), 2.0), "We cannot vmap over non-Tensor arguments"),
    "in_dim range": (lambda w: w.func.vmap(lambda x: x, in_dims=2)(w.array(3, 2)), "-2 <= in_dim < 2"),
    "out_dims": (lambda w: w.func.vmap(lambda x: x, out_dims="a")(w.array(3)), "`out_dims` must be an int, None or a python collection of ints"),
    "out structure": (lambda w: w.func.vmap(lambda x: (x, x), out_dims=(0,))(w.array(3)), "out_dims is not compatible with the structure of `outputs`"),
    "out_dim range": (lambda w: w.func.vmap(lambda x: x, out_dims=3)(w.array(3)), "Dimension out of range"),
    "number out": (lambda w: w.func.vmap(lambda x: 3)(w.array(3)), "must only return Tensors, got type <class 'int'>"),
    "batched out None": (lambda w: w.func.vmap(lambda x: x, out_dims=None)(w.array(3)), "can not return a BatchedTensor when out_dim is None"),
    "randomness": (lambda w: w.func.vmap(lambda x: x, randomness="any")(w.array(3)), "Only allowed values for randomness"),
    "chunk": (lambda w: w.func.vmap(lambda x: x, chunk_size=0)(w.array(3)), "chunk_size should be None or greater than 0"),
    "random": (lambda w: w.func.vmap(lambda x: x + w.torch.rand(2))(w.array(3, 2)), "called random operation while in randomness error mode"),
    "dropout": (lambda w: w.func.vmap(lambda x: w.F.dropout(x))(w.array(3, 2)), "called random operation while in randomness error mode"),
    "same and batched": (lambda w: w.func.vmap(lambda x: w.torch.bernoulli(x.sigmoid()), randomness="same")(w.array(3, 2)), "not currently support same"),
    "in-place random": (lambda w: w.func.vmap(lambda x: x + w.torch.zeros(2).normal_(), randomness="different")(w.array(3, 2)),
                        "different inplace randomness on an unbatched tensor"),
    "write into one": (lambda w: w.func.vmap(lambda x, y: y.add_(x), (0, None))(w.array(3, 2), w.array(2)),),
    "requires_grad_": (lambda w: w.func.vmap(lambda x: x.requires_grad_())(w.array(3)), "Tensor.requires_grad_()"),
    "grad of a vector": (lambda w: w.func.grad(lambda x: x)(w.array(3)), "to return a scalar Tensor, got tensor with 1 dims"),
    "grad of a number": (lambda w: w.func.grad(lambda x: 2.0)(w.array(3)), "to return a Tensor, got <class 'float'>"),
    "grad aux": (lambda w: w.func.grad(lambda x: x.sum(), has_aux=True)(w.array(3)), "should be a tuple: (output, aux)"),
    "argnum": (lambda w: w.func.grad(lambda x: x.sum(), argnums=1)(w.array(3)), "Got argnum=1, but only 1 positional inputs"),
    "argnums twice": (lambda w: w.func.grad(lambda x, y: x.sum(), argnums=(0, 0))(w.array(3), w.array(3)), "argnums elements must be unique"),
    "no argnums": (lambda w: w.func.grad(lambda x: x.sum(), argnums=())(w.array(3)), "argnums must be non-empty"),
    "integer input": (lambda w: w.func.grad(lambda x: (x * 1.0).sum())(w.torch.arange(3)), "only Tensors of floating point"),
    "vjp of integers": (lambda w: w.func.vjp(lambda x: x > 0, w.array(3)), "All outputs of f must be floating-point or complex Tensors"),
    "vjp of numbers": (lambda w: w.func.vjp(lambda x: 2, w.array(3)), "to return only tensors"),
    "cotangents": (lambda w: w.func.vjp(lambda x: (x, x), w.array(3))[1](w.array(3)), "Expected pytree structure of cotangents to be the same"),
    "cotangent shape": (lambda w: w.func.vjp(lambda x: x, w.array(3))[1](w.array(2)), "Mismatch in shape"),
    "jvp primals": (lambda w: w.func.jvp(lambda x: x, w.array(3), (w.array(3),)), "Expected primals to be a tuple"),
    "jvp structure": (lambda w: w.func.jvp(lambda x: x, (w.array(3),), (w.array(3), w.array(3))), "to have the same python structure"),
    "jvp shape": (lambda w: w.func.jvp(lambda x: x, (w.array(3),), (w.array(2),)), "forward gradient that has a different size than"),
    "jvp numbers": (lambda w: w.func.jvp(lambda x: x, (2.0,), (1.0,)), "to only contain Tensors"),
    "jvp strict": (lambda w: w.func.jvp(lambda x: w.torch.ones(2), (w.array(3),), (w.array(3),), strict=True), "independent of the inputs"),
    "jacrev chunk": (lambda w: w.func.jacrev(lambda x: x, chunk_size=0), "`chunk_size` should be greater than 0"),
    "jacrev complex": (lambda w: w.func.jacrev(lambda x: x)(w.torch.complex(w.array(3), w.array(3))), "Expected all inputs to be real"),
    "functionalize": (lambda w: w.func.functionalize(lambda x: x, remove="all"), "received invalid argument for remove=all"),
    "two dictionaries": (lambda w: w.func.functional_call(w.nn.Linear(2, 2), ({"weight": w.array(2, 2)}, {"weight": w.array(2, 2)}), w.array(2)),
                         "appeared in multiple dictionaries"),
    "strict call": (lambda w: w.func.functional_call(w.nn.Linear(2, 2), {"w": w.array(2, 2)}, w.array(2), strict=True), "Unexpected key(s): 'w'."),
    "no models": (lambda w: w.func.stack_module_state([]), "Expected at least one model, got 0."),
    "two classes": (lambda w: w.func.stack_module_state([w.nn.Linear(2, 2), w.nn.ReLU()]), "to be of the same class"),
    "dual outside": (lambda w: w.forward.make_dual(w.array(2), w.array(2)), "no level exists, make sure to enter_dual_level() first."),
    "dual integers": (lambda w: _dual(w, w.torch.arange(3), w.array(3)), "Expected primal to be floating point or complex"),
    "dual twice": (lambda w: _twice(w), "Nested forward mode AD is not supported"),
    "custom without a rule": (lambda w: w.func.vmap(_cube(w).apply)(w.array(3)), "You tried to vmap over Cube, but it does not have vmap support."),
    "custom without jvp": (lambda w: w.func.jvp(_cube(w).apply, (w.array(3),), (w.array(3),)), "implement the jvp"),
}  # fmt: skip


def _dual(w: World, primal, tangent):
    with w.forward.dual_level():
        return w.forward.make_dual(primal, tangent)


def _twice(w: World):
    with w.forward.dual_level(), w.forward.dual_level():
        pass


def _cube(w: World):
    class Cube(w.torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return 3 * ctx.saved_tensors[0] ** 2 * g

    return Cube


@pytest.mark.parametrize("name", ERRORS)
def test_error(name: str) -> None:
    program, *parts = ERRORS[name]
    same_error(program, *parts)


def test_a_transform_that_fails_leaves_nothing_active() -> None:
    with pytest.raises(RuntimeError):
        ft.vmap(lambda x: x.item())(ft.ones(2))
    with pytest.raises(ZeroDivisionError):
        ft.func.jvp(lambda x: 1 / 0, (ft.ones(2),), (ft.ones(2),))
    assert (ft.ones(2) + 1).tolist() == [2.0, 2.0]


def test_tensors_that_escape_are_refused() -> None:
    kept = []
    ft.vmap(lambda x: kept.append(x) or x)(ft.ones(2, 3))
    with pytest.raises(RuntimeError, match="belongs to a vmap was used outside"):
        (kept[0] + 1).sum().item()


def test_out_is_refused() -> None:
    with pytest.raises(RuntimeError, match="out="):
        ft.vmap(lambda x: ft.add(x, x, out=ft.empty(3)))(ft.ones(2, 3))


def test_gradients_inside_of_vmap_with_respect_to_what_is_outside() -> None:
    p = ft.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Use torch\.func\.grad"):
        ft.vmap(lambda x: ft.autograd.grad((x * p).sum(), p)[0])(ft.ones(2, 3))


def test_unbatched_values_can_be_looked_at() -> None:
    assert ft.vmap(lambda x: x * float(ft.ones(3).sum()))(ft.ones(2, 2)).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_how_batched_and_dual_tensors_print() -> None:
    seen = []
    ft.vmap(lambda x: seen.append(repr(x)) or x)(ft.ones(2, 2))
    assert seen[0].startswith("BatchedTensor(lvl=1, bdim=0, value=\n    tensor([[1., 1.],")
    with ft.autograd.forward_ad.dual_level():
        assert repr(ft.autograd.forward_ad.make_dual(ft.ones(2), ft.zeros(2))) == "tensor([1., 1.], tangent=tensor([0., 0.]))"
