"""The server's REST protocols: the Open Inference Protocol with JSON and binary tensors, TensorFlow Serving's predict, and what is refused."""

import gzip
import json
import struct

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from tests.serve.running import Affine, Client, put, running


class Two(nn.Module):
    def forward(self, ids, scale):
        return {"doubled": ids * 2, "sum": ids.float().sum(1) * scale}


class Mixing(nn.Module):
    """Rows that depend on each other."""

    def forward(self, x):
        return x - x.mean(0)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    put(folder, "affine", 1, Affine())
    put(folder, "mixing", 1, Mixing())
    b = torch.export.Dim("batch", min=1, max=16)
    program = torch.export.export(Two(), (torch.ones(2, 5, dtype=torch.int64), torch.ones(2)), dynamic_shapes=({0: b}, {0: b}))
    (folder / "two" / "1").mkdir(parents=True)
    torch.export.save(program, str(folder / "two" / "1" / "model.pt2"))
    (folder / "code" / "1").mkdir(parents=True)
    (folder / "code" / "1" / "model.py").write_text("raise SystemExit('executed')\n")
    with running(folder, max_body=100_000) as s:
        yield s


@pytest.fixture
def client(server):
    return Client(server.port)


def _x(data, shape=None, **more):
    return {"inputs": [{"name": "x", "shape": shape or [len(data), 3], "datatype": "FP32", "data": data, **more}]}


def test_health_and_metadata(client):
    assert client.ask("GET", "/v2/health/live")[0] == 200
    assert client.ask("GET", "/v2/health/ready")[:2] == (200, {"ready": True})
    assert client.ask("GET", "/v2")[1]["name"] == "flambeau"
    assert client.ask("GET", "/v2/models/affine")[1] == {
        "name": "affine", "versions": ["1"], "platform": "flambeau_pt2", "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "output", "datatype": "FP32", "shape": [-1, 3]}],
    }  # fmt: skip
    assert client.ask("GET", "/v2/models/affine/versions/1/ready")[0] == 200
    assert client.ask("HEAD", "/v2/models/affine")[:2] == (200, b"")
    index = client.ask("POST", "/v2/repository/index", {})[1]
    assert {m["name"]: m["state"] for m in index} == {"affine": "READY", "code": "UNAVAILABLE", "mixing": "READY", "two": "READY"}


def test_code_is_not_run_without_being_allowed(client):
    status, found, _ = client.ask("GET", "/v2/models/code/ready")
    assert status == 503 and "--allow-code" in found["error"]


