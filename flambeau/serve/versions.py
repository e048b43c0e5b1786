"""A model and its versions: which are ready, and which one takes a request that names none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flambeau.serve.batching import Batcher
from flambeau.serve.errors import NotFound, Unavailable
from flambeau.serve.programs import Program
from flambeau.serve.settings import ModelSettings


@dataclass
class Version:
    """One version that is ready. `language`: its LanguageModel's scheduler, if it is one; `batcher` takes its tensors, if it takes any."""

    model: str
    number: int
    signature: Any
    program: Program | None = None
    batcher: Batcher | None = None
    language: Any = None
    seconds: float = 0.0  # of one run of the largest batch, as the warm-up found it
    observed: dict[str, Any] = field(default_factory=dict)

    @property
    def outstanding(self) -> int:
        """Requests that wait or run."""
        return sum([taken.outstanding for taken in (self.batcher, self.language) if taken is not None])

    def close(self) -> None:
        """Take nothing new, and end when all has been answered."""
        if self.batcher is not None:
            program = self.program
            self.batcher.close(program.close if program is not None else None)
        if self.language is not None:
            self.language.close()


class Model:
    """A model's ready versions by number, its settings, and why the last load of a version failed. Replaced as a whole: readers see one state or the next."""

    def __init__(self, name: str, settings: ModelSettings) -> None:
        self.name, self.settings = name, settings
        self.versions: dict[int, Version] = {}
        self.failures: dict[int, str] = {}
        self.failure = ""  # of the model's settings
        self._turns: dict[int, float] = {}

    def version(self, number: str | None = None) -> Version:
        """The version of a request. NotFound if there is none of that number, Unavailable if it could not be loaded, or none is ready."""
        if number is not None:
            found = self.versions.get(int(number)) if number.isdecimal() and len(number) < 19 else None
            if found is not None:
                return found
            failure = self.failures.get(int(number)) if number.isdecimal() and len(number) < 19 else None
            if failure is not None:
                raise Unavailable(f"version {number} of the model {self.name!r} is not ready: {failure}")
            raise NotFound(f"the model {self.name!r} has no version {number[:100]!r}; there are {sorted(self.versions)}")
        if len(self.versions) == 1:
            return next(iter(self.versions.values()))
        if not self.versions:
            raise Unavailable(f"the model {self.name!r} is not ready: {self.failure or next(iter(self.failures.values()), 'it is being loaded')}")
        if not self.settings.weights:
            return self.versions[max(self.versions)]
        return self._by_weight()

    def _by_weight(self) -> Version:
        """Smooth weighted round robin (nginx's): each version gets its share of any run of requests, spread evenly."""
        weights = {n: float(self.settings.weights.get(str(n), 0.0)) for n in self.versions}
        total = sum(weights.values())
        if not total:
            return self.versions[max(self.versions)]
        turns = {n: self._turns.get(n, 0.0) + w for n, w in weights.items()}
        chosen = max(turns, key=lambda n: (turns[n], n))
        turns[chosen] -= total
        self._turns = turns
        return self.versions[chosen]
