"""Decoding token by token: the scores of the whole window at any coming and going of sequences; programs of other forms compute the window, and say why."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau import nn
from flambeau.cli.demo_gpt import GPT
from flambeau.export.archive import VOCABULARY
from flambeau.nn import functional as F
from flambeau.serve.decoding import lengths
from flambeau.serve.language import CausalModule
from flambeau.serve.programs import load_pt2
from flambeau.serve.text import LanguageProgram, read_text

COUNT, CONTEXT = 30, 100


class Rotated(nn.Module):
    """Two layers with rotated positions, fewer heads of keys than of queries, and a mask that is made of positions."""

    def __init__(self, mask="causal"):
        super().__init__()
        self.mask = mask
        self.tokens, self.head = nn.Embedding(COUNT, 24), nn.Linear(24, COUNT)
        self.layers = nn.ModuleList([nn.ModuleList([nn.Linear(24, 24), nn.Linear(24, 12), nn.Linear(24, 12), nn.Linear(24, 24)]) for _ in range(2)])

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.tokens(tokens)
        angles = torch.arange(t)[:, None] * (0.3 ** torch.arange(3))[None]
        cosine, sine = torch.cat([angles, angles], 1).cos(), torch.cat([angles, angles], 1).sin()

        def turned(y):
            return y * cosine + torch.cat([-y[..., 3:], y[..., :3]], -1) * sine

        place = torch.arange(t)
        near = (place[:, None] >= place[None]) & (place[:, None] - place[None] < 40)
        slope = torch.where(near, 0.0, float("-inf")) - (place[:, None] - place[None]).abs() * 0.1
        masks = {"causal": {"is_causal": True}, "bool": {"attn_mask": near}, "float": {"attn_mask": slope}}
        for q, k, v, out in self.layers:
            a, c, d = (f(x).view(b, t, -1, 6).transpose(1, 2) for f in (q, k, v))
            y = F.scaled_dot_product_attention(turned(a), turned(c), d, scale=0.5, enable_gqa=True, **masks[self.mask])
            x = x + out(y.transpose(1, 2).reshape(b, t, 24)).tanh()
        return self.head(x)


class Mean(nn.Module):
    """Positions meet outside of attention, too."""

    def __init__(self):
        super().__init__()
        self.gpt = GPT(COUNT, context=CONTEXT)

    def forward(self, tokens):
        made = self.gpt(tokens)
        return made + made.cumsum(1)


class Bag(nn.Module):
    """No attention at all."""

    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(COUNT, 8), nn.Linear(8, COUNT)

    def forward(self, tokens):
        return self.head(self.tokens(tokens).cumsum(1))


def served(model, folder, context=CONTEXT, rows=(1, 2, 3, 4, 6)):
    torch.manual_seed(1)
    dims = {0: torch.export.Dim("batch", min=1, max=8), 1: torch.export.Dim("length", min=1, max=context)}
    program = torch.export.export(model.eval(), (torch.randint(0, COUNT, (3, 7)),), dynamic_shapes=(dims,))
    letters = [chr(65 + i) for i in range(COUNT)]
    torch.export.save(program, str(folder / "model.pt2"), extra_files={VOCABULARY: json.dumps({"tokens": letters})})
    return LanguageProgram(load_pt2(folder / "model.pt2"), read_text(folder), rows), model


@pytest.fixture(scope="module", params=["gpt", "causal", "bool", "float"])
def language(request, tmp_path_factory):
    torch.manual_seed(0)
    model = GPT(COUNT, context=CONTEXT, layers=2) if request.param == "gpt" else Rotated(request.param)
    made, module = served(model, tmp_path_factory.mktemp(request.param))
    assert made.whole == ""
    return made, module


def scores(module, tokens):
    with torch.no_grad():
        return module(torch.tensor([tokens]))[0, -1].numpy()


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 20))
def test_sequences_come_and_go(language, seed):
    """Any of the sequences that live may be stepped, in any order; some are left for a while, some for good, and texts grow past what rows have room for."""
    model, module = language
    random = np.random.default_rng(seed)
    living = []  # [state, tokens]
    for _ in range(30):
        if len(living) < 6 and random.random() < 0.5:
            tokens = random.integers(0, COUNT, int(random.choice([1, 2, 20, 31, 32, 60]))).tolist()
            state, made = model.start(tokens)
            np.testing.assert_allclose(made, scores(module, tokens), rtol=1e-3, atol=1e-4)
            living.append([state, tokens])
        living = [x for x in living if len(x[1]) < CONTEXT - 1 and random.random() > 0.04]
        chosen = [living[i] for i in random.permutation(len(living))[: int(random.integers(1, 7))]]
        if not chosen:
            continue
        more = random.integers(0, COUNT, len(chosen)).tolist()
        made = model.step([state for state, _ in chosen], more)
        for (_, tokens), n, row in zip(chosen, more, made, strict=True):
            tokens.append(n)
            np.testing.assert_allclose(row, scores(module, tokens), rtol=1e-3, atol=1e-4)


def test_texts_to_the_end_of_the_context(language):
    model, module = language
    tokens = [3]
    state, made = model.start(tokens)
    while len(tokens) < CONTEXT:
        tokens.append(int(np.argmax(made)))
        (made,) = model.step([state], tokens[-1:])
    np.testing.assert_allclose(made, scores(module, tokens), rtol=1e-3, atol=1e-4)
    model.warm_up()
    assert len(model._decoder._plans) >= 3 * 5 and all(plan.call is not None for plan in model._decoder._plans.values())


@pytest.mark.parametrize(("model", "why"), [(Mean, "positions meet elsewhere than in attention"), (Bag, "it has no scaled_dot_product_attention")])
def test_other_programs_compute_the_window(model, why, tmp_path):
    torch.manual_seed(0)
    made, module = served(model(), tmp_path)
    assert why in made.whole
    state, found = made.start([1, 2, 3])
    np.testing.assert_allclose(found, scores(module, [1, 2, 3]), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(made.step([state], [4])[0], scores(module, [1, 2, 3, 4]), rtol=1e-3, atol=1e-4)
    assert isinstance(made, CausalModule)


def test_room_for_positions():
    assert [lengths(n) for n in (2, 32, 33, 96, 100, 512)] == [[32], [32], [32, 64], [32, 64, 96], [32, 64, 128], [32, 64, 128, 256, 512]]
