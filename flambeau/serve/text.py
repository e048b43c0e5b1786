"""Programs that are language models: a `.pt2` or `.onnx` file beside which a vocabulary lies, which says what text its tokens are.

`vocabulary.json` is `{"tokens": ["a", "b", ...], "end": [0]}`: the text of each token in the order of their numbers, and those that end an answer. It may be
an extra file of the `.pt2`, too, as `flambeau export` writes it.
`tokenizer.json` is read by the package `tokenizers`, which wrote it. Neither is executed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from flambeau.export.archive import VOCABULARY, extra_file
from flambeau.serve.decoding import Decoder, Forms, Kept, WholeOnly
from flambeau.serve.errors import BadRequest
from flambeau.serve.language import CausalModule
from flambeau.serve.packages import package
from flambeau.serve.programs import Program, TensorProgram

_TOKENIZER: Final = "tokenizer.json"
_SAID: Final = "generation_config.json"  # which of a tokenizer's tokens end a text, where transformers has saved a model
Tokens = list[int]


class Text:
    """From a text to tokens and back. `count`: how many kinds of tokens there are; `end`: those that end an answer."""

    def __init__(self, encode: Callable[[str], Tokens], decode: Callable[[Tokens], str], count: int, end: frozenset[int]) -> None:
        self.encode, self.decode, self.count, self.end = encode, decode, count, end


def read_text(folder: Path) -> Text | None:
    """What lies in the folder of a version: None if it has no vocabulary. ValueError that names the file and what is wrong in it."""
    if (folder / VOCABULARY).is_file():
        return _vocabulary((folder / VOCABULARY).read_bytes())
    if (folder / _TOKENIZER).is_file():
        return _tokenizer(folder)
    inside = extra_file(folder / "model.pt2", VOCABULARY) if (folder / "model.pt2").is_file() else None
    return None if inside is None else _vocabulary(inside)


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} must hold an object, it holds a {type(found).__name__}")
    return found


def _vocabulary(data: bytes) -> Text:
    found = _object(data, VOCABULARY)
    tokens, end = found.get("tokens"), found.get("end", [])
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise ValueError(f'{VOCABULARY} must have "tokens", a list of texts, which is not empty')
    if found.keys() - {"tokens", "end"} or not isinstance(end, list) or not all(type(n) is int and 0 <= n < len(tokens) for n in end):
        raise ValueError(f'{VOCABULARY} may have "end", a list of numbers from 0 to {len(tokens) - 1}, and nothing else')
    numbers = {text: i for i, text in reversed(list(enumerate(tokens))) if text}  # of equal texts the first
    longest = max(map(len, numbers), default=0)

    def encode(text: str) -> Tokens:
        made, at = [], 0
        while at < len(text):
            for length in range(min(longest, len(text) - at), 0, -1):
                if (number := numbers.get(text[at : at + length])) is not None:
                    break
            else:
                raise BadRequest(f"the model has no token for {text[at]!r}")
            made.append(number)
            at += length
        return made

    return Text(encode, lambda ids: "".join([tokens[i] for i in ids]), len(tokens), frozenset(end))


def _tokenizer(folder: Path) -> Text:
    made = package("tokenizers", f"the {_TOKENIZER} of a language model").Tokenizer.from_file(str(folder / _TOKENIZER))
    end = _object((folder / _SAID).read_bytes(), _SAID).get("eos_token_id") if (folder / _SAID).is_file() else None
    ends = frozenset(end if isinstance(end, list) else [] if end is None else [end])
    return Text(lambda text: list(made.encode(text).ids), lambda ids: str(made.decode(ids)), made.get_vocab_size(), ends)


_TRIED: Final = (9, 5)  # lengths of the texts by which the ways to decode are compared
_TRIED_STEPS: Final = 4
_WARM: Final = 256  # positions up to which plans are made before the first request


class LanguageProgram(CausalModule):
    """A LanguageModel over a program that maps tokens [n, t] to scores [n, t, vocabulary].

    `whole`: why each step computes the whole window, as CausalModule does; empty where keys and values are kept and a step computes one token (decoding.py).
    """

    def __init__(self, program: Program, text: Text, rows: Sequence[int]) -> None:
        """`rows`: the batch sizes that windows are padded to, so that few plans are made. ValueError for a program of another form."""
        problem = _form(program, text)
        if problem or not isinstance(program, TensorProgram):
            raise ValueError(f"a language model maps tokens, integers [batch, length], to scores, floats [batch, length, vocabulary]: {problem}")
        limit = next((most for _, dim, _, _, most in getattr(program, "ranges", []) if dim == 1), None)
        super().__init__(program.function, 1 << 20 if limit is None else int(limit))
        self.text, self.end = text, text.end
        # Plans of its own: their memory belongs to the thread that generates, the program's to that which answers tensors.
        self._program = TensorProgram(program.function, program.inputs, program.outputs, True, program.largest, program.platform)
        self._rows = rows
        self._program.pad_to(rows)
        self.whole = ""
        try:
            module = getattr(program, "module", None)
            if module is None:
                raise WholeOnly("only programs of torch.export are run token by token")
            self._decode(Forms(module, self.context))
        except WholeOnly as error:
            self.whole = str(error)

    def _decode(self, forms: Forms) -> None:
        """Keep keys and values from now on. WholeOnly if the scores are not those of the whole window then."""
        self._decoder = Decoder(forms, self._rows)
        self._reader = TensorProgram(lambda given: forms.read(*given), self._program.inputs, self._program.outputs, True, 1, "")
        self._reader.pad_to([1])
        random = np.random.default_rng(0)
        texts = [random.integers(0, self.text.count, min(n, self.context - _TRIED_STEPS)).tolist() for n in _TRIED if self.context > _TRIED_STEPS]
        try:
            read = [self.start(t) for t in texts]
            self._compare([scores for _, scores in read], texts)
            for _ in range(_TRIED_STEPS):
                more = random.integers(0, self.text.count, len(texts)).tolist()
                texts = [[*t, n] for t, n in zip(texts, more, strict=True)]
                self._compare(self.step([state for state, _ in read], more), texts)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
            raise WholeOnly(f"{type(error).__name__}: {error}") from error

    def _compare(self, scores: Any, texts: list[Tokens]) -> None:
        whole = self._scores(texts)
        if not np.allclose(scores, whole, rtol=1e-3, atol=1e-3 * float(np.abs(whole).max(initial=0.0))):
            raise WholeOnly("token by token it gives other scores: positions meet elsewhere than in attention")

    def start(self, tokens: Tokens) -> tuple[Any, Any]:
        """Read a prompt, padded to a multiple of 32 tokens."""
        if self.whole:
            return super().start(tokens)
        scores, *kept = self._reader.run_many([[self._window([tokens]).astype(self._program.inputs[0].dtype)]])[0]
        n = len(tokens)
        return Kept(n, [a[0, :, :n].copy() for a in kept]), scores[0, n - 1].astype(np.float32)

    def step(self, states: list[Any], tokens: Tokens) -> Any:
        """A token more of each sequence."""
        return super().step(states, tokens) if self.whole else self._decoder.append(states, tokens)

    def encode(self, text: str) -> Tokens:
        """By the vocabulary."""
        return self.text.encode(text)

    def decode(self, tokens: Tokens) -> str:
        """By the vocabulary."""
        return self.text.decode(tokens)

    def warm_up(self) -> None:
        """A plan for each number of sequences and for short texts; longer ones get theirs when they come."""
        if self.whole:
            for n in self._rows:
                for _ in range(4):
                    self.step([[0] for _ in range(n)], [0] * n)
            return
        for room in [n for n in self._decoder.lengths if n <= _WARM]:
            length = min(room, self.context) - 1
            for _ in range(4):
                state, _ = self.start([0] * length)
            for n in self._rows:
                self.step([Kept(length, [a.copy() for a in state.stored]) for _ in range(n)], [0] * n)

    def _of_last(self, window: Any, last: list[int]) -> Any:
        made = self._program.run_many([[window.astype(self._program.inputs[0].dtype)]])[0][0]
        return made[np.arange(len(last)), last].astype(np.float32)


def _form(program: Program, text: Text) -> str:
    """What keeps a program from being a language model; an empty text if nothing does."""
    if [len(program.inputs), len(program.outputs)] != [1, 1]:
        return f"this program has {len(program.inputs)} inputs and {len(program.outputs)} outputs"
    given, made = program.inputs[0], program.outputs[0]
    if given.dtype.kind != "i" or tuple(given.shape) != (-1, -1) or not program.batched:
        return f"this program takes {given.described()}"
    if made.dtype.kind != "f" or len(made.shape) != 3 or made.shape[1] != -1:
        return f"this program gives {made.described()}"
    if 0 <= made.shape[2] < text.count:
        return f"this program has scores of {made.shape[2]} tokens, the vocabulary has {text.count}"
    return ""