@pytest.mark.parametrize("data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]])
def test_infer_flat_and_nested(client, data):
    status, found, headers = client.ask("POST", "/v2/models/affine/infer", {"id": "seven", **_x(data, [2, 3])}, {"X-Request-Id": "mine"})
    assert status == 200 and headers["x-request-id"] == "mine" and "date" in headers
    assert found == {"model_name": "affine", "model_version": "1", "id": "seven",
                     "outputs": [{"name": "output", "datatype": "FP32", "shape": [2, 3], "data": [3.0, 5.0, 7.0, 9.0, 11.0, 13.0]}]}  # fmt: skip


def test_infer_binary_both_ways(client):
    raw = np.arange(6, dtype=np.float32).tobytes()
    head = {"inputs": [{"name": "x", "shape": [2, 3], "datatype": "FP32", "parameters": {"binary_data_size": 24}}],
            "outputs": [{"name": "output", "parameters": {"binary_data": True}}]}  # fmt: skip
    text = json.dumps(head).encode()
    status, found, headers = client.ask("POST", "/v2/models/affine/infer", text + raw, {"Inference-Header-Content-Length": str(len(text))})
    length = int(headers["inference-header-content-length"])
    assert status == 200 and json.loads(found[:length])["outputs"][0]["parameters"] == {"binary_data_size": 24}
    assert np.array_equal(np.frombuffer(found[length:], np.float32), np.arange(6) * 2 + 1)


def test_several_inputs_and_named_outputs(client):
    request = {"inputs": [{"name": "scale", "shape": [2], "datatype": "FP32", "data": [1, 10]},
                          {"name": "ids", "shape": [2, 5], "datatype": "INT64", "data": [1] * 5 + [2] * 5}], "outputs": [{"name": "sum"}]}  # fmt: skip
    status, found, _ = client.ask("POST", "/v2/models/two/infer", request)
    assert status == 200 and [(o["name"], o["data"]) for o in found["outputs"]] == [("sum", [5.0, 100.0])]
    status, found, _ = client.ask("POST", "/v1/models/two:predict", {"instances": [{"ids": [1] * 5, "scale": 2.0}]})
    assert status == 200 and found == {"predictions": [{"doubled": [2] * 5, "sum": 10.0}]}


def test_gzip_body(client):
    body = gzip.compress(json.dumps(_x([1, 2, 3], [1, 3])).encode())
    assert client.ask("POST", "/v2/models/affine/infer", body, {"Content-Encoding": "gzip"})[1]["outputs"][0]["data"] == [3, 5, 7]
    assert client.ask("POST", "/v2/models/affine/infer", body[:-4], {"Content-Encoding": "gzip"})[0] == 400
    bomb = gzip.compress(b" " * 10_000_000)
    assert len(bomb) < 100_000 and client.ask("POST", "/v2/models/affine/infer", bomb, {"Content-Encoding": "gzip"})[0] == 413
    assert client.ask("POST", "/v2/models/affine/infer", body, {"Content-Encoding": "br"})[0] == 415


_WRONG = [
    (b"{", "JSON"),
    (b"[1]", "object"),
    ({}, "inputs"),
    ({"inputs": []}, "missing"),
    (_x([1, 2], [1, 3]), "elements"),
    (_x([[1, 2], [3]], [1, 3]), "equal lengths"),
    (_x(["1", "2", "3"], [1, 3]), "numbers"),
    (_x([None, 1, 2], [1, 3]), "numbers"),
    (_x([True, False, True], [1, 3]), "numbers"),
    (_x([1, 2, 3], [3]), "shape"),
    (_x([1, 2, 3], [1, -3]), "sizes"),
    (_x([1, 2, 3], [1, True]), "sizes"),
    (_x([1, 2, 3], "no"), "shape"),
    (_x([], [0, 3]), "at least one row"),
    (_x([0.0] * 300, [100, 3]), "at most 64"),
    (_x([1, 2, 3], [1, 3], parameters=3), "parameters"),
    ({"inputs": [{**_x([1, 2, 3], [1, 3])["inputs"][0], "name": "y"}]}, "no input"),
    ({"inputs": [{**_x([1, 2, 3], [1, 3])["inputs"][0], "datatype": "FP64"}]}, "FP32"),
    ({"inputs": _x([1, 2, 3], [1, 3])["inputs"] * 2}, "twice"),
    ({**_x([1, 2, 3], [1, 3]), "outputs": [{"name": "z"}]}, "no output"),
    ({**_x([1, 2, 3], [1, 3]), "id": 3}, "id"),
    ({**_x([1, 2, 3], [1, 3]), "parameters": {"timeout": "soon"}}, "timeout"),
    ({**_x([1, 2, 3], [1, 3]), "outputs": [{"name": "output", "parameters": {"classification": 2}}]}, "classification"),
]


@pytest.mark.parametrize(("body", "says"), _WRONG)
def test_wrong_requests_are_refused_with_a_reason(client, body, says):
    status, found, _ = client.ask("POST", "/v2/models/affine/infer", body)
    assert status == 400 and says in found["error"], found
    assert client.infer("affine", [[1, 2, 3]])["outputs"][0]["data"] == [3, 5, 7]  # the same connection goes on


@pytest.mark.parametrize(("tail", "size", "says"), [(b"\0" * 8, 12, "left"), (b"\0" * 12, 8, "bytes"), (b"\0" * 16, 12, "belong to no input")])
def test_wrong_binary_tensors(client, tail, size, says):
    text = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "parameters": {"binary_data_size": size}}]}).encode()
    status, found, _ = client.ask("POST", "/v2/models/affine/infer", text + tail, {"Inference-Header-Content-Length": str(len(text))})
    assert status == 400 and says in found["error"]
    assert client.ask("POST", "/v2/models/affine/infer", text, {"Inference-Header-Content-Length": "999999"})[0] == 400


@pytest.mark.parametrize("value", [2**63, -1.5, 1.0, True, "1"])
def test_integers_take_only_integers_of_their_range(client, value):
    request = {"inputs": [{"name": "ids", "shape": [1, 5], "datatype": "INT64", "data": [value] * 5},
                          {"name": "scale", "shape": [1], "datatype": "FP32", "data": [1]}]}  # fmt: skip
    assert client.ask("POST", "/v2/models/two/infer", request)[0] == 400


