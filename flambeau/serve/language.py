"""Language models: the interface that a `model.py` fills in, and continuous batching: sequences join and leave the batch at every step.

A request is admitted as soon as there is room, not when a batch has ended; a sequence that has ended, or whose client has left, makes room at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.serve.errors import BadRequest, DeadlineExceeded, QueueFull, ServeError, Unavailable

_STEP: Final = 32  # positions by which CausalModule's window grows: so many lengths share a plan


class LanguageModel:
    """What `class Model(LanguageModel)` of a model.py has. Methods are called in one thread, never at once.

    `context`: most tokens of prompt and answer together; `end`: tokens that end an answer.
    """

    context: int = 1024
    end: frozenset[int] = frozenset()

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        raise NotImplementedError

    def decode(self, tokens: list[int]) -> str:
        """The text of tokens; where they end in the middle of a character, "\\ufffd" stands for it."""
        raise NotImplementedError

    def chat(self, messages: list[dict[str, str]]) -> str:
        """The prompt of a conversation: each with "role" and "content"."""
        return "".join([f"{m['role']}: {m['content']}\n" for m in messages]) + "assistant: "

    def start(self, tokens: list[int]) -> tuple[Any, Any]:
        """Read a prompt: (state of the sequence, scores of the next token, an array of as many as there are tokens)."""
        raise NotImplementedError

    def step(self, states: list[Any], tokens: list[int]) -> Any:
        """Append a token to each sequence: scores of the next ones, an array [sequences, vocabulary]. States may be changed."""
        raise NotImplementedError

    def warm_up(self) -> None:
        """A prompt and some steps, so that everything is compiled before the first request."""
        state, scores = self.start(self.encode("a") or [0])
        for _ in range(4):
            scores = self.step([state], [int(np.asarray(scores).reshape(-1).argmax())])[0]

    def close(self) -> None:
        """Called when the last answer has been sent."""


class CausalModule(LanguageModel):
    """A LanguageModel over a module that maps tokens [n, t] (int64) to scores [n, t, vocabulary], each of which depends on no later token.

    It has no cache of keys and values: each step computes the whole window again, in one batch, padded at the end to a multiple of 32 tokens.
    """

    def __init__(self, module: Callable[[Any], Any], context: int) -> None:
        self.module, self.context = module, context

    def _scores(self, rows: list[list[int]]) -> Any:
        rows = [r[-self.context :] for r in rows]
        return self._of_last(self._window(rows), [len(r) - 1 for r in rows])

    def _window(self, rows: list[list[int]]) -> Any:
        """The rows side by side, padded at the end."""
        longest = max(map(len, rows))
        width = min(-(-longest // _STEP) * _STEP, max(self.context, longest))
        window = np.zeros((len(rows), width), np.int64)
        for i, r in enumerate(rows):
            window[i, : len(r)] = r
        return window

    def _of_last(self, window: Any, last: list[int]) -> Any:
        """The scores after the last token of each row of a window."""
        with flambeau.no_grad():
            made = self.module(flambeau.from_numpy(window))
            return made[flambeau.arange(len(last)), flambeau.tensor(last)].float().numpy()

    def start(self, tokens: list[int]) -> tuple[Any, Any]:
        """The state is the list of tokens."""
        state = list(tokens)
        return state, self._scores([state])[0]

    def step(self, states: list[Any], tokens: list[int]) -> Any:
        """One batch of all sequences."""
        for s, t in zip(states, tokens, strict=True):
            s.append(t)
        return self._scores(states)


@dataclass
class Sampling:
    """How the next token is drawn, and what ends an answer."""

    most: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: list[str] = field(default_factory=list)
    presence: float = 0.0
    frequency: float = 0.0


class Answer:
    """One answer in the making. `heard(text, why)` is called in the loop's thread with each new piece; `why` is the reason of the end, or None.

    `failed(error)` is called instead of the last piece.
    """

    def __init__(
        self, tokens: list[int], sampling: Sampling, deadline: float, heard: Callable[[str, str | None], None], failed: Callable[[ServeError], None]
    ) -> None:  # fmt: skip
        self.prompt, self.sampling, self.deadline, self.heard, self.failed = tokens, sampling, deadline, heard, failed
        self.tokens: list[int] = []
        self.text = ""
        self.sent = 0
        self.state: Any = None
        self.next = 0
        self.cancelled = False
        self.random = np.random.default_rng(sampling.seed)

    def cancel(self) -> None:
        """The client has left; the next step goes without it."""
        self.cancelled = True


def choose(scores: Any, sequence: Answer) -> int:
    """The next token: the likeliest at temperature 0, else drawn among the likeliest whose probabilities reach `top_p`."""
    s = sequence.sampling
    x = np.asarray(scores, np.float64).copy()
    if s.presence or s.frequency:
        kinds, counts = np.unique(np.asarray(sequence.tokens, np.int64), return_counts=True)
        x[kinds] -= s.presence + s.frequency * counts
    if s.temperature == 0:
        return int(x.argmax())
    x = x / s.temperature
    p = np.exp(x - x.max())
    p /= p.sum()
    if s.top_p < 1:
        order = np.argsort(-p, kind="stable")
        kept = order[: int(np.searchsorted(np.cumsum(p[order]), s.top_p)) + 1]
        return int(kept[np.searchsorted(np.cumsum(p[kept]) / p[kept].sum(), sequence.random.random(), side="right").clip(max=len(kept) - 1)])
    return int(np.searchsorted(np.cumsum(p), sequence.random.random(), side="right").clip(max=len(p) - 1))


class Scheduler:
    """The thread of a language model: it admits, steps and ends sequences."""

    def __init__(self, model: LanguageModel, loop: asyncio.AbstractEventLoop, *, most: int = 32, room: int = 1024, name: str = "model") -> None:
        self.model, self.loop, self.most, self.room = model, loop, most, room
        self.waiting: deque[Answer] = deque()
        self.active: list[Answer] = []
        self.steps = self.largest = 0
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=f"flambeau-{name}", daemon=True)

    @property
    def outstanding(self) -> int:
        """Sequences that wait or run."""
        return len(self.waiting) + len(self.active)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def submit(self, sequences: Sequence[Answer]) -> None:
        """Queue sequences. BadRequest for a prompt that is too long, QueueFull, Unavailable."""
        for s in sequences:
            if not s.prompt:
                raise BadRequest("the prompt has no tokens")
            if len(s.prompt) >= self.model.context:
                raise BadRequest(f"the prompt has {len(s.prompt)} tokens, the model's context is {self.model.context}")
        with self._wake:
            if self._closed:
                raise Unavailable("this version of the model is being unloaded")
            if len(self.waiting) + len(sequences) > self.room:
                raise QueueFull(f"the model's queue is full: {self.room} requests wait")
            self.waiting.extend(sequences)
            self._wake.notify()

    def close(self) -> None:
        """Take nothing new; end when all has been answered."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    # -- in the model's thread ----------------------------------------------------------------------------------
    def _serve(self) -> None:
        while True:
            with self._wake:
                while not self.waiting and not self.active:
                    if self._closed:
                        self.model.close()
                        return
                    self._wake.wait()
                admitted: list[Answer] = []
                while self.waiting and len(self.active) + len(admitted) < self.most:
                    admitted.append(self.waiting.popleft())
            for s in admitted:
                self._admit(s)
            self._step()

    def _tell(self, call: Callable[..., None], *args: Any) -> None:
        try:
            self.loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop has ended
            self._closed = True

    def _ended(self, s: Answer) -> bool:
        """Whether nobody waits for it any more."""
        if s.cancelled:
            return True
        if monotonic() > s.deadline:
            self._tell(s.failed, DeadlineExceeded("the deadline passed before the answer was complete"))
            return True
        return False

    def _admit(self, s: Answer) -> None:
        if self._ended(s):
            return
        try:
            s.state, scores = self.model.start(s.prompt)
            if self._append(s, choose(scores, s)):
                self.active.append(s)
        except Exception as error:
            self._tell(s.failed, ServeError(f"the model failed: {type(error).__name__}: {error}"))

    def _step(self) -> None:
        self.active = [s for s in self.active if not self._ended(s)]
        if not self.active:
            return
        self.steps += 1
        self.largest = max(self.largest, len(self.active))
        try:
            scores = np.asarray(self.model.step([s.state for s in self.active], [s.next for s in self.active]))
            self.active = [s for i, s in enumerate(self.active) if self._append(s, choose(scores[i], s))]
        except Exception as error:
            for s in self.active:
                self._tell(s.failed, ServeError(f"the model failed: {type(error).__name__}: {error}"))
            self.active = []

    def _append(self, s: Answer, token: int) -> bool:
        """Take a token into an answer, and hand over the text that is certain; False if the answer has ended."""
        if token in self.model.end:
            self._hand_over(s, "stop")
            return False
        s.tokens.append(token)
        s.next = token
        s.text = self.model.decode(s.tokens)
        for stop in s.sampling.stop:
            at = s.text.find(stop)
            if at >= 0:
                s.text = s.text[:at]
                self._hand_over(s, "stop")
                return False
        if len(s.tokens) >= s.sampling.most or len(s.prompt) + len(s.tokens) >= self.model.context:
            self._hand_over(s, "length")
            return False
        certain = len(s.text)
        while certain and s.text[certain - 1] == "\ufffd":
            certain -= 1
        for stop in s.sampling.stop:  # what may be its beginning waits
            for n in range(min(len(stop) - 1, certain), 0, -1):
                if s.text[:certain].endswith(stop[:n]):
                    certain -= n
                    break
        if certain > s.sent:
            piece, s.sent = s.text[s.sent : certain], certain
            self._tell(s.heard, piece, None)
        return True

    def _hand_over(self, s: Answer, why: str) -> None:
        piece, s.sent = s.text[s.sent :], len(s.text)
        self._tell(s.heard, piece, why)
