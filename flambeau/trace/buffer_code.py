"""Builtins for runtime/buffers.py, written as those of edge_code.py: small buffers from and to the pool, and addresses of a plan's inputs.

`pop()`: a buffer from a class of small blocks; its block: [table, class, bytes as an int, Python's function for an empty class].
`addresses(buffers)`: a list of their addresses. `give_back`: `Buffer.__del__`. That is a method without a block, called with null for its
arguments, so its code keeps the table and Python's method in variables of its own: called as a builtin, with one argument, it notes them.
"""

from __future__ import annotations

from flambeau.trace.edge_code import BUILTIN, Places, _begin, _loud, _new, _none, _quiet
from flambeau.trace.object_code import SIZE, ObjectCode, module


def pop(places: Places) -> str:
    """Without arguments."""
    c = _begin(places)
    home, nbytes = c.element("ptr", "%block", 1), c.element("ptr", "%block", 2)
    count = c.size(home)
    c.refuse(c.equal(count, 0), "empty")
    before = _quiet(c)
    b = _new(c, c.word("BUFFER"))
    _loud(c, before)
    c.refuse(c.same(b, "null"), "bad")
    last = c.sub(count, 1)  # nothing has run since it was read: no other thread, and no collection
    block = c.element("ptr", c.items(home, "list"), last)
    c.set("i64", c.gep("i8", home, SIZE), last)  # the list's reference is the buffer's now
    c.put(b, "BUFFER__BLOCK", block)
    c.keep(b, "BUFFER__CLASS", home)
    c.keep(b, "BUFFER_ADDRESS", c.element("ptr", c.items(block), 0))
    c.keep(b, "BUFFER_NBYTES", nbytes)
    c.keep(b, "BUFFER_OWNER", c.word("NONE"))
    counters = c.word("COUNTERS")
    total = c.add(c.integer(c.field(counters, "COUNTERS_BYTES_FROM_POOL")), c.integer(nbytes))
    counted = c.run("ptr", "PyLong_FromLongLong", f"i64 {total}")
    c.refuse(c.same(counted, "null"), "lost")
    c.exchange(counters, "COUNTERS_BYTES_FROM_POOL", counted, own=True)
    c.emit(f"ret ptr {b}")
    c.label("empty")
    c.emit(f"ret ptr {c.run('ptr', 'PyObject_CallNoArgs', c.element('ptr', '%block', 3))}")
    c.label("lost")
    c.release(b)
    c.branch("bad")
    c.ending("bad", "null")
    return c.finish("$NAME", BUILTIN, internal=False)


def addresses(places: Places) -> str:
    """The argument: a list of buffers."""
    c = _begin(places)
    buffers = c.element("ptr", "%args", 0)
    count = c.size(buffers)
    found = c.run("ptr", "PyList_New", f"i64 {count}")
    c.refuse(c.same(found, "null"), "bad")
    with c.each(count) as (i, _):
        address = c.field(c.element("ptr", c.items(buffers, "list"), i), "BUFFER_ADDRESS")
        c.set("ptr", c.gep("ptr", c.items(found, "list"), i), c.retain(address))
    c.emit(f"ret ptr {found}")
    c.ending("bad", "null")
    return c.finish("$NAME", BUILTIN, internal=False)


def give_back(places: Places) -> str:
    """Without arguments, of a buffer; as a builtin of a block [table]: Python's method."""
    c = ObjectCode(places)
    given = c.same("%args", "null")
    held = c.gep("i8", "%self", places["BYTES"])
    c.emit(f"%from = select i1 {given}, ptr @table, ptr {held}")
    c.emit("%table = load ptr, ptr %from")
    c.need(given, "note")
    home, block = c.field("%self", "BUFFER__CLASS"), c.field("%self", "BUFFER__BLOCK")
    c.refuse(c.any(c.same(home, c.word("NONE")), c.same(home, "null")), "done")
    limit = c.integer(c.field(home, "_CLASS_LIMIT"))
    c.need(c.op(f"icmp slt i64 {c.size(home)}, {limit}"), "python")
    c.need(c.equal(c.run("i32", "PyList_Append", home, block), 0, "i32"), "bad")
    c.branch("done")
    c.label("python")
    c.emit(f"ret ptr {c.run('ptr', 'PyObject_CallOneArg', c.get('ptr', '@method'), '%self')}")
    _none(c, "done")
    c.label("note")
    c.set("ptr", "@table", "%table")
    c.set("ptr", "@method", c.element("ptr", "%args", 0))
    c.branch("done")
    c.ending("bad", "null")
    return "\n".join(["@table = internal global ptr null", "@method = internal global ptr null", c.finish("$NAME", BUILTIN, internal=False)])


def modules(places: Places) -> dict[str, str]:
    """The IR of each of these builtins, by name."""
    return {f.__name__: module(f(places)) for f in (pop, addresses, give_back)}
