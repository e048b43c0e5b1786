"""Clients that others keep drive the server: tritonclient over HTTP and gRPC."""

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from tests.serve.running import Affine, put, refresh, running

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")


class Sums(nn.Module):
    def forward(self, ids, flags):
        return ids.sum(1), flags.logical_not()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    put(folder, "affine", 1, Affine())
    b = torch.export.Dim("batch", min=1, max=16)
    program = torch.export.export(Sums(), (torch.ones(2, 5, dtype=torch.int64), torch.ones(2, dtype=torch.bool)), dynamic_shapes=({0: b}, {0: b}))
    (folder / "sums" / "1").mkdir(parents=True)
    torch.export.save(program, str(folder / "sums" / "1" / "model.pt2"))
    with running(folder, grpc_port=0) as s:
        yield s


@pytest.fixture(params=["http", "grpc"])
def triton(request, server):
    module = pytest.importorskip(f"tritonclient.{request.param}")
    client = module.InferenceServerClient(f"127.0.0.1:{server.port if request.param == 'http' else server.grpc_port}")
    yield module, client
    client.close()


def _inputs(module, **arrays):
    utils = pytest.importorskip("tritonclient.utils")
    made = []
    for name, a in arrays.items():
        made.append(module.InferInput(name, list(a.shape), utils.np_to_triton_dtype(a.dtype)))
        made[-1].set_data_from_numpy(a)
    return made


def test_health_and_metadata(triton):
    module, client = triton
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("affine") and client.is_model_ready("affine", "1")
    assert not client.is_model_ready("none") and not client.is_model_ready("affine", "2")
    about = client.get_model_metadata("affine")
    inputs = about["inputs"] if isinstance(about, dict) else [{"name": i.name, "datatype": i.datatype, "shape": list(i.shape)} for i in about.inputs]
    assert [(i["name"], i["datatype"], [int(n) for n in i["shape"]]) for i in inputs] == [("x", "FP32", [-1, 3])]


def test_infer(triton):
    module, client = triton
    for n in (1, 5):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        found = client.infer("affine", _inputs(module, x=x), request_id="7")
        assert np.array_equal(found.as_numpy("output"), x * 2 + 1)
    ids, flags = np.arange(10).reshape(2, 5), np.array([True, False])
    outputs = [module.InferRequestedOutput("output_0"), module.InferRequestedOutput("output_1")]
    found = client.infer("sums", _inputs(module, flags=flags, ids=ids), outputs=outputs)
    assert found.as_numpy("output_0").tolist() == [10, 35] and found.as_numpy("output_1").tolist() == [False, True]


def test_requests_at_once(triton, server):
    module, client = triton
    x = [np.full((1, 3), i, np.float32) for i in range(20)]
    if module.__name__.endswith("http"):
        client = module.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=4)
        waiting = [client.async_infer("affine", _inputs(module, x=a)) for a in x]
        found = [w.get_result().as_numpy("output") for w in waiting]
    else:
        import queue

        answers = queue.Queue()
        for i, a in enumerate(x):
            client.async_infer("affine", _inputs(module, x=a), lambda result, error, i=i: answers.put((i, result, error)))
        got = {i: (r, e) for i, r, e in [answers.get(timeout=20) for _ in x]}
        assert all(e is None for _, e in got.values())
        found = [got[i][0].as_numpy("output") for i in range(20)]
    assert all(np.array_equal(f, a * 2 + 1) for f, a in zip(found, x, strict=True))


def test_errors_name_what_is_wrong(triton):
    module, client = triton
    from tritonclient.utils import InferenceServerException

    wrong = [("affine", {"x": np.zeros((1, 4), np.float32)}, "shape"), ("affine", {"x": np.zeros((1, 3))}, "FP32"),
             ("none", {"x": np.zeros((1, 3))}, "no model"), ("affine", {"y": np.zeros((1, 3), np.float32)}, "input")]  # fmt: skip
    for name, arrays, says in wrong:
        with pytest.raises(InferenceServerException, match=says):
            client.infer(name, _inputs(module, **arrays))


def test_typed_contents_and_a_swap_over_grpc(server, tmp_path):
    import grpc

    from flambeau.serve.grpc_messages import SERVICE, messages

    made = messages()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer", request_serializer=made["ModelInferRequest"].SerializeToString,
                                   response_deserializer=made["ModelInferResponse"].FromString)  # fmt: skip
        request = made["ModelInferRequest"](model_name="affine", id="a")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 3]).contents.fp32_contents.extend([1, 2, 3])
        answer = call(request, timeout=20)
        assert answer.id == "a" and np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [3, 5, 7]
        request.inputs[0].contents.fp32_contents.append(4)
        with pytest.raises(grpc.RpcError) as error:
            call(request, timeout=20)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT and "elements" in error.value.details()
    put(server.settings.folder, "affine", 2, Affine(0.0, 9.0))
    refresh(server)
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer", request_serializer=made["ModelInferRequest"].SerializeToString,
                                   response_deserializer=made["ModelInferResponse"].FromString)  # fmt: skip
        request = made["ModelInferRequest"](model_name="affine", raw_input_contents=[np.ones(3, np.float32).tobytes()])
        request.inputs.add(name="x", datatype="FP32", shape=[1, 3])
        assert call(request, timeout=20).model_version == "2"
