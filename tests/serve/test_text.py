"""Programs with a vocabulary: language models that answer tensors as well, their texts beside those of the program by hand."""

import json
import shutil

import numpy as np
import pytest

import flambeau as torch
from flambeau import nn
from flambeau.cli.demo_gpt import GPT
from flambeau.export.archive import VOCABULARY, extra_file
from flambeau.serve.text import read_text
from tests.serve.running import Client, refresh, running
from tests.threads import Thread, join

LETTERS = "\nabcdefghijklmnopqrstuvwxyz .!"
CONTEXT = 40


def gpt():
    torch.manual_seed(5)
    model = GPT(len(LETTERS), context=CONTEXT).eval()
    with torch.no_grad():  # far from equal scores: the likeliest letter is the same however sums are ordered
        model.head.weight.mul_(40)
    return model


MODEL = gpt()


def exported(model, most=8, **more):
    dims = {0: torch.export.Dim("batch", min=1, max=most), 1: torch.export.Dim("length", min=1, max=CONTEXT)}
    return torch.export.export(model, (torch.randint(0, len(LETTERS), (3, 7)),), dynamic_shapes=(dims,), **more)


def by_hand(prompt, count):
    """The likeliest letters after a prompt, one by one, without padding and without a batch."""
    made = prompt
    with torch.no_grad():
        for _ in range(count):
            made += LETTERS[int(MODEL(torch.tensor([[LETTERS.index(c) for c in made]]))[0, -1].argmax())]
    return made[len(prompt) :]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models")
    at = made / "inside" / "1"
    at.mkdir(parents=True)
    torch.export.save(exported(MODEL), str(at / "model.pt2"), extra_files={VOCABULARY: json.dumps({"tokens": list(LETTERS)})})
    (made / "inside" / "config.toml").write_text("max_batch_size = 5\n")
    return made


@pytest.fixture(scope="module")
def server(folder):
    with running(folder) as s:
        yield s


@pytest.fixture
def client(server):
    return Client(server.port)


def complete(client, **body):
    status, found, _ = client.ask("POST", "/v1/completions", {"model": "inside", "temperature": 0, **body})
    assert status == 200, found
    return found


def test_texts_are_those_of_the_network(client):
    for prompt, count in (("a", 20), ("the cat. ", 30), ("z" * 31, 2), ("z" * 32, 3)):  # windows of 32 and of 40
        found = complete(client, prompt=prompt, max_tokens=count)
        assert found["choices"][0]["text"] == by_hand(prompt, count)
        assert found["usage"]["prompt_tokens"] == len(prompt)
    found = complete(client, prompt="a" * 30, max_tokens=100)["choices"][0]
    assert found["finish_reason"] == "length" and len(found["text"]) == CONTEXT - 30


def test_tensors_and_texts_are_one_model(client):
    tokens = [LETTERS.index(c) for c in "the dog "]
    sent = {"inputs": [{"name": "tokens", "shape": [1, len(tokens)], "datatype": "INT64", "data": tokens}]}
    status, found, _ = client.ask("POST", "/v2/models/inside/infer", sent)
    assert status == 200, found
    scores = np.array(found["outputs"][0]["data"]).reshape(found["outputs"][0]["shape"])
    assert LETTERS[scores[0, -1].argmax()] == complete(client, prompt="the dog ", max_tokens=1)["choices"][0]["text"]
    assert [m["id"] for m in client.ask("GET", "/v1/models")[1]["data"]] == ["inside"]
    paths = client.ask("GET", "/openapi.json")[1]["paths"]
    assert {"/v1/completions", "/v1/chat/completions", "/v2/models/inside/infer"} <= set(paths)


