"""Files of Python 2 read with encoding="bytes", storages without bytes saved under several dtypes, and what is no file."""

import io

import pytest
import torch

import flambeau

# [b"\xc5\xbc\xc4\x85", zeros(1), 2] as Python 2.7 and PyTorch 0.4 wrote it.
OLD = (
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x01(U\x10protocol_versionq\x02M\xe9\x03U\ntype_sizesq\x03}q\x04(U\x03intq\x05"
    b"K\x04U\x05shortq\x06K\x02U\x04longq\x07K\x04uU\rlittle_endianq\x08\x88u.\x80\x02]q\x01(U\x04\xc5\xbc\xc4\x85q\x02ctorch._utils\n_rebuild_tensor_v2\n"
    b"q\x03((U\x07storageq\x04ctorch\nFloatStorage\nq\x05U\x0845640624q\x06U\x03cpuq\x07\x8a\x01\x01NtQK\x00K\x01\x85K\x01\x85\x89NtRq\x08K\x02e."
    b"\x80\x02]q\x01U\x0845640624q\x02a.\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
)


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(("encoding", "text"), [("bytes", b"\xc5\xbc\xc4\x85"), ("utf-8", "\u017c\u0105")])
@pytest.mark.filterwarnings("ignore:pickle_load_args")
def test_files_of_python_2(encoding, text, weights_only):
    for m in (flambeau, torch):
        found = m.load(io.BytesIO(OLD), weights_only=weights_only, encoding=encoding)
        assert found[0] == text
        assert found[1].tolist() == [0.0]
        assert found[2] == 2


@pytest.mark.parametrize("legacy", [True, False])
def test_storages_without_bytes_have_any_dtype(legacy):
    for m in (flambeau, torch):
        for d in (m.float32, m.int64, m.complex128, m.bool):
            empty = m.tensor([], dtype=m.float64)
            other = m.storage.TypedStorage(wrap_storage=empty.untyped_storage(), dtype=d)
            file = io.BytesIO()
            m.save([empty, other, m.ones(2)], file, _use_new_zipfile_serialization=not legacy)
            file.seek(0)
            a, b, c = m.load(file)
            assert (a.dtype, tuple(a.shape), b.dtype, b.size(), c.tolist()) == (m.float64, (0,), d, 0, [1.0, 1.0])


def test_what_cannot_be_written_to():
    for m in (flambeau, torch):
        for target in (m.ones(2), 3, None, [1]):
            with pytest.raises(AttributeError, match="with a 'write' attribute"):
                m.save("x", target)
