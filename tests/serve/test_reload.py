"""Changes of the folder while requests come: the swap is atomic, a version that cannot be loaded takes nobody's place, canaries get their share."""

import pytest

from flambeau import nn
from tests.serve.running import Affine, Client, put, refresh, running
from tests.threads import beside


class Failing(nn.Module):
    def forward(self, x):
        return x[:, :2]


def test_new_versions_take_over_between_two_requests(tmp_path):
    put(tmp_path, "m", 1, Affine(1.0, 1.0))
    with running(tmp_path) as server:
        wrong, seen = [], set()

        def ask(ended):
            client = Client(server.port)
            while not ended.is_set():
                found = client.infer("m", [[0, 0, 0]])
                version, data = int(found["model_version"]), found["outputs"][0]["data"]
                seen.add(version)
                if data != [float(version)] * 3:
                    wrong.append((version, data))

        with beside(*[ask] * 4):
            for version in (2, 3, 4):
                put(tmp_path, "m", version, Affine(1.0, float(version)))
                refresh(server)
                assert Client(server.port).infer("m", [[0, 0, 0]])["outputs"][0]["data"] == [float(version)] * 3
            put(tmp_path, "m", 4, Affine(1.0, 4.0))  # the same version again
            refresh(server)
        assert not wrong and 4 in seen
        assert list(server.repository.models["m"].versions) == [4]


def test_a_model_that_is_on_its_way_is_not_missing(tmp_path):
    """While the folder is read for the first time, 503 says to come back; afterwards a name that is not there is 404."""
    put(tmp_path, "m", 1, Affine(1.0, 1.0))
    with running(tmp_path) as server:
        client = Client(server.port)
        there = server.repository.models
        server.repository.models, server.repository.loaded = {}, False
        for path in ("/v2/models/m", "/v2/models/m/ready", "/v1/models/m"):
            status, found, _ = client.ask("GET", path)
            assert status == 503 and "is not there yet" in found["error"], (path, found)
        assert client.ask("GET", "/v2/health/ready")[0] == 503
        server.repository.models, server.repository.loaded = there, True
        assert client.ask("GET", "/v2/models/m")[0] == 200
        assert client.ask("GET", "/v2/models/n")[0] == 404


def test_what_cannot_be_loaded_leaves_the_old_version_in_its_place(tmp_path, caplog):
    put(tmp_path, "m", 1, Affine())
    with running(tmp_path) as server:
        client = Client(server.port)
        (tmp_path / "m" / "2").mkdir()
        (tmp_path / "m" / "2" / "model.pt2").write_bytes(b"PK no archive")
        (tmp_path / "m" / "1" / "model.pt2").unlink()
        (tmp_path / "m" / "1" / "model.pt2").write_bytes(b"")
        refresh(server)
        assert client.infer("m", [[1, 1, 1]])["model_version"] == "1"
        status, found, _ = client.ask("GET", "/v2/models/m/versions/2/ready")
        assert status == 503 and "no .pt2 file" in found["error"]
        (tmp_path / "m" / "config.toml").write_text("max_batch = 3\n")
        refresh(server)
        assert client.infer("m", [[1, 1, 1]])["model_version"] == "1"
        (tmp_path / "m" / "config.toml").unlink()
        put(tmp_path, "m", 2, Affine(0.0, 5.0))
        refresh(server)
        assert client.infer("m", [[1, 1, 1]])["outputs"][0]["data"] == [5, 5, 5]


def test_canary_by_weight_and_versions_by_name(tmp_path):
    for version in (1, 2):
        put(tmp_path, "m", version, Affine(0.0, float(version)))
    (tmp_path / "m" / "config.toml").write_text('output_names = ["y"]\n[weights]\n1 = 0.75\n2 = 0.25\n')
    with running(tmp_path) as server:
        client = Client(server.port)
        found = [client.infer("m", [[1, 1, 1]])["model_version"] for _ in range(40)]
        assert found.count("2") == 10
        assert client.infer("m", [[1, 1, 1]], "/versions/2")["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [1, 3], "data": [2, 2, 2]}]


def test_models_come_and_go(tmp_path):
    with running(tmp_path) as server:
        client = Client(server.port)
        assert client.ask("GET", "/v2/health/ready")[0] == 200
        assert client.ask("GET", "/v2/models/m")[0] == 404
        path = put(tmp_path, "m", 7, Affine())
        refresh(server, 1)
        assert client.ask("GET", "/v2/models/m")[0] in (404, 503)  # it may still be written
        refresh(server, 1)
        assert client.infer("m", [[0, 0, 0]])["model_version"] == "7"
        path.unlink()
        refresh(server)
        assert client.ask("GET", "/v2/models/m")[0] == 404


@pytest.mark.parametrize(("text", "says"), [
    ("max_batch_size = 'a'", "wrong kind"), ("max_batch_size = 0", "at least 1"), ("nonsense = 1", "unknown key"), ("= 1", "Invalid"),
    ("queue = true", "wrong kind"),
    ("run = 'fast'", "inline"), ("versions = 'some'", "latest"), ("weights = {1 = -1.0}", "weights"), ("[[inputs]]\nname = 'x'", "table of"),
    ("timeout_ms = 0", "above 0"), ("[[inputs]]\nname = 'x'\ndatatype = 'F'\nshape = [1]", "datatype"),
])  # fmt: skip
def test_settings_that_are_wrong_say_why(tmp_path, text, says):
    from flambeau.serve.settings import read_model_settings

    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        read_model_settings(tmp_path)
    assert "config.toml" in str(error.value)


def test_a_folder_that_is_not_there_and_one_without_models(tmp_path, caplog):
    from flambeau.serve.settings import ServerSettings

    with pytest.raises(FileNotFoundError, match=r"there is no .*digits\.pt2; give a folder of NAME"):
        ServerSettings(tmp_path / "digits.pt2")
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is no folder"):
        ServerSettings(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with running(tmp_path / "empty") as server:
        assert "no models" in caplog.text
        assert Client(server.port).ask("GET", "/v2/models/m")[0] == 404
