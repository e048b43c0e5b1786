"""Language models: OpenAI's completions and chat, whole and streamed, and continuous batching."""

import json
import socket
import time

import numpy as np
import pytest

from flambeau.serve.language import Answer, Sampling, choose
from tests.serve.running import Client, running
from tests.threads import Thread, join

_MODEL = '''
import threading, time
import numpy as np
from flambeau.serve import LanguageModel

class Model(LanguageModel):
    """The alphabet: after a letter comes the next one; after z the end. Prompts end with the letter to begin after. Bytes as tokens."""
    context, end = 64, frozenset([0])
    sizes = []
    def __init__(self, folder): pass
    def encode(self, text): return list(text.encode())
    def decode(self, tokens): return bytes(tokens).decode(errors="replace")
    def chat(self, messages): return messages[-1]["content"]
    def _scores(self, token):
        if token == ord("!"): raise RuntimeError("no exclamations")
        made = np.zeros(256)
        after = {ord("z"): 0, 0xC3: 0xA9, ord("@"): 0xC3}.get(token, token + 1 if token != 0xA9 else ord("a"))
        made[after] = 50.0
        return made
    def start(self, tokens): return [tokens[-1]], self._scores(tokens[-1])
    def step(self, states, tokens):
        type(self).sizes.append(len(states))
        time.sleep(0.002)
        return np.stack([self._scores(t) for t in tokens])
'''


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    (folder / "letters" / "1").mkdir(parents=True)
    (folder / "letters" / "1" / "model.py").write_text(_MODEL)
    (folder / "letters" / "config.toml").write_text("max_batch_size = 4\ntimeout_ms = 5000\nqueue = 8\n")
    with running(folder, allow_code=True) as s:
        yield s


@pytest.fixture
def client(server):
    return Client(server.port)


def _complete(client, **body):
    return client.ask("POST", "/v1/completions", {"model": "letters", **body})[:2]


