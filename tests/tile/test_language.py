"""Each function of the language: compiled and interpreted give the same, and what NumPy or the framework says."""

from __future__ import annotations

import numpy
import pytest

import flambeau
import flambeau.tile as tl
from flambeau.tile import CompilationError
from tests import processes

N = tl.constexpr(64)


@pytest.fixture(params=["compiled", "interpreted"])
def way(request, monkeypatch):
    monkeypatch.setenv("FLAMBEAU_TILE_INTERPRET", "1" if request.param == "interpreted" else "")
    return request.param


@tl.jit
def unary(x, out, n, NAME: tl.constexpr):
    at = tl.arange(0, 64)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, getattr(tl.math, NAME)(v), mask=at < n)


@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "floor", "ceil", "abs"])
def test_mathematics(way, name):
    x = flambeau.rand(50) + 0.1
    out = flambeau.empty(50)
    unary[(1,)](x, out, 50, NAME=name)
    assert flambeau.equal(out, getattr(flambeau, name)(x))


@tl.jit
def integers(x, y, out):
    at = tl.arange(0, 64)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a // b)
    tl.store(out + 64 + at, a % b)
    tl.store(out + 128 + at, (a << 2) ^ (b >> 1) | (a & ~b))
    tl.store(out + 192 + at, tl.where((a > b) & (a != 3), -a, b * 3))


def test_integers_divide_as_in_c(way):
    x, y = flambeau.randint(-50, 50, (64,), dtype=flambeau.int32), flambeau.randint(1, 9, (64,), dtype=flambeau.int32)
    out = flambeau.empty(256, dtype=flambeau.int32)
    integers[(1,)](x, y, out)
    a, b = x.numpy(), y.numpy()
    expected = [numpy.trunc(a / b), numpy.fmod(a, b), (a << 2) ^ (b >> 1) | (a & ~b), numpy.where((a > b) & (a != 3), -a, b * 3)]
    assert (out.numpy() == numpy.concatenate(expected)).all()


