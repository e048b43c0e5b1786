"""What PyTorch's own tests ask of sizes, storages, dtypes, old constructors and settings: the same outcome here."""

import io
import pickle
import warnings

import numpy as np
import pytest
import torch

import flambeau


def outcome(call, m):
    """What a call gives, as text, or the type of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return str(call(m)).replace("flambeau", "torch")
        except Exception as error:
            return type(error)


def typed_names(s):
    return s._size(), s._nbytes(), s._element_size(), s._untyped_storage.nbytes(), s._is_shared()


def numbers_of(x, y):
    return x.storage()._cdata == x.untyped_storage()._cdata, x.storage()._cdata == y.storage()._cdata


def unscaled(m, *rows):
    grads, found = [m.tensor(row) for row in rows], m.zeros(1)
    m._amp_foreach_non_finite_check_and_unscale_(grads, found, m.tensor([0.25]))
    return grads, found


def updated(m, found, steps):
    scale, tracker = m.tensor([8.0]), m.tensor([steps], dtype=m.int32)
    m._amp_update_scale_(scale, tracker, m.tensor([found]), 2.0, 0.5, 2)
    return scale, tracker


def set_to(x, empty, other):
    return x.is_set_to(x[:]), x.is_set_to(x[1:]), empty.is_set_to(other), empty.is_set_to(empty.detach())


CALLS = {
    "Size of floats": lambda m: m.Size(m.ones(3)),
    "Size of ints": lambda m: m.Size(m.tensor([1, 2])),
    "Size of a float": lambda m: m.Size([1, 2.5]),
    "Size of text": lambda m: m.Size("ab"),
    "Size of bools": lambda m: m.Size([True]),
    "Size of an array": lambda m: m.Size(np.array([1, 2])),
    "Size of an array of floats": lambda m: m.Size(np.array([1.0, 2.0])),
    "Size of tensors": lambda m: [type(n) for n in m.Size([m.tensor(3), 4])],
    "Size of a tensor of a float": lambda m: m.Size([m.tensor(3.0)]),
    "Size times": lambda m: (m.Size([1, 2]) * 2, 3 * m.Size([1]), m.Size([1, 2]) * True),
    "Size times text": lambda m: m.Size([1]) * "a",
    "64 bits beside uint64": lambda m: (m.tensor([1, 2**64 - 1], dtype=m.uint64) == 2**64 - 1, m.tensor([2**63], dtype=m.uint64) != 2**63),
    "64 bits beside floats": lambda m: (m.ones(2) == 2**64 - 1, m.ones(2) + (2**64 - 1), m.tensor([2.0**63]) - 2**63),
    "65 bits": lambda m: m.ones(2) + 2**65,
    "Size of None": lambda m: m.Size([None]),
    "is_signed of quantized dtypes": lambda m: m.qint8.is_signed,
    "is_signed": lambda m: (m.int8.is_signed, m.uint8.is_signed),
    "a name that no dtype has": lambda m: m.float32.signed,
    "names of typed storages": lambda m: typed_names(m.arange(4.0).storage()),
    "storages apart": lambda m: numbers_of(m.ones(2), m.ones(2)),
    "dtypes of storage classes": lambda m: (m.FloatStorage._dtype, m.FloatStorage.dtype, m.QUInt4x2Storage.dtype, m.QUInt2x4Storage.dtype),
    "sizes in memory": lambda m: m.ones(100).storage().__sizeof__() - m.ones(10).storage().__sizeof__(),
    "a tensor of a storage": lambda m: m.tensor(m.arange(4.0).storage()._untyped_storage, dtype=m.float32),
    "resize of NumPy's memory": lambda m: m.from_numpy(np.ones(3)).resize_(10),
    "resize within NumPy's memory": lambda m: m.from_numpy(np.ones(3)).resize_(2).shape,
    "resize of a storage of NumPy's": lambda m: m.from_numpy(np.ones(3)).untyped_storage().resize_(100),
    "resizable": lambda m: (m.from_numpy(np.ones(3)).untyped_storage().resizable(), m.ones(3).untyped_storage().resizable()),
    "resize of what NumPy sees": lambda m: (lambda x, seen: x.resize_(len(seen) + 5))(*(lambda x: (x, x.numpy()))(m.ones(5))),
    "out= of NumPy's memory": lambda m: m.add(m.ones(4), 1, out=m.from_numpy(np.ones(1, np.float32))),
    "apply_ of no number": lambda m: m.ones(2).apply_(lambda x: "text"),
    "apply_ of no function": lambda m: m.ones(2).apply_("text"),
    "map_ of no function": lambda m: m.ones(2).map_(m.ones(2), "text"),
    "map2_ with gradients": lambda m: m.ones(2).map2_(m.ones(2), m.ones(2, requires_grad=True), lambda a, b, c: a),
    "map2_": lambda m: m.ones(2).map2_(m.ones(2), m.ones(2), lambda a, b, c: a + b + c),
    "new by name": lambda m: m.tensor([]).new(size=(3, 4)).shape,
    "type of the class": lambda m: m.ones(2).int().type(m.Tensor).dtype,
    "a class of FloatTensor": lambda m: type("Mine", (m.FloatTensor,), {}),
    "diff with another dtype": lambda m: m.tensor([1, 4]).diff(prepend=m.tensor([0.5])),
    "diff with another shape": lambda m: m.ones(2, 3).diff(dim=0, prepend=m.ones(1, 2)),
    "diff with another number of dims": lambda m: m.ones(2, 3).diff(dim=0, prepend=m.ones(3)),
    "lstsq of a number": lambda m: m.linalg.lstsq(m.ones(2, 3), m.ones(())),
    "fractional pools of nothing": lambda m: m.nn.FractionalMaxPool2d(3, output_ratio=0.5)(m.ones(1, 0, 50, 32)),
    "load without seek": lambda m: m.load(type("File", (), {"read": lambda self, n=-1: b"data"})(), weights_only=False),
    "set to each other": lambda m: set_to(m.ones(3), m.empty(0), m.empty(0)),
    "a method that refuses": lambda m: m.rand(100, dtype=m.cdouble).stft(10, pad_mode="constant", onesided=True),
    "a method with an unknown keyword": lambda m: m.rand(100).stft(10, foo=3),
    "a method with a wrong argument": lambda m: m.rand(100).stft(2.5),
    "a device that is not there": lambda m: m.tensor([1], device="cuda"),
    "moved to a device that is not there": lambda m: m.tensor([1]).to("cuda"),
    "format of a meta tensor": lambda m: format(m.empty((), device="meta")),
    "index_select of nothing": lambda m: m.ones(0, 2).index_select(0, m.tensor([0])),
    "typed storage without a warning": lambda m: m.arange(3.0)._typed_storage().tolist(),
    "gradient of too few spacings": lambda m: m.gradient(m.ones(3, 3), spacing=[1.0]),
    "unscaled gradients": lambda m: unscaled(m, [1.0, 2.0], [3.0]),
    "unscaled gradients with an infinity": lambda m: unscaled(m, [1.0, float("inf")], [3.0]),
    "a scale that grows": lambda m: updated(m, 0.0, 1),
    "a scale that waits": lambda m: updated(m, 0.0, 0),
    "a scale that shrinks": lambda m: updated(m, 1.0, 1),
    "unusual logits": lambda m: m.distributions.Binomial(1.0, logits=m.tensor([-100.0, 100.0])).log_prob(m.tensor([0.0, 0.0])).isfinite(),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_outcomes_are_pytorchs(name):
    ours, theirs = outcome(CALLS[name], flambeau), outcome(CALLS[name], torch)
    assert issubclass(ours, theirs) if isinstance(ours, type) and isinstance(theirs, type) else ours == theirs


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("warn_only", [True, False])
def test_deterministic_algorithms_are_what_was_set(mode, warn_only):
    for m in (flambeau, torch):
        m.use_deterministic_algorithms(mode, warn_only=warn_only)
        try:
            assert m.are_deterministic_algorithms_enabled() is mode
            assert m.get_deterministic_debug_mode() == ((1 if warn_only else 2) if mode else 0)
            if mode:
                assert m.empty(10, 9, out=m.zeros(1)).isnan().all()
        finally:
            m.use_deterministic_algorithms(False)


def test_an_earlier_error_does_not_keep_the_default_dtype():
    def write(where):
        index = (flambeau.tensor([where, 1.0]) * 1).to(flambeau.int64)
        return flambeau.zeros(5).index_add_(0, index, flambeau.ones(2))

    for _ in range(8):
        write(1.0).sum().item()
    try:
        with pytest.raises(RuntimeError):
            late = write(257.0)
            flambeau.set_default_dtype(flambeau.float64)
            late.sum().item()
        flambeau.set_default_dtype(flambeau.float64)
        assert flambeau.get_default_dtype() is flambeau.float64
    finally:
        flambeau.set_default_dtype(flambeau.float32)


@pytest.mark.parametrize("legacy", [True, False])
def test_load_asks_the_unpickler_that_it_is_given(legacy):
    class Asked(pickle.Unpickler):
        found = []

        def find_class(self, module, name):
            self.found.append(name)
            return super().find_class(module, name)

        def load(self):
            self.found.append("load")
            return super().load()

    class Module:
        Unpickler = Asked

    file = io.BytesIO()
    flambeau.save({"x": flambeau.ones(2)}, file, _use_new_zipfile_serialization=not legacy)
    file.seek(0)
    assert flambeau.load(file, pickle_module=Module, weights_only=False)["x"].tolist() == [1.0, 1.0]
    assert "load" in Asked.found


def test_gradcheck_calls_its_function_with_gradients_on():
    def function(x):
        twice = x * 2
        return tuple([t for t in (twice, x.detach()) if t.requires_grad])

    for m in (flambeau, torch):
        assert m.autograd.gradcheck(function, (m.rand(3, dtype=m.float64, requires_grad=True),), fast_mode=True)


def test_a_scaler_gives_itself_to_steps_that_ask_for_it():
    for m in (flambeau, torch):
        given = []

        class Own(m.optim.Optimizer):
            _step_supports_amp_scaling = True

            def step(self, closure=None, *, grad_scaler=None):
                given.append(grad_scaler)  # noqa: B023 - called at once

        layer = m.nn.Linear(2, 1)
        scaler, own = m.amp.GradScaler("cpu", init_scale=2.0), Own(layer.parameters(), {})
        scaler.scale(layer(m.ones(1, 2)).mean()).backward()
        with pytest.warns(FutureWarning, match="stop passing itself"):
            scaler.step(own)
        assert given == [scaler]
