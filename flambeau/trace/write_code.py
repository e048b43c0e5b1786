"""More builtins of known_edge.py (see edge_code.py): the writes at the end of an optimizer's step, and what the end of a trace does for each tensor.

`writes(targets, sources, fresh)`: `mutation.assign_all` where the state remembers the same writes (`State.writes`): True, or None and nothing done.
`take(state, tensors)`: `Trace.follow`. `collect(inputs)`: the buffers of a trace's inputs, which are its own no longer.
`deliver(tensors, assign, buffers)`: give results their buffers. `alive(tensors)`: bytes, 1 for each tensor that somebody but the list holds.
`thread()`: the thread pointer, for the table.
"""

from __future__ import annotations

from flambeau.trace.edge_code import BUILTIN, Places, _attached, _begin, _boundary, _here, _loud, _new_storage, _none, _quiet, follow, result
from flambeau.trace.object_code import ObjectCode, module
from flambeau.trace.recorder import MOST_GIVEN as GIVEN


def _requires_history(c: ObjectCode, t: str) -> str:
    """Whether a tensor requires gradients and is no leaf."""
    meta, true = c.field(t, "TENSOR_META"), c.word("TRUE")
    return c.all(c.same(c.field(meta, "META_REQUIRES_GRAD"), true), c.other(c.field(meta, "META_LEAF"), true))