@tl.jit
def reductions(x, out, index, M: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    v = tl.load(x + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    size: tl.constexpr = K if AXIS == 0 else M
    at = tl.arange(0, size)
    tl.store(out + at, tl.sum(v, AXIS))
    tl.store(out + size + at, tl.max(v, AXIS))
    tl.store(out + 2 * size + at, tl.min(v, AXIS))
    tl.store(index + at, tl.argmax(v, AXIS))
    tl.store(index + size + at, tl.argmin(v, AXIS))


@pytest.mark.parametrize("shape", [(4, 8), (16, 128), (1, 256), (32, 1)])
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions(way, shape, axis):
    x = flambeau.randint(-9, 9, shape).float()
    size = shape[1 - axis]
    out, index = flambeau.empty(3 * size), flambeau.empty(2 * size, dtype=flambeau.int32)
    reductions[(1,)](x, out, index, M=shape[0], K=shape[1], AXIS=axis)
    a = x.numpy()
    assert (out.numpy() == numpy.concatenate([a.sum(axis), a.max(axis), a.min(axis)])).all()
    assert (index.numpy() == numpy.concatenate([a.argmax(axis), a.argmin(axis)])).all()


@tl.jit
def larger(a, b):
    return tl.maximum(a, b)


@tl.jit
def scans(x, out, M: tl.constexpr, K: tl.constexpr, AXIS: tl.constexpr):
    at = tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :]
    v = tl.load(x + at)
    tl.store(out + at, tl.cumsum(v, AXIS))
    tl.store(out + M * K + at, tl.associative_scan(v, AXIS, larger, reverse=True))
    tl.store(out + 2 * M * K + at, tl.sort(v))
    tl.store(out + 3 * M * K + at, tl.sort(v, descending=True))


@pytest.mark.parametrize("axis", [0, 1])
def test_scans_and_sorts(way, axis):
    x = flambeau.randint(-99, 99, (8, 32)).float()
    out = flambeau.empty(4, 8, 32)
    scans[(1,)](x, out, M=8, K=32, AXIS=axis)
    a, found = x.numpy(), out.numpy()
    assert (found[0] == a.cumsum(axis)).all()
    assert (found[1] == numpy.flip(numpy.maximum.accumulate(numpy.flip(a, axis), axis), axis)).all()
    assert (found[2] == numpy.sort(a, 1)).all()
    assert (found[3] == numpy.sort(a, 1)[:, ::-1]).all()


@tl.jit
def shapes(x, out):
    v = tl.load(x + tl.arange(0, 64))
    m = tl.reshape(v, (4, 16))
    t = tl.trans(m)
    tl.store(out + tl.arange(0, 16)[:, None] * 4 + tl.arange(0, 4)[None, :], t)
    a, b = tl.split(tl.reshape(v, (32, 2)))
    tl.store(out + 64 + tl.arange(0, 64), tl.interleave(b, a))
    tl.store(out + 128 + tl.arange(0, 64), tl.cat(b, a))
    tl.store(out + 192 + tl.arange(0, 64), tl.gather(v, 63 - tl.arange(0, 64), 0))
    tl.store(out + 256 + tl.arange(0, 64), tl.ravel(tl.permute(tl.reshape(v, (2, 4, 8)), (2, 0, 1))))


def test_shapes(way):
    x, out = flambeau.randn(64), flambeau.empty(320)
    shapes[(1,)](x, out)
    a = x.numpy()
    pairs = a.reshape(32, 2)
    expected = [a.reshape(4, 16).T.ravel(), pairs[:, ::-1].ravel(), pairs.T[::-1].ravel(), a[::-1], a.reshape(2, 4, 8).transpose(2, 0, 1).ravel()]
    assert (out.numpy() == numpy.concatenate(expected)).all()


@tl.jit
def atomics(x, total, counts):
    pid = tl.program_id(0)
    v = tl.load(x + pid * 16 + tl.arange(0, 16))
    tl.atomic_add(total, tl.sum(v))
    tl.atomic_max(total + 1, tl.max(v))
    tl.atomic_add(counts + v, 1, mask=v < 4)
    tl.atomic_cas(total + 2, 0, pid + 1)


def test_atomics(way):
    x = flambeau.randint(0, 8, (160,), dtype=flambeau.int32)
    total, counts = flambeau.zeros(3, dtype=flambeau.int32), flambeau.zeros(4, dtype=flambeau.int32)
    atomics[(10,)](x, total, counts)
    assert total[:2].tolist() == [int(x.sum()), int(x.max())]
    assert 1 <= int(total[2]) <= 10
    assert counts.tolist() == [int((x == i).sum()) for i in range(4)]


@tl.jit
def control(out, n, flag, STEPS: tl.constexpr):
    i, a, b = 0, 0, 1
    while i < n:
        a, b = b, a + b
        i += 1
    tl.store(out, a)
    total = tl.zeros((16,), tl.int32)
    for k in tl.static_range(STEPS):
        total += tl.arange(0, 16) * k
    if flag > 2:
        total = total + 1
    else:
        total = total - 1
    x = 5 if flag > 2 else 7
    tl.store(out + 1 + tl.arange(0, 16), total + x)
    for j in range(10, 0, -3):
        tl.store(out + 20 + j, j)
    if flag == 4:
        return
    tl.store(out + 19, 99)


@pytest.mark.parametrize("flag", [0, 3, 4])
def test_control(way, flag):
    out = flambeau.zeros(40, dtype=flambeau.int32)
    control[(1,)](out, 10, flag, STEPS=4)
    expected = numpy.zeros(40, numpy.int32)
    expected[0] = 55
    expected[1:17] = 6 * numpy.arange(16) + (1 + 5 if flag > 2 else -1 + 7)
    expected[[30, 27, 24, 21]] = 10, 7, 4, 1
    expected[19] = 0 if flag == 4 else 99
    assert (out.numpy() == expected).all()


@tl.jit
def descriptors(x, out, M, K, B: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, K], [K, 1], [B, B])
    to = tl.make_tensor_descriptor(out, [M, K], [K, 1], [B, B])
    i, j = tl.program_id(0) * B, tl.program_id(1) * B
    to.store([i, j], source.load([i, j]) * 2)


