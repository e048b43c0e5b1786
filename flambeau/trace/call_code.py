"""The builtin of a remembered function (ops/remembered.py), written as those of edge_code.py: the call that its state remembers, or None.

Its block: [table, the body of the function]. A call agrees with `KnownCall.arguments` where tensors have the metadata (and the slot, if it was
used) of a `Given`, and everything else is the same object or has the same type and value; floats are compared by their bits. Then the trace
takes the call's edges, and the results are put together as the body did.
"""

from __future__ import annotations

from flambeau.trace.edge_code import BUILTIN, FLOAT_VALUE, Places, _begin, _here, _loud, _none, _quiet, alike, enter, hand_out, look_at_bounds, result
from flambeau.trace.object_code import ObjectCode, module
from flambeau.trace.recorder import MOST_GIVEN as MOST
from flambeau.trace.write_code import writes

_PARTS = 16  # where a slice has its first part


def agrees(places: Places) -> str:
    """agrees(table, trace, a, e, given, count) -> i1: whether an argument is what the known call had there; its tensors are added to `given`."""
    c = ObjectCode(places)
    a, e, tr = "%a", "%e", "%tr"
    c.need(c.same(c.type_of(e), c.word("GIVEN")), "plain")
    c.need(c.is_tensor(a), "no")
    c.need(c.same(c.field(a, "TENSOR_META"), c.field(e, "GIVEN_META")), "no")
    slot = c.field(e, "GIVEN_SLOT")
    with c.where(c.other(slot, c.word("NONE"))):
        c.need(c.all(c.same(c.field(a, "TENSOR_GEN"), c.field(tr, "TRACE_GEN")), c.same(c.field(a, "TENSOR_SLOT"), slot)), "no")
    n = c.get("i64", "%count")
    c.need(c.op(f"icmp ult i64 {n}, {MOST}"), "no")
    c.set("ptr", c.gep("ptr", "%given", n), a)
    c.set("i64", "%count", c.add(n, 1))
    c.branch("yes")
    c.label("plain")
    c.refuse(c.same(a, e), "yes")
    type_ = c.type_of(a)
    is_listed = c.any(*[c.same(type_, c.word(kind)) for kind in ("TUPLE", "SIZE", "LIST")])
    c.need(is_listed, "single")
    is_list = c.same(type_, c.word("LIST"))
    c.need(c.is_one_of(e, "TUPLE", "SIZE", "LIST"), "no")
    c.need(c.equal(is_list, c.is_one_of(e, "LIST"), "i1"), "no")
    size = c.size(a)
    c.need(c.equal(size, c.size(e)), "no")
    left, right = c.variable("ptr", c.items(a)), c.variable("ptr", c.items(e))
    with c.where(is_list):
        c.set("ptr", left, c.items(a, "list"))
        c.set("ptr", right, c.items(e, "list"))
    with c.each(size) as (i, following):
        x, y = c.element("ptr", c.get("ptr", left), i), c.element("ptr", c.get("ptr", right), i)
        c.refuse(c.same(x, y), following)
        c.need(c.ask("i1", "agrees", tr, x, y, "%given", "%count"), "no")
    c.branch("yes")
    c.label("single")
    c.need(c.same(type_, c.type_of(e)), "no")
    c.refuse(c.same(type_, c.word("FLOAT")), "float")
    c.refuse(c.same(type_, c.word("SLICE")), "slice")
    c.need(c.any(c.same(type_, c.word("INT")), c.same(type_, c.word("STR"))), "no")
    c.fork(c.equal(c.run("i32", "PyObject_RichCompareBool", a, e, "i32 2"), 1, "i32"), "yes", "no")  # 2: Py_EQ
    c.label("float")
    c.fork(c.equal(c.get("i64", c.gep("i8", a, FLOAT_VALUE)), c.get("i64", c.gep("i8", e, FLOAT_VALUE))), "yes", "no")
    c.label("slice")
    parts, others = c.gep("i8", a, _PARTS), c.gep("i8", e, _PARTS)
    with c.each("3") as (i, following):
        x, y = c.element("ptr", parts, i), c.element("ptr", others, i)
        c.refuse(c.same(x, y), following)
        c.need(c.ask("i1", "alike", x, y), "no")
    c.branch("yes")
    c.ending("yes", "true", "i1")
    c.ending("no", "false", "i1")
    return c.finish("agrees", "ptr %table, ptr %tr, ptr %a, ptr %e, ptr %given, ptr %count", "i1")