def writes(places: Places, name: str = "$NAME") -> str:
    """Targets whose storages are written have the generation MARK while others on these storages are looked for, LISTED once they are found.

    Under a name of its own the function is one of a module that has another builtin.
    """
    c = _begin(places)
    none, mark, listed, minus, zero = (c.word(name) for name in ("NONE", "MARK", "LISTED", "MINUS", "ZERO"))
    tr = _here(c, "miss")
    gen = c.field(tr, "TRACE_GEN")
    memo = c.field(c.field(tr, "TRACE_STATE"), "STATE_WRITES")
    c.refuse(c.same(memo, none), "miss")
    targets, sources = c.element("ptr", "%args", 0), c.element("ptr", "%args", 1)
    c.need(c.all(c.is_one_of(targets, "LIST"), c.is_one_of(sources, "LIST")), "miss")
    c.need(c.same(c.element("ptr", "%args", 2), c.element("ptr", c.items(memo), 5)), "miss")
    slots, made, roots, metas, steps = (c.items(c.element("ptr", c.items(memo), i)) for i in range(5))
    count = c.size(targets)
    c.need(c.all(c.equal(c.size(c.element("ptr", c.items(memo), 0)), count), c.equal(c.size(sources), count)), "miss")
    at, new = c.items(targets, "list"), c.items(sources, "list")
    with c.each(count) as (i, _):
        t, s = c.element("ptr", at, i), c.element("ptr", new, i)
        c.need(c.all(c.is_tensor(t), c.is_tensor(s)), "miss")
        storage = c.field(t, "TENSOR_STORAGE")
        c.need(c.all(
            c.same(c.field(t, "TENSOR_GEN"), gen), c.same(c.field(t, "TENSOR_SLOT"), c.element("ptr", slots, i)),
            c.same(c.field(s, "TENSOR_GEN"), gen), c.same(c.field(s, "TENSOR_SLOT"), c.element("ptr", made, i)),
            c.same(c.field(t, "TENSOR_META"), c.element("ptr", metas, i)), c.other(storage, none),
            c.other(t, s),
        ), "miss")  # fmt: skip
        c.need(c.all(
            c.same(c.field(storage, "STORAGE_GEN"), gen), c.same(c.field(storage, "STORAGE_SLOT"), c.element("ptr", roots, i)),
            c.same(c.field(storage, "STORAGE_FAMILY"), zero), c.same(c.field(storage, "STORAGE_CUT"), minus),
            c.same(c.field(storage, "STORAGE_HISTORY"), none), c.same(c.field(storage, "STORAGE_RESULT"), none),
        ), "miss")  # fmt: skip
        c.need(_attached(c, t, "error"), "miss")
    # Fields that are marked have no reference: they get `gen` back, or give it away.
    marked = c.variable("i64", "0")
    with c.each(count) as (i, _):
        t = c.element("ptr", at, i)
        storage = c.field(t, "TENSOR_STORAGE")
        c.refuse(c.same(c.field(storage, "STORAGE_GEN"), mark), "unmark")  # two tensors on one storage
        c.put(storage, "STORAGE_GEN", mark)
        c.put(t, "TENSOR_GEN", mark)
        c.set("i64", marked, c.add(i, 1))
    tensors, resolved = c.field(tr, "TRACE_TENSORS"), c.field(tr, "TRACE_RESOLVED")
    with c.each(c.size(tensors)) as (i, following):
        t = c.element("ptr", c.items(tensors, "list"), i)
        storage = c.field(t, "TENSOR_STORAGE")
        c.refuse(c.same(storage, none), following)
        c.need(c.all(c.same(c.field(storage, "STORAGE_GEN"), mark), c.same(c.field(t, "TENSOR_GEN"), gen)), following)
        c.refuse(_requires_history(c, t), "unmark")  # gradients may need what it was
    with c.each(c.size(tensors)) as (i, following):
        t = c.element("ptr", c.items(tensors, "list"), i)
        storage = c.field(t, "TENSOR_STORAGE")
        c.refuse(c.same(storage, none), following)
        c.need(c.same(c.field(storage, "STORAGE_GEN"), mark), following)
        stale = c.new_label("stale")
        had = c.field(t, "TENSOR_GEN")
        c.refuse(c.same(had, listed), following)
        c.need(c.same(had, mark), stale)
        c.put(t, "TENSOR_GEN", listed)
        c.branch(following)
        c.label(stale)
        c.exchange(t, "TENSOR_GEN", minus)
    with c.each(c.size(resolved)) as (i, following):
        t = c.element("ptr", c.items(resolved, "list"), i)
        storage = c.field(t, "TENSOR_STORAGE")
        c.refuse(c.same(storage, none), following)
        c.need(c.all(c.same(c.field(storage, "STORAGE_GEN"), mark), c.same(c.field(t, "TENSOR_GEN"), gen)), following)
        c.exchange(t, "TENSOR_GEN", minus)
    before = _quiet(c)
    with c.each(count) as (i, following):
        t = c.element("ptr", at, i)
        storage = c.field(t, "TENSOR_STORAGE")
        with c.where(c.same(c.field(t, "TENSOR_GEN"), mark)):
            c.run("i32", "PyList_Append", tensors, t)
        c.put(t, "TENSOR_GEN", gen)
        c.put(storage, "STORAGE_GEN", gen)
        step = c.items(c.element("ptr", steps, i))
        state = c.element("ptr", step, 0)
        c.exchange(storage, "STORAGE_SLOT", c.element("ptr", step, 1))
        version = c.run("ptr", "PyLong_FromLongLong", f"i64 {c.add(c.integer(c.field(storage, 'STORAGE_VERSION')), 1)}")
        c.refuse(c.same(version, "null"), "lost")
        c.exchange(storage, "STORAGE_VERSION", version, own=True)
        slot = c.field(state, "STATE_SLOT")
        c.exchange(t, "TENSOR_SLOT", slot)
        c.exchange(t, "TENSOR_META", c.field(state, "STATE_META"))
        history = c.run("ptr", "PyObject_GetAttr", t, c.word("HISTORY_NAME"))
        c.refuse(c.same(history, "null"), "lost")
        forgets = c.new_label("forgets")
        c.need(c.same(c.element("ptr", step, 2), c.word("TRUE")), forgets)
        _boundary(c, tr, slot, t, history, version, "lost")
        c.branch(following)
        c.label(forgets)
        c.release(history)
        c.refuse(c.same(history, none), following)
        c.need(c.equal(c.run("i32", "PyObject_SetAttr", t, c.word("HISTORY_NAME"), none), 0, "i32"), "lost")
    with c.where(c.op(f"icmp ne i64 {count}, 0")):
        c.exchange(tr, "TRACE_STATE", c.element("ptr", c.items(c.element("ptr", steps, c.sub(count, 1))), 0))
    _loud(c, before)
    c.emit(f"ret ptr {c.retain(c.word('TRUE'))}")
    c.label("unmark")
    with c.each(c.get("i64", marked)) as (i, _):
        t = c.element("ptr", at, i)
        c.put(c.field(t, "TENSOR_STORAGE"), "STORAGE_GEN", gen)
        c.put(t, "TENSOR_GEN", gen)
    c.branch("miss")
    c.label("lost")
    _loud(c, before)
    c.branch("error")
    c.ending("error", "null")
    _none(c, "miss")
    return c.finish(name, BUILTIN, internal=name != "$NAME")


