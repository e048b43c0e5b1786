"""A builtin for from_model.py, written as those of edge_code.py: another State with the same in every field."""

from __future__ import annotations

from flambeau.trace.edge_code import BUILTIN, Places, _begin, _new
from flambeau.trace.object_code import module


def copied(places: Places) -> str:
    """The argument: a state. `STATE_BEGIN`, `STATE_FIELDS`: where its fields begin, and how many there are."""
    c = _begin(places)
    source = c.element("ptr", "%args", 0)
    made = _new(c, c.word("STATE"))
    c.refuse(c.same(made, "null"), "bad")
    with c.each(str(places["STATE_FIELDS"])) as (i, following):
        value = c.element("ptr", c.place(source, "STATE_BEGIN"), i)
        c.refuse(c.same(value, "null"), following)
        c.set("ptr", c.gep("ptr", c.place(made, "STATE_BEGIN"), i), c.retain(value))
    c.emit(f"ret ptr {made}")
    c.ending("bad", "null")
    return c.finish("$NAME", BUILTIN, internal=False)


def modules(places: Places) -> dict[str, str]:
    """The IR, by name."""
    return {"copied": module(copied(places))}
