"""HTTP on raw sockets: pipelining, chunks, limits on heads, bodies and times, and clients that vanish."""

import json
import socket
import ssl
import time

import pytest

from tests import processes
from tests.serve.running import Affine, Client, put, running

_BODY = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]}).encode()


def _post(body=_BODY, more=b"", path=b"/v2/models/m/infer"):
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b" % (path, len(body), more, body)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    put(folder, "m", 1, Affine())
    (folder / "slow" / "1").mkdir(parents=True)
    (folder / "slow" / "1" / "model.py").write_text(
        "import time\n"
        "class Model:\n"
        "    inputs = outputs = [('x', 'FP32', [-1, 3])]\n"
        "    runs = 0\n"
        "    def __init__(self, folder): pass\n"
        "    def predict(self, inputs):\n"
        "        type(self).runs += 1\n"
        "        time.sleep(float(inputs['x'].ravel()[0]) / 1000)\n"
        "        return inputs\n"
    )
    (folder / "slow" / "config.toml").write_text("queue = 2\ntimeout_ms = 5000\n")
    with running(folder, allow_code=True, header_timeout=0.5, body_timeout=0.6, idle_timeout=1.0, max_body=50_000, max_header=4000, max_connections=20) as s:
        yield s


def _socket(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=15)


def _all(s):
    found = b""
    while part := s.recv(65536):
        found += part
    return found


def _answers(data):
    """(status, body) of each answer in what a connection gave."""
    found = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        length = int(next(line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")))
        found.append((int(head.split()[1]), data[:length]))
        data = data[length:]
    return found


def test_pipelined_requests_are_answered_in_order(server):
    with _socket(server) as s:
        slow = json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [50, 2, 3]}]}).encode()
        s.sendall(_post(slow, path=b"/v2/models/slow/infer") + _post() * 30 + _post(b"{") + _post(more=b"Connection: close\r\n"))
        found = _answers(_all(s))
    assert [status for status, _ in found] == [200] * 31 + [400, 200]
    assert json.loads(found[0][1])["model_name"] == "slow" and all(json.loads(b)["model_name"] == "m" for _, b in found[1:31])


def test_a_body_in_chunks_and_byte_by_byte(server):
    with _socket(server) as s:
        s.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        for i in range(0, len(_BODY), 40):
            part = _BODY[i : i + 40]
            s.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        s.sendall(b"0\r\n\r\n")
        assert _answers(_all(s))[0][0] == 200
    with _socket(server) as s:
        for byte in _post(more=b"Connection: close\r\n"):
            s.sendall(bytes([byte]))
        assert _answers(_all(s))[0][0] == 200


def test_expect_continue(server):
    with _socket(server) as s:
        s.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(_BODY))
        assert s.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(_BODY)
        assert _answers(_all(s))[0][0] == 200


@pytest.mark.parametrize(("data", "status"), [
    (b"nonsense\r\n\r\n", 400), (b"GET / HTTP/1.1\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 5000 + b"\r\n\r\n", 431),
    (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431), (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", 413),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400), (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\n" + b"a" * 65535, 413), (b"GET / HTTP/3.0\r\nHost: x\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
])  # fmt: skip
def test_what_is_no_request_is_refused_and_the_connection_ends(server, data, status):
    with _socket(server) as s:
        s.sendall(data)
        assert _answers(_all(s))[0][0] in (status, 505)


@pytest.mark.parametrize("data", [b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"])
def test_slow_requests_end_with_408(server, data):
    with _socket(server) as s:
        s.sendall(data)
        assert _answers(_all(s))[0][0] == 408


def test_idle_connections_are_closed(server):
    with _socket(server) as s:
        assert _all(s) == b""


def test_too_many_connections(server):
    sockets = [_socket(server) for _ in range(20)]
    with _socket(server) as s:
        assert _answers(_all(s))[0][0] == 503
    for s in sockets:
        s.close()


def _slow(milliseconds):
    return json.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [milliseconds, 2, 3]}]}).encode()


def test_who_leaves_is_not_computed_for(server):
    model = server.repository.models["slow"].versions[1].program.model
    with _socket(server) as first:
        first.sendall(_post(_slow(400), path=b"/v2/models/slow/infer"))
        time.sleep(0.15)
        runs = type(model).runs
        leaving = _socket(server)
        leaving.sendall(_post(_slow(1), path=b"/v2/models/slow/infer"))
        time.sleep(0.05)
        leaving.close()
        assert first.recv(100).startswith(b"HTTP/1.1 200")
    assert Client(server.port).ask("POST", "/v2/models/slow/infer", _slow(1))[0] == 200
    assert type(model).runs == runs + 1


def test_full_queues_and_deadlines(server):
    sockets = [_socket(server) for _ in range(5)]
    for s in sockets:
        s.sendall(_post(_slow(300), b"Connection: close\r\n", b"/v2/models/slow/infer"))
        time.sleep(0.03)
    found = sorted(_answers(_all(s))[0][0] for s in sockets)
    assert found == [200, 200, 200, 429, 429]
    client = Client(server.port)
    status, answer, _ = client.ask("POST", "/v2/models/slow/infer", _slow(300), {"X-Request-Timeout-Ms": "50"})
    assert status == 504 and "while the model ran" in answer["error"]
    assert client.ask("POST", "/v2/models/slow/infer", _slow(1), {"X-Request-Timeout-Ms": "soon"})[0] == 400
    time.sleep(0.3)


def test_tokens_and_tls(tmp_path):
    put(tmp_path, "m", 1, Affine())
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate),
               "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]  # fmt: skip
    try:
        processes.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl makes the certificate")
    import http.client

    with running(tmp_path, certificate=str(certificate), key=str(key), tokens=("secret", "other")) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=15)
        for header, status in ((None, 401), ("Bearer wrong", 401), ("Basic secret", 401), ("Bearer secret", 200), ("bearer other", 200)):
            connection.request("POST", "/v2/models/m/infer", _BODY, {"Authorization": header} if header else {})
            answer = connection.getresponse()
            assert answer.status == status and (status == 200 or answer.headers["www-authenticate"].startswith("Bearer"))
            answer.read()
        connection.request("GET", "/v2/health/ready")
        assert connection.getresponse().read() == b'{"ready":true}'