def test_paths_methods_and_versions(client):
    assert client.ask("GET", "/nowhere")[0] == 404
    assert client.ask("GET", "/v2/models/none")[0] == 404
    assert client.ask("GET", "/v2/models/affine/versions/9")[0] == 404
    assert client.ask("GET", "/v2/models/affine/versions/x%2f")[0] == 404
    status, _, headers = client.ask("GET", "/v2/models/affine/infer")
    assert status == 405 and headers["allow"] == "POST"
    assert client.ask("POST", "/v2/models/affine/infer", b" " * 100_001)[0] == 413


def test_rows_that_depend_on_each_other_are_not_batched(server):
    assert server.repository.models["affine"].versions[1].batcher.batched
    assert not server.repository.models["mixing"].versions[1].batcher.batched


def test_tensorflow_predict(client):
    assert client.ask("POST", "/v1/models/affine:predict", {"instances": [[1, 2, 3], [0, 0, 0]]})[1] == {"predictions": [[3, 5, 7], [1, 1, 1]]}
    assert client.ask("POST", "/v1/models/affine/versions/1:predict", {"inputs": {"x": [[1, 2, 3]]}})[1] == {"outputs": [[3, 5, 7]]}
    assert client.ask("POST", "/v1/models/affine:predict", {"inputs": [[1, 2, 3]]})[1] == {"outputs": [[3, 5, 7]]}
    for wrong in (
        {},
        {"instances": []},
        {"instances": [[1, 2]]},
        {"instances": [[1, 2, 3], [1]]},
        {"instances": "a"},
        {"inputs": {"y": 1}},
        {"instances": [[1, 2, 3]], "inputs": [[1, 2, 3]]},
        {"instances": [["a", "b", "c"]]},
        {"instances": [[1, 2, 3]], "signature_name": "x"},
    ):
        assert client.ask("POST", "/v1/models/affine:predict", wrong)[0] == 400, wrong
    states = client.ask("GET", "/v1/models/affine")[1]["model_version_status"]
    assert states == [{"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}]
    signature = client.ask("GET", "/v1/models/affine/metadata")[1]["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT" and [d["size"] for d in signature["inputs"]["x"]["tensor_shape"]["dim"]] == ["-1", "3"]


def test_metrics_page_and_document(client):
    client.infer("affine", [[1, 2, 3]])
    text = client.ask("GET", "/metrics")[1].decode()
    assert 'flambeau_requests_total{code="200",model="affine",protocol="v2",version="1"}' in text and 'flambeau_batch_rows_count{model="affine"}' in text
    html = client.ask("GET", "/")
    assert html[0] == 200 and b"<title>flambeau serve</title>" in html[1] and "default-src 'none'" in html[2]["content-security-policy"]
    document = client.ask("GET", "/openapi.json")[1]
    assert document["openapi"].startswith("3.1") and "/v2/models/affine/infer" in document["paths"]


def test_half_precision_texts_and_truth_values(tmp_path):
    (tmp_path / "echo" / "1").mkdir(parents=True)
    (tmp_path / "echo" / "1" / "model.py").write_text(
        "class Model:\n"
        "    inputs = outputs = [('t', 'BYTES', [-1]), ('b', 'BOOL', [-1]), ('h', 'FP16', [-1])]\n"
        "    def __init__(self, folder): pass\n"
        "    def predict(self, inputs): return inputs\n"
    )
    with running(tmp_path, allow_code=True) as server:
        client = Client(server.port)
        request = {"inputs": [{"name": "t", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]},
                              {"name": "b", "shape": [2], "datatype": "BOOL", "data": [True, False]},
                              {"name": "h", "shape": [1], "datatype": "FP16", "data": [1.5]}]}  # fmt: skip
        found = client.ask("POST", "/v2/models/echo/infer", request)[1]
        assert [o["data"] for o in found["outputs"]] == [["a", "é"], [True, False], [1.5]]
        raw = [b"".join(struct.pack("<I", len(t)) + t for t in (b"a", b"\xff\0")), b"\1\0", np.float16(1.5).tobytes()]
        inputs = [{**{k: i[k] for k in ("name", "datatype", "shape")}, "parameters": {"binary_data_size": len(r)}}
                  for i, r in zip(request["inputs"], raw, strict=True)]  # fmt: skip
        text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        status, found, headers = client.ask("POST", "/v2/models/echo/infer", text + b"".join(raw), {"Inference-Header-Content-Length": str(len(text))})
        assert status == 200 and found[int(headers["inference-header-content-length"]) :] == b"".join(raw)