def take(places: Places) -> str:
    """The arguments: a state that can be followed in native code, and a list or a tuple of the call's tensors."""
    c = _begin(places)
    tr = _here(c, "miss")
    state, tensors = c.element("ptr", "%args", 0), c.element("ptr", "%args", 1)
    given = c.room("ptr", GIVEN)
    source = c.variable("ptr", c.items(tensors))
    with c.where(c.is_one_of(tensors, "LIST")):
        c.set("ptr", source, c.items(tensors, "list"))
    with c.each(c.size(tensors)) as (i, following):
        c.need(c.op(f"icmp ult i64 {i}, {GIVEN}"), following)
        t = c.element("ptr", c.get("ptr", source), i)
        c.need(c.is_tensor(t), "miss")
        c.set("ptr", c.gep("ptr", given, i), t)
    c.emit(f"ret ptr {c.ask('ptr', 'follow', tr, state, given)}")
    _none(c, "miss")
    return c.finish("$NAME", BUILTIN, internal=False)


def collect(places: Places) -> str:
    """The arguments: a list of storages, and the generation of the trace whose inputs they are."""
    c = _begin(places)
    inputs, gen = c.element("ptr", "%args", 0), c.element("ptr", "%args", 1)
    count = c.size(inputs)
    given = c.run("ptr", "PyList_New", f"i64 {count}")
    c.refuse(c.same(given, "null"), "bad")
    minus = c.word("MINUS")
    with c.each(count) as (i, _):
        storage = c.element("ptr", c.items(inputs, "list"), i)
        c.set("ptr", c.gep("ptr", c.items(given, "list"), i), c.retain(c.field(storage, "STORAGE_BUFFER")))
        with c.where(c.same(c.field(storage, "STORAGE_GEN"), gen)):
            c.exchange(storage, "STORAGE_GEN", minus)
    c.emit(f"ret ptr {given}")
    c.ending("bad", "null")
    return c.finish("$NAME", BUILTIN, internal=False)


def deliver(places: Places) -> str:
    """The arguments: tensors, pairs (position among the tensors, index of an output), and the outputs' buffers, three lists."""
    c = _begin(places)
    tensors, assign, buffers = (c.element("ptr", "%args", i) for i in range(3))
    minus = c.word("MINUS")
    before = _quiet(c)
    with c.each(c.size(assign)) as (i, _):
        pair = c.items(c.element("ptr", c.items(assign, "list"), i))
        t = c.element("ptr", c.items(tensors, "list"), c.integer(c.element("ptr", pair, 0)))
        with c.where(c.same(c.field(t, "TENSOR_STORAGE"), c.word("NONE"))):
            made = _new_storage(c, minus, minus)
            c.refuse(c.same(made, "null"), "bad")
            c.exchange(t, "TENSOR_STORAGE", made, own=True)
        storage = c.field(t, "TENSOR_STORAGE")
        c.exchange(storage, "STORAGE_GEN", minus)
        c.exchange(storage, "STORAGE_BUFFER", c.element("ptr", c.items(buffers, "list"), c.integer(c.element("ptr", pair, 1))))
    _loud(c, before)
    c.branch("done")
    _none(c, "done")
    c.label("bad")
    _loud(c, before)
    c.emit("ret ptr null")
    return c.finish("$NAME", BUILTIN, internal=False)


def alive(places: Places) -> str:
    """The argument: a list of tensors."""
    c = _begin(places)
    tensors = c.element("ptr", "%args", 0)
    count = c.size(tensors)
    found = c.run("ptr", "PyBytes_FromStringAndSize", "null", f"i64 {count}")
    c.refuse(c.same(found, "null"), "bad")
    to, items = c.gep("i8", found, places["BYTES"]), c.items(tensors, "list")
    with c.each(count) as (i, _):
        references = c.get("i32", c.element("ptr", items, i))
        held = c.op(f"zext i1 {c.op(f'icmp ne i32 {references}, 1')} to i8")
        c.set("i8", c.gep("i8", to, i), held)
    c.emit(f"ret ptr {found}")
    c.ending("bad", "null")
    return c.finish("$NAME", BUILTIN, internal=False)


def thread(places: Places) -> str:
    """Without arguments, and before there is a table: its block has the interpreter's function."""
    c = ObjectCode(places)
    c.emit(f"%block = getelementptr i8, ptr %self, i64 {places['BYTES']}")
    here = c.op("call ptr @llvm.thread.pointer.p0()")
    made = c.op(f"call ptr {c.get('ptr', '%block')}(ptr {here})")
    c.emit(f"ret ptr {made}")
    return c.finish("$NAME", BUILTIN, internal=False)


def modules(places: Places) -> dict[str, str]:
    """The IR of each of these builtins, by name."""
    made = {f.__name__: module(f(places)) for f in (writes, collect, deliver, alive, thread)}
    return made | {"take": module(result(places), follow(places), take(places))}