def test_descriptors(way):
    x = flambeau.randn(19, 21)
    out = flambeau.zeros(19, 21)
    descriptors[(3, 3)](x, out, 19, 21, B=8)
    assert flambeau.equal(out, x * 2)


@tl.jit
def draws(out, seed):
    at = tl.arange(0, 64)
    tl.store(out + at, tl.randint(seed, at))


def test_philox_words(way):
    """The first block of the paper's known answers: key and counter of zeros."""
    out = flambeau.empty(64, dtype=flambeau.int64)
    draws[(1,)](out, 0)
    assert int(out[0]) & 0xFFFFFFFF == 0x6627E8D5
    other = flambeau.empty(64, dtype=flambeau.int64)
    draws[(1,)](other, 1)
    assert (out != other).all()


@tl.jit
def asserts(x):
    tl.device_assert(tl.load(x + tl.arange(0, 4)) > 0, "must be positive")


def test_assertions_name_the_line(way):
    asserts[(1,)](flambeau.ones(4))
    with pytest.raises(AssertionError, match=r"test_language\.py:\d+: device assertion failed: must be positive"):
        asserts[(1,)](flambeau.zeros(4))


@tl.jit
def prints(x):
    tl.device_print("value", tl.load(x + tl.arange(0, 2)))


def test_prints(capsys):
    prints[(1,)](flambeau.tensor([3, 4]))
    assert capsys.readouterr().out == "pid (0, 0, 0) idx (0)value 3\npid (0, 0, 0) idx (1)value 4\n"


@tl.jit
def wrong_shapes(x):
    a = tl.arange(0, 4) + tl.arange(0, 8)
    tl.store(x + a, 1)


@tl.jit
def wrong_name(x):
    tl.store(x, undefined_name)  # noqa: F821


@tl.jit
def wrong_size(x):
    tl.store(x + tl.arange(0, 6), 1)


@tl.jit
def wrong_carry(x):
    total = 0
    for _ in range(4):
        total = total + tl.load(x)
    tl.store(x, total)


@pytest.mark.parametrize(
    "kernel, text",
    [
        (wrong_shapes, r"shapes \(4,\) and \(8,\)"), (wrong_name, "undefined_name is not defined"), (wrong_size, r"powers of two, got shape \(6,\)"),
        (wrong_carry, "total is int32 before the loop and float32 after"),
    ],
)  # fmt: skip
def test_errors_name_the_line(kernel, text):
    with pytest.raises(CompilationError, match=r"test_language\.py:\d+: .*" + text):
        kernel[(1,)](flambeau.ones(8))


@tl.jit
def outside(x, n):
    tl.store(x + tl.arange(0, 16), 1.0)


def test_interpreter_sees_accesses_outside(monkeypatch):
    monkeypatch.setenv("FLAMBEAU_TILE_INTERPRET", "1")
    with pytest.raises(IndexError, match="is a mask missing"):
        outside[(1,)](flambeau.ones(1 << 10)[(1 << 10) - 4 :], 4)