def build(places: Places) -> str:
    """build(table, what, made) -> a new reference: a result of the call: None, the tensor at an index, or (class, parts...)."""
    c = ObjectCode(places)
    what = "%what"
    c.refuse(c.same(what, c.word("NONE")), "none")
    c.refuse(c.is_one_of(what, "TUPLE"), "several")
    c.emit(f"ret ptr {c.retain(c.element('ptr', '%made', c.integer(what)))}")
    c.label("several")
    items = c.items(what)
    count = c.sub(c.size(what), 1)
    parts = c.run("ptr", "PyTuple_New", f"i64 {count}")
    c.refuse(c.same(parts, "null"), "bad")
    with c.each(count) as (i, _):
        part = c.ask("ptr", "build", c.element("ptr", items, c.add(i, 1)), "%made")
        c.refuse(c.same(part, "null"), "drop")
        c.set("ptr", c.gep("ptr", c.items(parts), i), part)
    pack = c.element("ptr", items, 0)
    hand_out(c, pack, parts)
    c.label("drop")
    c.release(parts)
    c.branch("bad")
    c.ending("bad", "null")
    _none(c, "none")
    return c.finish("build", "ptr %table, ptr %what, ptr %made")


def _write(c: ObjectCode, tr: str, call: str, tail: str, made: str, bad: str) -> None:
    """The writes that a known call ends with: those that the state remembers (write_code.py), or the Python code makes them."""
    start, targets, sources, fresh, end = (c.element("ptr", c.items(tail), i) for i in range(5))
    count = c.size(targets)
    lists = []
    for places in (targets, sources):
        made_list = c.run("ptr", "PyList_New", f"i64 {count}")
        c.refuse(c.same(made_list, "null"), bad)
        with c.each(count) as (i, _):
            t = c.element("ptr", made, c.integer(c.element("ptr", c.items(places), i)))
            c.set("ptr", c.gep("ptr", c.items(made_list, "list"), i), c.retain(t))
        lists.append(made_list)
    arguments = c.room("ptr", 3)
    for k, value in enumerate((*lists, fresh)):
        c.set("ptr", c.gep("ptr", arguments, k), value)
    here = c.retain(c.field(tr, "TRACE_STATE"))
    c.exchange(tr, "TRACE_STATE", start)
    done = c.op(f"call ptr @writes(ptr %self, ptr {arguments}, i64 3)")
    written, otherwise, over, failed = (c.new_label(stem) for stem in ("written", "otherwise", "over", "failed"))
    answer = c.variable("ptr", done)
    c.refuse(c.same(done, "null"), over)
    c.refuse(c.same(done, c.word("NONE")), otherwise)
    c.exchange(tr, "TRACE_STATE", end)
    c.branch(over)
    c.label(otherwise)
    c.exchange(tr, "TRACE_STATE", here)
    task = c.run("ptr", "PyTuple_New", "i64 3")
    c.set("ptr", answer, "null")
    c.refuse(c.same(task, "null"), over)
    for k, value in enumerate((*lists, call)):
        c.set("ptr", c.gep("ptr", c.items(task), k), c.retain(value))
    c.set("ptr", answer, c.run("ptr", "PyObject_CallOneArg", c.word("FINISH"), task))
    c.release(task)
    c.branch(over)
    c.label(over)
    for made_list in lists:
        c.release(made_list)
    c.release(here)
    c.refuse(c.same(c.get("ptr", answer), "null"), failed)
    c.release(c.get("ptr", answer))
    c.branch(written)
    c.label(failed)
    c.branch(bad)
    c.label(written)


