"""The segment of a kept piece (trace/kept.py): what its backward pass needs, and the rest of a segment when somebody asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flambeau.autograd.segment import Segment, save
from flambeau.trace.recorder import Boundary
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.autograd.segment import Shell
    from flambeau.tensor import Tensor
    from flambeau.trace.kept_piece import KeptPiece
    from flambeau.trace.meta import Meta
    from flambeau.trace.state import State


class KeptSegment(Segment):
    """`kept`: the piece, until the segment is made in full. `given`, `origins`, `storages`, `at`: of each input the tensor, its history, its storage and that
    one's version at the call, each where a backward pass asks for it. `held`: the storages of results that it saves. `done`: the slots whose nodes a backward
    pass has used, after one that does not keep the graph. `sizes`: of a call that is kept by class (trace/kept_classes.py); `metas`: of the tensors `given`.

    The other attributes are those of a Segment, which is made when one of them is read.
    """

    __slots__ = ("at", "done", "given", "held", "kept", "metas", "numbers", "origins", "sizes", "storages")
    kept: KeptPiece | None
    sizes: tuple[int, ...]
    metas: tuple[Meta | None, ...]
    given: tuple[Tensor | None, ...]
    origins: tuple[tuple[Any, int] | None, ...]
    storages: tuple[Storage | None, ...]
    at: tuple[int, ...]
    held: tuple[Storage, ...]
    numbers: tuple[Any, ...]
    done: set[int] | None

    def __getattr__(self, name: str) -> Any:
        if name == "tape" and self.kept is not None:
            self.tape = tape = self.kept.tape_for(self.sizes)
            return tape
        if name not in _LATER or self.kept is None:
            raise AttributeError(name)
        self._settle(self.kept)
        return getattr(self, name)

    def leading_on(self) -> list[tuple[int, Tensor, tuple[Any, int] | None]]:
        """As a whole segment's, which is not made for it: a pass asks for this of all segments that it gives up."""
        kept = self.kept
        return super().leading_on() if kept is None else [(slot, self.given[i], self.origins[i]) for slot, i in kept.boundaries]  # type: ignore[misc]

    def made_later(self) -> tuple[KeptPiece, tuple[int, ...]] | None:
        """What a shell makes state and tape of when somebody asks for them."""
        return None if self.kept is None else (self.kept, self.sizes)

    def without_values(self) -> tuple[int, State | None, Any, dict[int, Tensor | tuple[Shell, int]]]:
        """The same."""
        kept = self.kept
        return super().without_values() if kept is None else (-1, None, (), {})

    def _settle(self, kept: KeptPiece) -> None:
        history, tape = kept.history, self.tape
        assert history is not None
        whole = Segment(tape)
        whole.state = kept.state_at(self.sizes)
        for slot, i in kept.boundaries:
            t = self.given[i]
            assert t is not None
            boundary = whole.boundaries[slot] = Boundary(t, self.origins[i])
            boundary.version = self.at[i]
        whole.params = [self.numbers[tape.parameters[slot]] for slot in tape.entered]
        place = dict(kept.holders)
        versions = {}

        def holder(slot: int, index: int) -> tuple[Storage, bool]:
            i = place[slot]
            storage = self.storages[i] if i >= 0 else self.held[-1 - i]
            assert storage is not None
            versions[slot] = self.at[i] if i >= 0 else 0
            return storage, True

        save(history, whole, holder, kept.plan.input_slots())
        whole.versions = versions
        for t in whole.saved.values():
            if t._history is not None:
                t._history = (self, t._history[1])
        if self.done is not None:
            whole.freed |= self.done
        for name in _LATER:
            setattr(self, name, getattr(whole, name))
        self.kept = None
        self.given, self.origins, self.storages, self.held = (), (), (), ()


_LATER = frozenset(Segment.__slots__) - {"__weakref__", "order", "shell", "tape"}


def kept_segments() -> type[KeptSegment]:
    """The class of the segments of kept pieces."""
    return KeptSegment
