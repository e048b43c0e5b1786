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


class LanguageProgram(CausalModule):
    """A LanguageModel over a program that maps tokens [n, t] to scores [n, t, vocabulary]."""

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

    def encode(self, text: str) -> Tokens:
        """By the vocabulary."""
        return self.text.encode(text)

    def decode(self, tokens: Tokens) -> str:
        """By the vocabulary."""
        return self.text.decode(tokens)

    def warm_up(self) -> None:
        """A plan for each number of sequences in a short window; longer windows get theirs when they come."""
        for n in self._rows:
            for _ in range(4):
                self.step([[0] for _ in range(n)], [0] * n)

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