def test_chat_and_streams(client):
    body = {"model": "inside", "messages": [{"role": "user", "content": "hello"}], "temperature": 0, "max_tokens": 9}
    status, found, _ = client.ask("POST", "/v1/chat/completions", body)
    assert status == 400 and "the model has no token for ':'" in found["error"]["message"]  # of the roles
    whole = complete(client, prompt="b", max_tokens=12)["choices"][0]["text"]
    status, data, _ = client.ask("POST", "/v1/completions", {"model": "inside", "temperature": 0, "prompt": "b", "max_tokens": 12, "stream": True})
    events = [json.loads(line[6:]) for line in data.decode().split("\n\n")[:-2]]
    assert "".join([e["choices"][0]["text"] for e in events]) == whole and len(events) == 12


def test_sequences_of_other_lengths_share_a_batch(server):
    prompts = ["a", "the", "w" * 33, "of a. ", "q", "hm" * 9, "no!", "s" * 12]
    scheduler = server.repository.models["inside"].versions[1].language
    assert scheduler.most == 5
    found = {}

    def ask(prompt):
        found[prompt] = complete(Client(server.port), prompt=prompt, max_tokens=6)["choices"][0]["text"]

    threads = [Thread(target=ask, args=(p,)) for p in prompts]
    for t in threads:
        t.start()
    join(*threads)
    assert found == {p: by_hand(p, 6) for p in prompts}
    assert 1 < scheduler.largest <= 5


def test_what_has_no_token(client):
    status, found, _ = client.ask("POST", "/v1/completions", {"model": "inside", "prompt": "ä"})
    assert status == 400 and "the model has no token for 'ä'" in found["error"]["message"]


def test_a_vocabulary_beside_the_file(folder, server, client):
    at = folder / "beside" / "1"
    at.mkdir(parents=True)
    shutil.copy(folder / "inside" / "1" / "model.pt2", at / "model.pt2")  # the one beside it comes first
    tokens = list(LETTERS.upper())
    (at / VOCABULARY).write_text(json.dumps({"tokens": tokens, "end": [LETTERS.index(by_hand("c", 3)[2])]}))
    refresh(server)
    found = complete(client, model="beside", prompt="C", max_tokens=9)["choices"][0]
    wanted = by_hand("c", 9)
    end = wanted.index(wanted[2])
    assert found["text"] == wanted[:end].upper() and found["finish_reason"] == "stop"


def test_tokens_are_cut_longest_first(tmp_path):
    (tmp_path / VOCABULARY).write_text(json.dumps({"tokens": ["a", "b", "ab", "aba", "", "a"]}))
    text = read_text(tmp_path)
    assert text.encode("ababab") == [3, 1, 2] and text.decode([3, 1, 2, 5]) == "abababa" and text.encode("") == []


def test_a_tokenizer_of_tokenizers(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"the": 0, "cat": 1, "?": 2}, unk_token="?"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 2}')
    text = read_text(tmp_path)
    assert text.encode("the cat the dog") == [0, 1, 0, 2] and text.decode([0, 1]) == "the cat" and text.end == {2} and text.count == 3


class Last(nn.Module):
    """Scores after the last token only."""

    def __init__(self):
        super().__init__()
        self.whole = MODEL

    def forward(self, tokens):
        return self.whole(tokens)[:, -1]


@pytest.mark.parametrize(("module", "vocabulary", "why"), [
    (Last(), {"tokens": list(LETTERS)}, "this program gives "),
    (MODEL, {"tokens": [*LETTERS, "x"]}, "this program has scores of 30 tokens, the vocabulary has 31"),
    (MODEL, {"tokens": []}, "must have"), (MODEL, {"tokens": ["a"], "end": [1]}, 'may have "end", a list of numbers from 0 to 0'),
    (MODEL, [], "must hold an object"),
])  # fmt: skip
def test_what_is_no_language_model_is_refused(tmp_path, module, vocabulary, why):
    at = tmp_path / "wrong" / "1"
    at.mkdir(parents=True)
    torch.export.save(exported(module), str(at / "model.pt2"))
    assert extra_file(at / "model.pt2", VOCABULARY) is None
    (at / VOCABULARY).write_text(json.dumps(vocabulary))
    with running(tmp_path) as server:
        status, found, _ = Client(server.port).ask("GET", "/v2/models/wrong/ready")
    assert status == 503 and why in found["error"]