def _events(data):
    assert data.endswith(b"data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in data.decode().split("\n\n")[:-2]]


def test_completions(client):
    status, found = _complete(client, prompt="x: a", max_tokens=5)
    assert status == 200 and found["object"] == "text_completion"
    assert found["choices"] == [{"index": 0, "text": "bcdef", "logprobs": None, "finish_reason": "length"}]
    assert found["usage"] == {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}
    assert _complete(client, prompt="w", max_tokens=9)[1]["choices"][0] == {"index": 0, "text": "xyz", "logprobs": None, "finish_reason": "stop"}
    assert [c["text"] for c in _complete(client, prompt=["a", "k"], n=2, max_tokens=2)[1]["choices"]] == ["bc", "bc", "lm", "lm"]
    assert _complete(client, prompt="a", max_tokens=20, stop=["fg", "zz"])[1]["choices"][0]["text"] == "bcde"
    assert _complete(client, prompt="@", max_tokens=3)[1]["choices"][0]["text"] == "éa"  # two bytes, one character


def test_streams_equal_what_is_sent_whole(client):
    for prompt, more in (("a", {"max_tokens": 12}), ("@", {"max_tokens": 4}), ("a", {"max_tokens": 20, "stop": "efg"})):
        whole = _complete(client, prompt=prompt, **more)[1]["choices"][0]
        status, data = _complete(client, prompt=prompt, stream=True, stream_options={"include_usage": True}, **more)
        events = _events(data)
        assert status == 200 and events[-1]["choices"] == [] and events[-1]["usage"]["prompt_tokens"] == 1
        pieces = [e["choices"][0] for e in events[:-1]]
        assert "".join(p["text"] for p in pieces) == whole["text"] and pieces[-1]["finish_reason"] == whole["finish_reason"]
        assert "\ufffd" not in "".join(p["text"] for p in pieces) and len(pieces) > 2


def test_chat(client):
    body = {"model": "letters", "messages": [{"role": "system", "content": "?"}, {"role": "user", "content": "x"}]}
    status, found, _ = client.ask("POST", "/v1/chat/completions", body)
    assert status == 200 and found["choices"][0]["message"] == {"role": "assistant", "content": "yz"} and found["choices"][0]["finish_reason"] == "stop"
    events = _events(client.ask("POST", "/v1/chat/completions", {**body, "stream": True, "n": 2})[1])
    for i in (0, 1):
        deltas = [e["choices"][0]["delta"] for e in events if e["choices"][0]["index"] == i]
        assert deltas[0] == {"role": "assistant", "content": ""} and "".join(d.get("content", "") for d in deltas) == "yz"


def test_models_are_listed(client):
    assert [m["id"] for m in client.ask("GET", "/v1/models")[1]["data"]] == ["letters"]
    assert client.ask("GET", "/v1/models/letters")[1]["object"] == "model"


@pytest.mark.parametrize(("body", "status"), [
    ({}, 400), ({"prompt": ""}, 400), ({"prompt": 3}, 400), ({"prompt": "a" * 64}, 400), ({"prompt": "a", "max_tokens": 0}, 400),
    ({"prompt": "a", "temperature": 3}, 400), ({"prompt": "a", "stop": [""]}, 400), ({"prompt": "a", "logprobs": 3}, 400),
    ({"prompt": "a", "nonsense": 1}, 400),
    ({"prompt": "a", "model": "none"}, 404), ({"prompt": "a", "model": None}, 400), ({"prompt": "a", "n": 17}, 400), ({"prompt": "a", "stream": 1}, 400),
    ({"prompt": "!"}, 500), ({"prompt": " "}, 500),
])  # fmt: skip
def test_wrong_requests(client, body, status):
    code, found = _complete(client, **body)
    assert code == status and set(found["error"]) == {"message", "type", "param", "code"}
    assert _complete(client, prompt="y")[1]["choices"][0]["text"] == "z"


def test_sequences_join_a_running_batch(server):
    model = server.repository.models["letters"].versions[1].language.model
    type(model).sizes.clear()
    found = {}

    def ask(prompt):
        found[prompt] = _complete(Client(server.port), prompt=prompt, max_tokens=25)[1]["choices"][0]["text"]

    threads = []
    for prompt in "abcdef":
        threads.append(Thread(target=ask, args=(prompt,)))
        threads[-1].start()
        time.sleep(0.008)
    join(*threads)
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    assert found == {p: alphabet[alphabet.index(p) + 1 :] for p in "abcdef"}
    sizes = type(model).sizes
    assert max(sizes) > 1 and max(sizes) <= 4 and len(sizes) < sum(len(t) for t in found.values()), sizes


def test_who_leaves_a_stream_leaves_the_batch(server):
    scheduler = server.repository.models["letters"].versions[1].language
    body = json.dumps({"model": "letters", "prompt": "a", "max_tokens": 24, "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
    until = time.monotonic() + 5
    while scheduler.outstanding and time.monotonic() < until:
        time.sleep(0.005)
    assert not scheduler.outstanding


def test_drawing_follows_the_scores():
    scores = np.log([0.5, 0.25, 0.125, 0.125])
    drawn = Answer([1], Sampling(seed=3), 0.0, print, print)
    counts = np.bincount([choose(scores, drawn) for _ in range(4000)], minlength=4) / 4000
    assert abs(counts - [0.5, 0.25, 0.125, 0.125]).max() < 0.03
    nucleus = Answer([1], Sampling(seed=3, top_p=0.7), 0.0, print, print)
    counts = np.bincount([choose(scores, nucleus) for _ in range(4000)], minlength=4) / 4000
    assert abs(counts - [2 / 3, 1 / 3, 0, 0]).max() < 0.03
    assert choose(scores, Answer([1], Sampling(temperature=0.0), 0.0, print, print)) == 0
    again = Answer([1], Sampling(temperature=0.0, presence=2.0), 0.0, print, print)
    again.tokens = [0]
    assert choose(scores, again) == 1


def test_a_causal_module_is_stepped_as_it_computes_alone():
    import flambeau as torch
    from flambeau import nn
    from flambeau.serve.language import CausalModule

    torch.manual_seed(0)

    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.rnn, self.out = nn.Embedding(11, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 11)

        def forward(self, t):
            return self.out(self.rnn(self.embed(t))[0])

    module = Small().eval()
    model = CausalModule(module, 40)
    states, tokens = [], []
    for prompt in ([1, 2, 3], [4], [5, 6, 7, 8, 9]):
        state, scores = model.start(prompt)
        states.append(state)
        tokens.append(int(scores.argmax()))
    scores = model.step(states, tokens)
    with torch.no_grad():
        for s, row in zip(states, scores, strict=True):
            np.testing.assert_allclose(row, module(torch.tensor([s]))[0, -1].numpy(), rtol=1e-4, atol=1e-5)
