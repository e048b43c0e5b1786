"""torch.storage: bytes and elements under tensors, sharing through set_, deepcopy and pickle; against PyTorch."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

import flambeau
from tests import processes
from tests.nn.oracle import torch

BOTH = (flambeau, torch)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="TypedStorage is deprecated")
        yield


def reads(m):
    t = m.arange(6.0).reshape(2, 3)
    s = t.untyped_storage()
    typed = t.storage()
    return [
        s.nbytes(), s.size(), len(s), s[6], s.tolist(), list(s), s == t[1].untyped_storage(), s is t.untyped_storage(), s == s.clone(),
        s.device.type, s.is_cuda, s.is_shared(), s.element_size(), s.type(), repr(s), repr(typed), typed[2], typed.size(), typed.nbytes(),
        typed.tolist(), typed.type(), typed.dtype.itemsize, typed.element_size(), typed.int().tolist(), typed.half().type(), s.short().tolist(),
        isinstance(typed, m.FloatStorage), isinstance(typed, m.LongStorage), issubclass(m.FloatStorage, m.TypedStorage), m.is_storage(s),
        m.is_storage(typed), m.is_storage(t), s.data_ptr() == t.data_ptr() == typed.data_ptr(), t[1].storage_offset(), t.storage_type() is m.FloatStorage,
        m.LongStorage([1, 2]).tolist(), m.BoolStorage([True, False]).tolist(), m.ComplexFloatStorage([1j]).tolist(), m.UntypedStorage([1, 255]).tolist(),
        len(m.DoubleStorage()), m.TypedStorage([1, 2], dtype=m.int16).nbytes(), m.TypedStorage(wrap_storage=s, dtype=m.int32)[1], typed.filename,
        m.BFloat16Storage([1.5, 2]).float().tolist(),
    ]  # fmt: skip


def test_reading():
    assert reads(flambeau) == reads(torch)


def writes(m):
    t = m.arange(6.0).reshape(2, 3)
    out = []
    y = t * 2  # recorded before the writes: must see what was there
    s = t.untyped_storage()
    s[3] = 0
    s[20:24] = 1
    out += [t.tolist(), y.tolist()]
    typed = t.storage()
    typed[1] = 7
    z = t + 1
    typed[4:] = 9
    out += [t.tolist(), z.tolist()]
    t.mul_(2)
    out += [typed.tolist(), typed.copy_(m.IntStorage([1, 2, 3, 4, 5, 6])).tolist(), t.tolist()]
    other = m.zeros(6)
    other.untyped_storage().copy_(s)
    out += [other.tolist(), typed.fill_(2).tolist(), t[1].tolist(), typed.clone().fill_(3).tolist(), t.tolist()]
    s.byteswap(m.float32)
    out += [s.tolist()]
    return out


def test_writing():
    assert writes(flambeau) == writes(torch)


def sets(m):
    t = m.arange(6.0)
    s = t.untyped_storage()
    out = []
    for args in ((t,), (s,), (t.storage(),), (s, 1, (2, 2)), (s, 0, (2, 3), (1, 2)), (t.storage(), 2, (2,), (2,)), ()):
        x = m.ones(3).set_(*args)
        out.append((tuple(x.shape), tuple(x.stride()), x.storage_offset(), x.tolist()))
    alias = m.empty(0).set_(s, 0, (6,))
    as_int = m.empty(0, dtype=m.int32).set_(s, 0, (6,))
    alias.mul_(2)
    t[1] = -1
    out += [t.tolist(), alias.tolist(), as_int.tolist()]
    as_int[0] = 1065353216
    out += [t.tolist(), (alias + as_int).tolist()]
    grown = m.ones(2)
    grown.set_(grown.untyped_storage(), 0, (4,))
    out += [tuple(grown.shape), grown[:2].tolist(), grown.untyped_storage().nbytes()]
    small = m.arange(4.0)
    small.untyped_storage().resize_(8)
    out += [small.untyped_storage().nbytes(), small.storage().tolist()]
    return out


def test_set():
    assert sets(flambeau) == sets(torch)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.arange(2.0).untyped_storage()[8], lambda m: m.arange(2.0).storage()[2], lambda m: m.FloatStorage("a"),
        lambda m: m.tensor([1.0]).set_(m.tensor([1])), lambda m: m.UntypedStorage.from_buffer(b"abcd", dtype=m.float32),
        lambda m: m.UntypedStorage.from_buffer(b"abc", "native", dtype=m.int16), lambda m: m.from_file("/no/such/file", size=4),
        lambda m: m.FloatStorage(2, dtype=m.float32), lambda m: m.TypedStorage.from_file("x", False, 2), lambda m: m.tensor([1]).set_(m.FloatStorage(1)),
        lambda m: m.UntypedStorage.from_buffer(b"ab", "middle", dtype=m.int16), lambda m: m.arange(2.0).storage()["a"],
    ],
)  # fmt: skip
def test_errors(call):
    with pytest.raises(Exception) as theirs:
        call(torch)
    with pytest.raises(type(theirs.value)):
        call(flambeau)


def test_buffers_and_files(tmp_path):
    for m in BOTH:
        assert m.FloatStorage.from_buffer(b"\0\0\x80?" * 2, "little").tolist() == [1.0, 1.0]
        assert m.ShortStorage.from_buffer(b"\0\1\0\2", "big").tolist() == [1, 2]
        assert m.UntypedStorage.from_buffer(b"abcd", "native", 1, 2, dtype=m.int16).tolist() == [99, 100]
        path = str(tmp_path / m.__name__)
        t = m.from_file(path, shared=True, size=4)  # makes the file
        t.copy_(m.arange(4.0))
        assert m.from_file(path, size=2, shared=False).tolist() == [0.0, 1.0]
        private = m.from_file(path, shared=False, size=4, dtype=m.float32)
        private.fill_(5)
        assert m.FloatStorage.from_file(path, True, 4).tolist() == [0.0, 1.0, 2.0, 3.0]
        assert m.UntypedStorage.from_file(path, True, 4).filename == path
        with pytest.raises(RuntimeError, match="smaller"):
            m.from_file(path, size=100)


def copies(m, copier):
    base = m.arange(6.0)
    a, b, c = copier([base, base[2:], base.view(2, 3).t()])
    a.add_(1)
    p = m.nn.Parameter(m.ones(2))
    p.grad = m.ones(2)
    q, r = copier([p, p])
    s, u = copier([base.untyped_storage(), base])
    s[3] = 65
    return [
        b.tolist(), c.tolist(), tuple(c.stride()), b.storage_offset(), base.tolist(), q is r, type(q).__name__, q.requires_grad, q.tolist(), u.tolist()
    ]  # fmt: skip


def test_copies_keep_sharing():
    theirs = copies(torch, copy.deepcopy)
    for copier in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: pickle.loads(pickle.dumps(x, 2))):
        assert copies(flambeau, copier) == theirs  # PyTorch's pickles do not keep it (docs/differences.md)


def test_everything_is_pickled_and_copied():
    m = flambeau
    model = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.BatchNorm1d(3), m.nn.Dropout(), m.nn.LSTM(3, 2))
    optimizer = m.optim.AdamW(model.parameters(), amsgrad=True)
    (y, _) = model(m.ones(4, 2))
    y.sum().backward()
    optimizer.step()
    scheduler = m.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    for copier in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        again, opt, sched = copier((model, optimizer, scheduler))
        assert opt.param_groups[0]["params"][0] is again[0].weight and sched.optimizer is opt
        assert again[0].weight.tolist() == model[0].weight.tolist() and opt.state[again[0].weight]["step"] == 1
        opt.step()
        sched.step()
        assert opt.param_groups[0]["lr"] < optimizer.param_groups[0]["lr"]
        for value in (m.bool, m.float32, m.bfloat16, m.device("cpu"), m.Size([1, 2]), m.preserve_format, m.channels_last):
            assert copier(value) == value, value
        assert type(copier(m.Size([1]))) is m.Size
        generator = m.Generator().manual_seed(3)
        m.rand(5, generator=generator)
        twin = copier(generator)
        assert m.randn(3, generator=generator).tolist() == m.randn(3, generator=twin).tolist() and twin.initial_seed() == 3
        t = m.arange(3).to(m.bfloat16).requires_grad_()
        assert copier(t).requires_grad and copier(t).dtype is m.bfloat16
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(model(m.ones(4, 2))[0])


_READER = """
import pickle, sys, torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
a, p, attributed, module = pickle.load(open(sys.argv[1], "rb"))
print(a.tolist(), a.stride(), p.tolist(), type(p) is torch.nn.Parameter, attributed.tag, module(torch.ones(1, 2)).tolist() == [[3.0]])
flat = _flatten_dense_tensors([a, p])
print(flat.shape[0], [tuple(t.shape) for t in _unflatten_dense_tensors(flat, [a, p])])
"""


def test_plain_pickles_of_pytorch_under_flambeau_run(tmp_path):
    module = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(module.weight)
    torch.nn.init.ones_(module.bias)
    attributed = torch.zeros(1)
    attributed.tag = "x"
    with open(tmp_path / "p.pkl", "wb") as file:
        pickle.dump((torch.arange(6.0).view(2, 3).t(), torch.nn.Parameter(torch.ones(2)), attributed, module), file)
    (tmp_path / "reader.py").write_text(_READER)
    done = processes.python("-W", "error::UserWarning", "-m", "flambeau", "run", str(tmp_path / "reader.py"), str(tmp_path / "p.pkl"), timeout=60)  # fmt: skip
    assert done.stdout.splitlines() == [
        "[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]] (1, 3) [1.0, 1.0] True x True", "8 [(3, 2), (2,)]"
    ], done.stderr  # fmt: skip


def test_storages_of_meta_have_no_elements():
    made = (
        lambda m: m.TypedStorage([1, 2], device="meta", dtype=m.float32),
        lambda m: m.empty(2, device="meta").storage(),
        lambda m: m.UntypedStorage(4, device="meta"),
    )
    for make in made:
        for use in (lambda s: s[0], lambda s: s[9], lambda s: s.tolist(), list, lambda s: s.cpu()):
            for library in (torch, flambeau):
                with pytest.raises(NotImplementedError):
                    use(make(library))
            assert make(flambeau).size() == make(torch).size()


def test_names_of_legacy_classes():
    ours, theirs = (m.storage._dtype_to_storage_type_map() for m in (flambeau, torch))
    assert {str(d).rpartition(".")[2]: name for d, name in ours.items()} == {str(d).rpartition(".")[2]: name for d, name in theirs.items()}
    assert flambeau.storage._storage_type_to_dtype_map()["FloatStorage"] is flambeau.float32


def test_storage_of_the_default_dtype() -> None:
    for module in BOTH:
        before = module.get_default_dtype()
        try:
            found = []
            for kind in (module.float32, module.float64, module.float16):
                module.set_default_dtype(kind)
                found.append((module.Storage.__name__, module.Storage(3).dtype is kind))
            assert found == [("FloatStorage", True), ("DoubleStorage", True), ("HalfStorage", True)]
        finally:
            module.set_default_dtype(before)
