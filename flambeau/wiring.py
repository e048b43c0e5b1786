"""What calls upwards, and whom: each declaration of upward.py is given its function, when this is imported. Folders import downwards only; this file is above them."""

from __future__ import annotations

from flambeau.autograd import differentiate, kept_segment, segment
from flambeau.ops import more, primitives, shape
from flambeau.trace import evaluate, fragment, kept, mutation, recorder, salvage
from flambeau.upward import give, give_later


def _start_native() -> None:
    from flambeau.ops import known_edge

    known_edge.start()


# A trace that ends asks autograd what to keep.
give(evaluate.plan_history, segment.plan_history)
give(evaluate.keep_history, segment.keep_history)
give(kept.tape_of, segment.tape_of)
give(kept.kept_segments, kept_segment.kept_segments)
give(mutation.freed_outputs, differentiate.freed_outputs)
give_later(salvage.keep_salvaged, "flambeau.autograd.salvaged")
# Recording composes what ops/ has.
vars(fragment)["primitives"] = primitives
give(recorder.as_strided, shape.as_strided)
give(mutation.resize_, more.resize_)
give(mutation.become_view, more.become_view)
give_later(fragment.casting, "flambeau.ops.autocast_lists")
evaluate.start_native = _start_native