def call(places: Places) -> str:
    """The builtin. Where the call does not agree, tensors that the trace does not know are entered, and it is looked at once more."""
    c = _begin(places)
    none = c.word("NONE")
    function = c.element("ptr", "%block", 1)
    made, given = c.room("ptr", MOST), c.room("ptr", MOST)
    count = c.variable("i64", "0")
    entered = c.variable("i1", "false")
    tr = _here(c, "miss")
    c.branch("look")

    c.label("look")
    state = c.field(tr, "TRACE_STATE")
    call = c.field(state, "STATE_CALL")
    c.refuse(c.same(call, none), "inputs")
    expected, steps = c.field(call, "KNOWNCALL_ARGUMENTS"), c.field(call, "KNOWNCALL_STEPS")
    c.need(c.all(c.same(c.field(call, "KNOWNCALL_FUNCTION"), function), c.equal(c.size(expected), "%count")), "inputs")
    c.set("i64", count, "0")
    with c.each("%count") as (i, following):
        a, e = c.element("ptr", "%args", i), c.element("ptr", c.items(expected), i)
        c.refuse(c.same(a, e), following)
        c.need(c.ask("i1", "agrees", tr, a, e, made, count), "inputs")
    first = c.variable("i64", c.get("i64", count))
    numbers = c.field(call, "KNOWNCALL_NUMBERS")
    params, what = c.field(tr, "TRACE_PARAMS"), c.field(call, "KNOWNCALL_RESULT")
    c.retain(call)
    with c.each(c.size(numbers)) as (i, _):
        c.need(c.equal(c.run("i32", "PyList_Append", params, c.element("ptr", c.items(numbers), i)), 0, "i32"), "bad")
    before = _quiet(c)
    with c.each(c.size(steps)) as (i, _):
        step = c.items(c.element("ptr", c.items(steps), i))
        to, sources = c.element("ptr", step, 0), c.element("ptr", step, 1)
        with c.each(c.size(sources)) as (k, _):
            c.set("ptr", c.gep("ptr", given, k), c.element("ptr", made, c.integer(c.element("ptr", c.items(sources), k))))
        look_at_bounds(c, to, given, c.size(sources), "lost")
        c.exchange(tr, "TRACE_STATE", to)
        outs = c.field(to, "STATE_OUTS")
        with c.each(c.size(outs)) as (k, _):
            t = c.ask("ptr", "result", tr, c.element("ptr", c.items(outs), k), given)
            c.refuse(c.same(t, "null"), "lost")
            n = c.get("i64", count)
            c.set("ptr", c.gep("ptr", made, n), t)
            c.set("i64", count, c.add(n, 1))
    answer = c.variable("ptr", "null")
    tail = c.field(call, "KNOWNCALL_TAIL")
    c.refuse(c.same(tail, none), "together")
    _write(c, tr, call, tail, made, "lost")
    c.branch("together")
    c.label("together")
    c.set("ptr", answer, c.ask("ptr", "build", what, made))
    c.branch("done")
    c.label("lost")
    c.branch("done")
    c.label("done")
    _loud(c, before)
    kept = c.get("i64", first)
    with c.each(c.sub(c.get("i64", count), kept)) as (i, _):
        c.release(c.element("ptr", made, c.add(i, kept)))
    c.release(call)
    c.emit(f"ret ptr {c.get('ptr', answer)}")

    c.label("inputs")
    c.refuse(c.get("i1", entered), "miss")
    # Where calls have been learned, the operations look whether theirs is one (immediate.py).
    c.need(c.same(c.field(c.field(tr, "TRACE_STATE"), "STATE_IMMEDIATE"), none), "miss")
    gen = c.field(tr, "TRACE_GEN")
    with c.each("%count") as (i, following):
        a = c.element("ptr", "%args", i)
        listed, single = c.new_label("listed"), c.new_label("single")
        c.need(c.is_tensor(a), listed)
        c.refuse(c.same(c.field(a, "TENSOR_GEN"), gen), following)
        c.need(c.ask("i1", "enter", tr, a), following)
        c.set("i1", entered, "true")
        c.branch(following)
        c.label(listed)
        c.need(c.is_one_of(a, "TUPLE", "LIST"), following)
        source = c.variable("ptr", c.items(a))
        c.need(c.is_one_of(a, "LIST"), single)
        c.set("ptr", source, c.items(a, "list"))
        c.branch(single)
        c.label(single)
        with c.each(c.size(a)) as (k, more):
            t = c.element("ptr", c.get("ptr", source), k)
            c.need(c.is_tensor(t), more)
            c.refuse(c.same(c.field(t, "TENSOR_GEN"), gen), more)
            c.need(c.ask("i1", "enter", tr, t), more)
            c.set("i1", entered, "true")
    c.fork(c.get("i1", entered), "look", "miss")
    c.label("bad")
    c.release(call)
    c.emit("ret ptr null")
    _none(c, "miss")
    return c.finish("$NAME", BUILTIN, internal=False)


def modules(places: Places) -> dict[str, str]:
    """The IR of the builtin, by name."""
    return {"call": module(*[part(places) for part in (enter, alike, result, agrees, build)], writes(places, "writes"), call(places))}