@tl.jit
def doubled(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(x + at, tl.load(x + at) * 2)
    else:
        tl.store(x + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def test_autotune_and_heuristics():
    tuned = tl.autotune([tl.Config({"BLOCK": 64}), tl.Config({"BLOCK": 128}), tl.Config({"BLOCK": 64}, num_warps=8)], key=["n"], restore_value=["x"])(
        tl.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(doubled)
    )
    x = flambeau.ones(200)
    tuned[lambda meta: (tl.cdiv(200, meta["BLOCK"]),)](x, 200)
    assert (x == 2).all()
    assert tuned.best_config.kwargs["BLOCK"] in (64, 128)


def test_the_function_tile_stays():
    assert flambeau.tile(flambeau.ones(2), (2,)).shape == (4,)


@tl.jit
def cubes(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(out + at, v * v * v, mask=at < n)


def test_triton_op_has_gradients():
    @flambeau.library.triton_op("tests_tile::cube", mutates_args=())
    def cube(x: flambeau.Tensor) -> flambeau.Tensor:
        out = flambeau.empty_like(x)
        flambeau.library.wrap_triton(cubes)[(tl.cdiv(x.numel(), 32),)](x, out, x.numel(), BLOCK=32)
        return out

    cube.register_autograd(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    x = flambeau.randn(50, requires_grad=True)
    cube(x).sum().backward()
    flambeau.testing.assert_close(x.grad, 3 * x.detach() ** 2)


def test_pending_reads_see_what_was_there():
    """What is recorded before a launch reads the memory as it was then; what is recorded after it, as it is now."""
    x = flambeau.ones(64)
    before = x + 1
    doubled[(1,)](x, 64, BLOCK=64, EVEN=True)
    after = x + 1
    assert (before == 2).all() and (after == 3).all()


def test_a_leaf_that_wants_gradients_is_not_written():
    with pytest.raises(RuntimeError, match="requires grad"):
        doubled[(1,)](flambeau.ones(64, requires_grad=True), 64, BLOCK=64, EVEN=True)


def test_under_triton_s_name(tmp_path):

    script = tmp_path / "script.py"
    script.write_text(
        "import torch, triton\nimport triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n"
        "@triton.jit\ndef double(d, out, B: tl.constexpr):\n"
        "    tl.store(out + tl.arange(0, B), d.load([0]) * 2)\n"
        "x, out = torch.arange(8.0), torch.empty(8)\n"
        "double[(1,)](TensorDescriptor.from_tensor(x, [8]), out, B=triton.next_power_of_2(7))\n"
        "print(out.tolist() == (x * 2).tolist(), tl.float32, triton.cdiv(7, 2))\n"
    )
    done = processes.python("-m", "flambeau", "run", str(script))
    assert done.stdout == "True fp32 4\n", done.stderr


def test_classes_that_packages_derive_from():
    """Arguments of the tuner and of heuristics by position, in Triton's order."""
    import inspect

    from flambeau.tile.as_triton import modules
    from flambeau.tile.tuning import Autotuner, Heuristics

    wanted = "fn arg_names configs key reset_to_zero restore_value pre_hook post_hook prune_configs_by warmup rep use_cuda_graph do_bench cache_results"
    assert list(inspect.signature(Autotuner).parameters) == wanted.split()
    assert list(inspect.signature(Heuristics).parameters) == ["fn", "arg_names", "values"]

    class Own(Autotuner):
        def __init__(self, fn, arg_names, configs, key, reset_to_zero, restore_value, **options):
            super().__init__(fn, arg_names, configs, key, reset_to_zero, restore_value, **options)

    @tl.jit
    def doubled(x_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * 2, mask=at < n)

    configs = [tl.Config({"BLOCK": 64}), tl.Config({"BLOCK": 32})]
    tuned = Own(doubled, doubled.arg_names, configs, ["n"], None, ["x_ptr"], pre_hook=None, post_hook=None, prune_configs_by=None, warmup=None)
    assert not tuned.user_defined_pre_hook and tuned.early_config_prune is None
    x = flambeau.arange(10.0)
    tuned[(1,)](x, 10)
    assert x.tolist() == [2.0 * i for i in range(10)] and tuned.keys == ["n"]
    core = modules()["triton.language.core"]
    assert core.get_int_dtype(bitwidth=32, signed=True) is tl.int32 and core.get_int_dtype(8, False) is tl.uint8 and core.CONSTEXPR_0.value == 0
    with pytest.raises(ValueError, match="no signed integer of 7 bits"):
        core.get_int_dtype(7, True)
    assert modules()["triton.language.standard"]._log2(tl.constexpr(64)).value == 6


@tl.jit
def fused(out, x, y, z, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.fma(tl.load(x + at), tl.load(y + at), tl.load(z)))


@pytest.mark.parametrize("kind", ["float32", "float64", "int32"])
def test_fma_rounds_once(way, kind):
    small = {"float32": 2.0**-12, "float64": 2.0**-30, "int32": 3}[kind]
    x, y, z = (flambeau.full((n,), v, dtype=getattr(flambeau, kind)) for n, v in ((16, 1 + small), (16, 1 - small), (1, -1)))
    out = flambeau.empty_like(x)
    fused[(1,)](out, x, y, z, BLOCK=16)
    assert (out == -small * small).all()
