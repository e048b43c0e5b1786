"""The builtins of known_edge.py, written with object_code.py: (block, address of the arguments, their number) -> a new reference.

The block of an operation's builtin: [table, operation, kinds of the arguments, one byte each]; of the others: [table]. An answer of None
means that the caller's Python code does the work: nothing is done then, but that inputs which the code would enter may be entered.

An operation's edge in four steps, for `enter`, `agrees`, `follow` and `result`: tensors that this trace does not know are taken as inputs if
that is what the last pass did from here; the call is compared with the edge that was last taken; the trace moves on; results are made.
No garbage is collected while objects are half made (before CPython 3.12 an allocation may collect, and finalizers may record).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flambeau.trace.limits import WORDS
from flambeau.trace.object_code import ObjectCode, module
from flambeau.trace.recorder import MOST_GIVEN as GIVEN

FLOAT_VALUE = 16  # where a float has its number
BUILTIN = "ptr %self, ptr %args, i64 %count"
# How an argument of each kind may agree with its part of the key (the codes of known_edge.py).
STATIC, TENSOR, OPERAND, TENSORS, EXPONENT, NUMBER, DATA, CHANGING = range(8)

Places = Mapping[str, int]


def _begin(places: Places) -> ObjectCode:
    """The code of a builtin, with its block and table."""
    c = ObjectCode(places)
    c.emit(f"%block = getelementptr i8, ptr %self, i64 {places['BYTES']}")
    c.emit("%table = load ptr, ptr %block")
    return c


def _here(c: ObjectCode, miss: str) -> str:
    """The main thread's trace, if it is what records here."""
    c.need(c.same(c.op("call ptr @llvm.thread.pointer.p0()"), c.word("THREAD")), miss)
    tr = c.run("ptr", "PyDict_GetItemWithError", c.word("LOCALS"), c.word("TRACE_NAME"))
    c.refuse(c.same(tr, "null"), miss)
    c.need(c.same(c.type_of(tr), c.word("TRACE")), miss)
    return tr


def _none(c: ObjectCode, label: str) -> None:
    """The block that answers None."""
    c.label(label)
    c.emit(f"ret ptr {c.retain(c.word('NONE'))}")


def _quiet(c: ObjectCode) -> str:
    """No garbage is collected from here on; gives what `_loud` wants."""
    return c.run("i32", "PyGC_Disable")


def _loud(c: ObjectCode, before: str) -> None:
    with c.where(c.op(f"icmp ne i32 {before}, 0")):
        c.run("i32", "PyGC_Enable")


def _new(c: ObjectCode, cls: str) -> str:
    return c.op(f"call ptr {c.word('NEW')}(ptr {cls}, ptr {c.word('EMPTY')}, ptr null)")


def _new_storage(c: ObjectCode, gen: str, slot: str) -> str:
    """A storage without a buffer; null where there is no memory."""
    s = _new(c, c.word("STORAGE"))
    with c.where(c.other(s, "null")):
        none, minus, zero = c.word("NONE"), c.word("MINUS"), c.word("ZERO")
        for name, value in (
            ("BUFFER", none), ("EXTENT", none), ("EXTERNAL", none), ("CUT", minus), ("GEN", gen), ("SLOT", slot), ("ORIGIN", slot), ("VERSION", zero),
            ("HISTORY", none), ("RESULT", none), ("FAMILY", zero), ("OTHERS", none),
        ):  # fmt: skip
            c.keep(s, f"STORAGE_{name}", value)
    return s


def _boundary(c: ObjectCode, tr: str, slot: str, t: str, history: str, version: str, bad: str) -> None:
    """Let gradients leave the trace at a slot, for a tensor. The reference of `history` is taken over. `bad`: where no memory leads."""
    b = _new(c, c.word("BOUNDARY"))
    c.refuse(c.same(b, "null"), bad)
    c.keep(b, "BOUNDARY_TENSOR", t)
    c.put(b, "BOUNDARY_HISTORY", history)
    c.keep(b, "BOUNDARY_VERSION", version)
    status = c.run("i32", "PyDict_SetItem", c.field(tr, "TRACE_BOUNDARIES"), slot, b)
    c.release(b)
    c.need(c.equal(status, 0, "i32"), bad)


def _tensor(c: ObjectCode, gen: str, slot: str, meta: str, storage: str, immediate: str, bad: str) -> str:
    """A new tensor; the references of its storage and its immediate call are taken over."""
    t = _new(c, c.word("TENSOR"))
    c.refuse(c.same(t, "null"), bad)
    for name, value in (("GEN", gen), ("SLOT", slot), ("META", meta)):
        c.keep(t, f"TENSOR_{name}", value)
    c.put(t, "TENSOR_STORAGE", storage)
    c.put(t, "TENSOR_IMMEDIATE", immediate)
    return t


def _attached(c: ObjectCode, t: str, bad: str) -> str:
    """Whether the tensor was never detached."""
    detached = c.run("ptr", "PyObject_GetAttr", t, c.word("DETACHED_NAME"))
    c.refuse(c.same(detached, "null"), bad)
    c.release(detached)  # an int that its tensor or its class has
    return c.any(c.same(detached, c.word("ZERO")), c.same(detached, c.word("FALSE")))


def enter(places: Places) -> str:
    """enter(table, trace, tensor) -> i1: take a tensor as an input, if it is a plain one and its like was taken from here before.

    What `Trace._resolve` does first. The last pass's edge is compared by identity: recorder.py keeps one tuple of each content. Other threads' traces
    need no lock here: nothing runs in between, and one that has looked at the storage already and takes it next is as one that comes after this one.
    Likewise, a tensor without gradients on a storage that the trace knows: one that a write has made stale.
    """
    c = ObjectCode(places)
    tr, t = "%tr", "%t"
    none, minus = c.word("NONE"), c.word("MINUS")
    state = c.field(tr, "TRACE_STATE")
    last = c.field(state, "STATE_NEXT")
    found = c.variable("ptr", last)
    with c.where(c.other(last, none)):
        known = c.field(last, "STATE_EDGE")
        c.need(c.is_one_of(known, "TUPLE"), "no")
        c.refuse(c.same(c.element("ptr", c.items(known), 0), c.word("ALIAS")), "again")
    key = c.run("ptr", "PyObject_GetAttr", t, c.word("INPUT_KEY_NAME"))
    c.refuse(c.same(key, "null"), "failed")
    c.release(key)  # the tensor has it
    c.refuse(c.same(key, none), "no")
    c.refuse(c.same(last, none), "look")
    c.fork(c.same(c.field(last, "STATE_EDGE"), key), "found", "look")
    c.label("look")
    other = c.run("ptr", "PyDict_GetItemWithError", c.field(state, "STATE_CHILDREN"), key)
    c.refuse(c.same(other, "null"), "failed")
    c.set("ptr", found, other)
    c.exchange(state, "STATE_NEXT", other)
    c.branch("found")
    c.label("found")
    next_ = c.get("ptr", found)
    edge = c.field(next_, "STATE_EDGE")
    storage = c.field(t, "TENSOR_STORAGE")
    c.need(c.all(c.other(storage, none), c.other(storage, "null")), "no")
    buffer = c.field(storage, "STORAGE_BUFFER")
    c.need(c.all(
        c.same(c.element("ptr", c.items(edge), 1), c.field(t, "TENSOR_META")), c.same(c.field(storage, "STORAGE_GEN"), minus),
        c.same(c.field(storage, "STORAGE_EXTERNAL"), none), c.same(c.field(storage, "STORAGE_CUT"), minus), c.other(buffer, none),
        c.other(buffer, "null"), c.same(c.field(tr, "TRACE_CLAIMS"), none),
    ), "no")  # fmt: skip
    slot, root = c.field(next_, "STATE_SLOT"), c.field(next_, "STATE_ROOT_SLOT")
    with c.where(c.same(c.field(next_, "STATE_LEAF"), c.word("TRUE"))):
        hooks = c.run("ptr", "PyObject_GetAttr", t, c.word("HOOKS_NAME"))
        c.refuse(c.same(hooks, "null"), "failed")
        c.release(hooks)
        c.need(c.same(hooks, none), "no")
        history = c.run("ptr", "PyObject_GetAttr", t, c.word("HISTORY_NAME"))
        c.refuse(c.same(history, "null"), "failed")
        before = _quiet(c)
        made = c.new_label("unmade")
        done = c.new_label("made")
        _boundary(c, tr, slot, t, history, c.field(storage, "STORAGE_VERSION"), made)
        _loud(c, before)
        c.branch(done)
        c.label(made)
        _loud(c, before)
        c.branch("failed")
        c.label(done)
    for name, value in (("INPUTS", storage), ("RESOLVED", t)):
        c.need(c.equal(c.run("i32", "PyList_Append", c.field(tr, f"TRACE_{name}"), value), 0, "i32"), "failed")
    gen = c.field(tr, "TRACE_GEN")
    c.exchange(storage, "STORAGE_GEN", gen)
    c.exchange(storage, "STORAGE_SLOT", root)
    c.exchange(storage, "STORAGE_ORIGIN", root)
    c.exchange(t, "TENSOR_SLOT", slot)
    c.exchange(t, "TENSOR_GEN", gen)
    c.exchange(tr, "TRACE_STATE", next_)
    c.emit("ret i1 true")

    c.label("again")
    m, known_storage = c.field(t, "TENSOR_META"), c.field(t, "TENSOR_STORAGE")
    c.need(c.all(c.other(known_storage, none), c.other(known_storage, "null")), "no")
    c.need(c.all(
        c.same(c.element("ptr", c.items(known), 2), m), c.same(c.field(last, "STATE_META"), m), c.same(c.field(t, "TENSOR_IMMEDIATE"), none),
        c.same(c.element("ptr", c.items(known), 3), c.word("FALSE")), c.same(c.element("ptr", c.items(known), 4), c.word("TRUE")),
        c.same(c.field(m, "META_REQUIRES_GRAD"), c.word("FALSE")), c.same(c.field(m, "META_DYNAMIC"), c.word("FALSE")),
        c.same(c.field(known_storage, "STORAGE_GEN"), c.field(tr, "TRACE_GEN")), c.same(c.field(known_storage, "STORAGE_CUT"), minus),
        c.same(c.field(known_storage, "STORAGE_FAMILY"), c.word("ZERO")), c.same(c.field(tr, "TRACE_CLAIMS"), none),
    ), "no")  # fmt: skip
    c.need(c.equal(c.integer(c.element("ptr", c.items(known), 1)), c.integer(c.field(known_storage, "STORAGE_SLOT"))), "no")
    c.need(_attached(c, t, "failed"), "no")
    c.need(c.equal(c.run("i32", "PyList_Append", c.field(tr, "TRACE_RESOLVED"), t), 0, "i32"), "failed")
    c.exchange(t, "TENSOR_SLOT", c.field(last, "STATE_SLOT"))
    c.exchange(t, "TENSOR_GEN", c.field(tr, "TRACE_GEN"))
    c.exchange(tr, "TRACE_STATE", last)
    c.emit("ret i1 true")
    c.label("failed")  # the Python code meets the error again
    c.run("void", "PyErr_Clear")
    c.branch("no")
    c.ending("no", "false", "i1")
    return c.finish("enter", "ptr %table, ptr %tr, ptr %t", "i1")


def known(places: Places) -> str:
    """known(table, trace, tensor) -> i1: whether an object is a tensor that the trace knows, or has taken as an input now."""
    c = ObjectCode(places)
    c.need(c.is_tensor("%t"), "no")
    c.need(c.same(c.field("%t", "TENSOR_GEN"), c.field("%tr", "TRACE_GEN")), "new")
    c.emit("ret i1 true")
    c.label("new")
    c.emit(f"ret i1 {c.ask('i1', 'enter', '%tr', '%t')}")
    c.ending("no", "false", "i1")
    return c.finish("known", "ptr %table, ptr %tr, ptr %t", "i1")


def alike(places: Places) -> str:
    """alike(table, a, e) -> i1: whether a static argument is the key's (exact.py): the same object, ints or tuples of ints of equal value, or a
    float or bool that stands in the key with its class.

    The look-up would find them equal, too. Nothing else is compared: a comparison of tensors would be recorded.
    """
    c = ObjectCode(places)
    c.refuse(c.same("%a", "%e"), "yes")
    type_ = c.type_of("%a")
    c.refuse(c.same(type_, c.word("INT")), "whole")
    c.refuse(c.is_one_of("%a", "TUPLE", "SIZE"), "tuples")
    c.need(c.is_one_of("%e", "TUPLE"), "no")
    c.need(c.equal(c.size("%e"), 2), "no")
    c.need(c.same(c.element("ptr", c.items("%e"), 0), type_), "no")
    value = c.element("ptr", c.items("%e"), 1)
    c.refuse(c.same("%a", value), "yes")
    c.need(c.same(type_, c.word("FLOAT")), "no")
    bits, known_bits = c.get("i64", c.gep("i8", "%a", FLOAT_VALUE)), c.get("i64", c.gep("i8", value, places["BYTES"]))
    c.fork(c.equal(bits, known_bits), "yes", "no")
    c.label("whole")
    c.need(c.is_one_of("%e", "INT"), "no")
    c.fork(c.equal(c.run("i32", "PyObject_RichCompareBool", "%a", "%e", "i32 2"), 1, "i32"), "yes", "no")  # 2: Py_EQ
    c.label("tuples")
    c.need(c.is_one_of("%e", "TUPLE", "SIZE"), "no")
    size = c.size("%a")
    c.need(c.equal(size, c.size("%e")), "no")
    with c.each(size) as (i, following):
        x, y = c.element("ptr", c.items("%a"), i), c.element("ptr", c.items("%e"), i)
        c.refuse(c.same(x, y), following)
        c.need(c.all(c.is_one_of(x, "INT"), c.is_one_of(y, "INT")), "no")
        c.need(c.equal(c.run("i32", "PyObject_RichCompareBool", x, y, "i32 2"), 1, "i32"), "no")
    c.branch("yes")
    c.ending("yes", "true", "i1")
    c.ending("no", "false", "i1")
    return c.finish("alike", "ptr %table, ptr %a, ptr %e", "i1")


def result(places: Places) -> str:
    """result(table, trace, out, given) -> a new reference: one result of an edge that the trace has taken, as `Trace.follow` makes it.

    `given`: the call's tensors. Null, with an error set, where there is no memory.
    """
    c = ObjectCode(places)
    tr, out = "%tr", "%out"
    none = c.word("NONE")
    gen = c.field(tr, "TRACE_GEN")
    alias, slot, meta = c.field(out, "OUT_ALIAS"), c.field(out, "OUT_SLOT"), c.field(out, "OUT_META")
    c.need(c.same(alias, none), "view")
    own = c.variable("ptr", none)
    root = c.field(out, "OUT_ROOT")
    with c.where(c.other(root, slot)):  # a view of a value that nobody else sees
        hidden = _new_storage(c, gen, root)
        c.refuse(c.same(hidden, "null"), "bad")
        c.set("ptr", own, hidden)
    with c.where(c.same(root, slot)):
        c.retain(none)
    t = _tensor(c, gen, slot, meta, c.get("ptr", own), c.retain(none), "bad")
    c.need(c.equal(c.run("i32", "PyList_Append", c.field(tr, "TRACE_TENSORS"), t), 0, "i32"), "bad")
    c.emit(f"ret ptr {t}")
    c.label("view")
    base = c.element("ptr", "%given", c.integer(alias))
    base_slot = c.field(base, "TENSOR_SLOT")
    c.need(c.equal(c.integer(base_slot), c.integer(slot)), "another")
    c.emit(f"ret ptr {c.retain(base)}")
    c.label("another")
    had = c.field(base, "TENSOR_STORAGE")
    with c.where(c.same(had, none)):
        made = _new_storage(c, gen, base_slot)
        c.refuse(c.same(made, "null"), "bad")
        c.exchange(base, "TENSOR_STORAGE", made, own=True)
    t = _tensor(c, gen, slot, meta, c.retain(c.field(base, "TENSOR_STORAGE")), c.retain(none), "bad")
    c.keep(t, "TENSOR_VIEW", c.word("TRUE"))
    detached = c.run("ptr", "PyObject_GetAttr", base, c.word("DETACHED_NAME"))
    c.refuse(c.same(detached, "null"), "bad")
    c.release(detached)
    attached = c.any(c.same(detached, c.word("ZERO")), c.same(detached, c.word("FALSE")))
    true = c.word("TRUE")
    leaves = c.all(c.same(c.field(c.field(base, "TENSOR_META"), "META_REQUIRES_GRAD"), true), c.other(c.field(meta, "META_REQUIRES_GRAD"), true))
    mark = c.op(f"select i1 {attached}, ptr {c.word('ONE')}, ptr {detached}")
    with c.where(c.any(leaves, c.op(f"xor i1 {attached}, true"))):
        c.need(c.equal(c.run("i32", "PyObject_SetAttr", t, c.word("DETACHED_NAME"), mark), 0, "i32"), "bad")
    dynamic = c.field(out, "OUT_DYNAMIC")
    with c.where(c.op(f"icmp ne i64 {c.size(dynamic)}, 0")):
        offset = c.variable("i64", c.integer(c.field(meta, "META_OFFSET")))
        params = c.items(c.field(tr, "TRACE_PARAMS"), "list")
        with c.each(c.size(dynamic)) as (i, _):
            pair = c.items(c.element("ptr", c.items(dynamic), i))
            value = c.integer(c.element("ptr", params, c.integer(c.element("ptr", pair, 0))))
            c.set("i64", offset, c.add(c.get("i64", offset), c.mul(value, c.integer(c.element("ptr", pair, 1)))))
        moved = c.run("ptr", "PyLong_FromLongLong", f"i64 {c.get('i64', offset)}")
        c.refuse(c.same(moved, "null"), "bad")
        status = c.run("i32", "PyObject_SetAttr", t, c.word("OFFSET_NAME"), moved)
        c.release(moved)
        c.need(c.equal(status, 0, "i32"), "bad")
    c.need(c.equal(c.run("i32", "PyList_Append", c.field(tr, "TRACE_TENSORS"), t), 0, "i32"), "bad")
    c.emit(f"ret ptr {t}")
    c.ending("bad", "null")
    return c.finish("result", "ptr %table, ptr %tr, ptr %out, ptr %given")


def hand_out(c: ObjectCode, pack: str, parts: str) -> None:
    """Return the tuple `parts`, a reference that is given away, as an object of the class `pack`: a tuple, a list or a named tuple."""
    c.refuse(c.same(pack, c.word("TUPLE")), "tuple")
    c.refuse(c.same(pack, c.word("LIST")), "list")
    arguments = c.run("ptr", "PyTuple_New", "i64 1")
    c.refuse(c.same(arguments, "null"), "lost")
    c.set("ptr", c.items(arguments), parts)
    named = c.op(f"call ptr {c.word('NEW_TUPLE')}(ptr {pack}, ptr {arguments}, ptr null)")
    c.release(arguments)
    c.emit(f"ret ptr {named}")
    c.label("list")
    listed = c.run("ptr", "PySequence_List", parts)
    c.release(parts)
    c.emit(f"ret ptr {listed}")
    c.ending("tuple", parts)
    c.label("lost")
    c.release(parts)
    c.emit("ret ptr null")


def follow(places: Places) -> str:
    """follow(table, trace, state, given) -> a new reference: take an edge and hand out its results, packed as the edge says."""
    c = ObjectCode(places)
    tr, state, given = "%tr", "%state", "%given"
    before = _quiet(c)
    c.exchange(tr, "TRACE_STATE", state)
    outs, pack = c.field(state, "STATE_OUTS"), c.field(state, "STATE_PACK")
    count = c.size(outs)
    c.need(c.same(pack, c.word("NONE")), "several")
    one = c.ask("ptr", "result", tr, c.element("ptr", c.items(outs), 0), given)
    _loud(c, before)
    c.emit(f"ret ptr {one}")
    c.label("several")
    results = c.run("ptr", "PyTuple_New", f"i64 {count}")
    c.refuse(c.same(results, "null"), "bad")
    with c.each(count) as (i, _):
        made = c.ask("ptr", "result", tr, c.element("ptr", c.items(outs), i), given)
        c.refuse(c.same(made, "null"), "drop")
        c.set("ptr", c.gep("ptr", c.items(results), i), made)
    _loud(c, before)
    hand_out(c, pack, results)
    c.label("drop")
    c.release(results)
    c.branch("bad")
    c.label("bad")
    _loud(c, before)
    c.emit("ret ptr null")
    return c.finish("follow", "ptr %table, ptr %tr, ptr %state, ptr %given")


def look_at_bounds(c: ObjectCode, state: str, given: str, count: str, bad: str) -> None:
    """Before the trace takes an edge with bounds: Python code looks at the index values that are at hand (bounds.py)."""
    within, unsure, none = c.new_label("within"), c.new_label("unsure"), c.word("NONE")
    bounds = c.field(state, "STATE_BOUNDS")
    c.refuse(c.same(bounds, c.word("EMPTY")), within)
    with c.each(c.size(bounds)) as (i, following):
        bound = c.element("ptr", c.items(bounds), i)
        t = c.element("ptr", given, c.integer(c.field(bound, "BOUND_POSITION")))
        storage = c.field(t, "TENSOR_STORAGE")
        c.refuse(c.any(c.same(storage, none), c.same(storage, "null")), following)  # still pending
        c.refuse(c.same(c.field(storage, "STORAGE_BUFFER"), none), following)
        extent = c.field(storage, "STORAGE_EXTENT")
        c.need(c.all(c.same(extent, c.field(bound, "BOUND_KNOWN")), c.other(extent, none)), unsure)
        c.need(c.all(
            c.same(c.element("ptr", c.items(extent), 0), c.field(storage, "STORAGE_VERSION")), c.same(c.field(storage, "STORAGE_EXTERNAL"), none),
            c.same(c.element("ptr", c.items(extent), 1), c.field(t, "TENSOR_META")),
        ), unsure)  # fmt: skip
        c.need(c.any(
            c.same(c.field(storage, "STORAGE_GEN"), c.word("MINUS")), c.same(c.field(storage, "STORAGE_SLOT"), c.field(storage, "STORAGE_ORIGIN"))
        ), unsure)  # fmt: skip
    c.branch(within)
    c.label(unsure)
    task = c.run("ptr", "PyTuple_New", f"i64 {c.add(count, 1)}")
    c.refuse(c.same(task, "null"), bad)
    c.set("ptr", c.items(task), c.retain(state))
    with c.each(count) as (i, _):
        c.set("ptr", c.gep("ptr", c.items(task), c.add(i, 1)), c.retain(c.element("ptr", given, i)))
    answer = c.run("ptr", "PyObject_CallOneArg", c.word("LOOK"), task)
    c.release(task)
    c.refuse(c.same(answer, "null"), bad)
    c.release(answer)
    c.branch(within)
    c.label(within)


def _look_at_numbers(c: ObjectCode, limits: str, value: Callable[[str, str], str], miss: str) -> None:
    """A miss if one of a call's numbers does not fit (limits.py): the Python code raises the error. `limits`: their words as bytes.

    `value(position, type)`: the number as a double or an i64.
    """
    words = c.gep("i8", limits, c.places["BYTES"])
    with c.each(c.op(f"udiv i64 {c.size(limits)}, {8 * WORDS}")) as (i, following):
        whole = c.new_label("whole")
        record = c.gep("i64", words, c.mul(i, WORDS))
        at = c.element("i64", record, 0)
        c.refuse(c.equal(c.element("i64", record, 1), 0), whole)
        x, low, high = value(at, "double"), c.element("double", record, 2), c.element("double", record, 3)
        between = c.new_label("between")
        c.need(c.equal(c.element("i64", record, 1), 2), between)
        c.fork(c.op(f"fcmp une double {x}, {low}"), following, miss)
        c.label(between)
        c.refuse(c.all(c.op(f"fcmp oge double {x}, {low}"), c.op(f"fcmp ole double {x}, {high}")), following)
        zero = c.op(f"fsub double {x}, {x}")  # NaN of what is not finite
        c.need(c.all(c.op(f"fcmp uno double {zero}, {zero}"), c.op(f"icmp ne i64 {c.element('i64', record, 4)}, 0")), miss)
        c.branch(following)
        c.label(whole)
        n = value(at, "i64")
        c.need(c.all(c.op(f"icmp sge i64 {n}, {c.element('i64', record, 2)}"), c.op(f"icmp sle i64 {n}, {c.element('i64', record, 3)}")), miss)


def _number_of_key(c: ObjectCode, a: str, e: str, kind: str, agreed: str, miss: str) -> None:
    """A number that stands in the key: (its class, itself, or its bits); one that changes as static arguments do."""
    number = c.new_label("number")
    c.need(c.equal(kind, CHANGING, "i8"), number)
    c.fork(c.ask("i1", "alike", a, e), agreed, miss)
    c.label(number)
    c.need(c.is_one_of(e, "TUPLE"), miss)
    c.need(c.equal(c.size(e), 2), miss)
    kind, value = c.element("ptr", c.items(e), 0), c.element("ptr", c.items(e), 1)
    type_ = c.type_of(a)
    c.need(c.same(kind, type_), miss)
    known = c.op(f"select i1 {c.same(type_, c.word('INT'))}, ptr {value}, ptr {e}")
    c.fork(c.ask("i1", "alike", a, known), agreed, miss)


def _need_data(c: ObjectCode, a: str, e: str, kind: str, op: str, i: str, otherwise: str) -> None:
    """Go on if an argument is a number of the class that the key has in its place: data, and not the default of a number with one."""
    c.need(c.same(c.type_of(a), e), otherwise)
    counts, differs = c.new_label("counts"), c.new_label("differs")
    c.refuse(c.any(c.equal(kind, OPERAND, "i8"), c.op(f"icmp uge i8 {kind}, {DATA}")), counts)
    c.need(c.equal(kind, NUMBER, "i8"), otherwise)
    default = c.element("ptr", c.items(c.field(op, "OPERATION_DEFAULTS")), i)
    c.need(c.is_one_of(default, "INT", "FLOAT", "BOOL"), differs)
    c.need(c.equal(c.run("i32", "PyObject_RichCompareBool", a, default, "i32 2"), 0, "i32"), otherwise)
    c.branch(differs)
    c.label(differs)
    c.branch(counts)
    c.label(counts)


def _fitting(c: ObjectCode, a: str, miss: str) -> str:
    """The value of an int; a miss where it has more than 64 bits."""
    value = c.integer(a)
    doubt, fits, big = (c.new_label(stem) for stem in ("doubt", "fits", "big"))
    c.fork(c.equal(value, -1), doubt, fits)
    c.label(doubt)
    c.fork(c.same(c.run("ptr", "PyErr_Occurred"), "null"), fits, big)
    c.label(big)
    c.run("void", "PyErr_Clear")
    c.branch(miss)
    c.label(fits)
    return value


def edge(places: Places) -> str:
    """The builtin of an operation: a known edge of the trace, or a learned call where the trace is at a root that has some."""
    c = _begin(places)
    most = places["MOST"]
    op = c.element("ptr", "%block", 1)
    kinds = c.gep("i64", "%block", 2)
    none = c.word("NONE")
    pushed, given = c.room("ptr", most), c.room("ptr", GIVEN)
    tr = _here(c, "miss")
    entered = c.variable("i1", "false")
    numbers, tensors = c.variable("i64", "0"), c.variable("i64", "0")
    first = c.field(tr, "TRACE_STATE")
    immediate = c.field(first, "STATE_IMMEDIATE")
    never = c.same(c.field(op, "OPERATION_RECENT"), none)  # no call of this operation was learned
    c.need(c.any(c.same(immediate, none), never), "learned")
    c.branch("look")

    c.label("look")
    gen = c.field(tr, "TRACE_GEN")
    next_ = c.field(c.field(tr, "TRACE_STATE"), "STATE_NEXT")
    c.refuse(c.same(next_, none), "miss")
    key = c.field(next_, "STATE_EDGE")
    c.need(c.same(c.element("ptr", c.items(key), 0), op), "inputs")
    c.need(c.equal(c.size(key), c.add("%count", 1)), "miss")
    with c.each("%count") as (i, agreed):
        a, e = c.element("ptr", "%args", i), c.element("ptr", c.items(key), c.add(i, 1))
        kind = c.element("i8", kinds, i)
        varying, listed, other, maybe, push = (c.new_label(stem) for stem in ("varying", "listed", "other", "maybe", "push"))
        c.need(c.equal(kind, STATIC, "i8"), varying)
        c.refuse(c.same(a, e), agreed)
        c.fork(c.ask("i1", "alike", a, e), agreed, "miss")

        c.label(varying)
        c.refuse(c.equal(kind, TENSORS, "i8"), listed)
        c.need(c.is_tensor(a), other)
        c.need(c.all(
            c.same(c.field(a, "TENSOR_GEN"), gen), c.same(c.field(a, "TENSOR_SLOT"), e), c.op(f"icmp ult i8 {kind}, {NUMBER}")
        ), "miss")  # fmt: skip
        n = c.get("i64", tensors)
        with c.where(c.op(f"icmp ult i64 {n}, {GIVEN}")):
            c.set("ptr", c.gep("ptr", given, n), a)
        c.set("i64", tensors, c.add(n, 1))
        c.branch(agreed)

        c.label(other)
        c.refuse(c.all(c.same(a, none), c.same(a, e)), agreed)
        c.refuse(c.equal(kind, TENSOR, "i8"), "miss")
        _need_data(c, a, e, kind, op, i, maybe)
        c.refuse(c.is_one_of(a, "FLOAT"), push)
        c.need(c.is_one_of(a, "INT"), "miss")
        _fitting(c, a, "miss")
        c.branch(push)
        c.label(push)
        n = c.get("i64", numbers)
        c.set("ptr", c.gep("ptr", pushed, n), a)
        c.set("i64", numbers, c.add(n, 1))
        c.branch(agreed)
        c.label(maybe)
        _number_of_key(c, a, e, kind, agreed, "miss")

        c.label(listed)
        c.need(c.is_one_of(e, "TUPLE"), "miss")
        is_list = c.is_one_of(a, "LIST")
        c.need(c.any(is_list, c.is_one_of(a, "TUPLE")), "miss")
        c.need(c.equal(c.size(a), c.size(e)), "miss")
        source = c.variable("ptr", c.items(a))
        with c.where(is_list):
            c.set("ptr", source, c.items(a, "list"))
        with c.each(c.size(a)) as (k, more):
            t, slot = c.element("ptr", c.get("ptr", source), k), c.element("ptr", c.items(e), k)
            c.refuse(c.all(c.same(t, none), c.same(slot, none)), more)
            c.need(c.is_tensor(t), "miss")
            c.need(c.all(c.same(c.field(t, "TENSOR_GEN"), gen), c.same(c.field(t, "TENSOR_SLOT"), slot)), "miss")
            n = c.get("i64", tensors)
            with c.where(c.op(f"icmp ult i64 {n}, {GIVEN}")):
                c.set("ptr", c.gep("ptr", given, n), t)
            c.set("i64", tensors, c.add(n, 1))

    def pushed_number(at: str, type_: str) -> str:
        a = c.element("ptr", pushed, at)
        return c.get("double", c.gep("i8", a, FLOAT_VALUE)) if type_ == "double" else c.integer(a)

    _look_at_numbers(c, c.field(next_, "STATE_ROOM"), pushed_number, "miss")
    params = c.field(tr, "TRACE_PARAMS")
    with c.each(c.get("i64", numbers)) as (i, _):
        c.need(c.equal(c.run("i32", "PyList_Append", params, c.element("ptr", pushed, i)), 0, "i32"), "bad")
    look_at_bounds(c, next_, given, c.get("i64", tensors), "bad")
    c.need(c.same(c.field(next_, "STATE_PLAIN"), c.word("TRUE")), "more")
    before = _quiet(c)
    t = _tensor(c, gen, c.field(next_, "STATE_SLOT"), c.field(next_, "STATE_META"), c.retain(none), c.retain(none), "undone")
    _loud(c, before)
    c.need(c.equal(c.run("i32", "PyList_Append", c.field(tr, "TRACE_TENSORS"), t), 0, "i32"), "bad")
    c.exchange(tr, "TRACE_STATE", next_)
    c.emit(f"ret ptr {t}")
    c.label("undone")
    _loud(c, before)
    c.branch("bad")
    c.label("more")
    c.emit(f"ret ptr {c.ask('ptr', 'follow', tr, next_, given)}")

    c.label("inputs")  # the edge is another one's: an input's, perhaps
    c.refuse(c.get("i1", entered), "miss")
    c.set("i1", entered, "true")
    with c.each("%count") as (i, following):
        a, kind = c.element("ptr", "%args", i), c.element("i8", kinds, i)
        single = c.new_label("single")
        c.refuse(c.any(c.equal(kind, STATIC, "i8"), c.op(f"icmp uge i8 {kind}, {NUMBER}")), following)
        c.need(c.equal(kind, TENSORS, "i8"), single)
        is_list = c.is_one_of(a, "LIST")
        c.need(c.any(is_list, c.is_one_of(a, "TUPLE")), "miss")
        source = c.variable("ptr", c.items(a))
        with c.where(is_list):
            c.set("ptr", source, c.items(a, "list"))
        with c.each(c.size(a)) as (k, more):
            t = c.element("ptr", c.get("ptr", source), k)
            c.refuse(c.same(t, none), more)
            c.need(c.ask("i1", "known", tr, t), "miss")
        c.branch(following)
        c.label(single)
        c.need(c.is_tensor(a), following)
        c.need(c.ask("i1", "known", tr, a), "miss")
    c.branch("look")

    c.label("learned")
    c.emit(f"ret ptr {c.ask('ptr', 'learned', tr, first, immediate, op, kinds, '%args', 'i64 %count')}")
    c.ending("bad", "null")
    _none(c, "miss")
    return c.finish("$NAME", BUILTIN, internal=False)


def learned(places: Places) -> str:
    """learned(table, trace, state, immediate, operation, kinds, args, count): the call that was learned last (immediate.py), or None."""
    c = ObjectCode(places)
    most = places["MOST"]
    tr, none, minus, false = "%tr", c.word("NONE"), c.word("MINUS"), c.word("FALSE")
    words, numbers = c.room("i64", 32), c.room("i64", most)
    gen = c.field(tr, "TRACE_GEN")
    made = c.field("%op", "OPERATION_RECENT")
    c.need(c.all(c.same(c.field(tr, "TRACE_HELD"), false), c.other(made, none)), "miss")
    key = c.field(made, "IMMEDIATE_KEY")
    c.need(c.all(c.same(c.field(made, "IMMEDIATE_KNOWN"), "%immediate"), c.equal(c.size(key), c.add("%count", 1))), "miss")
    plan = c.gep("i8", c.field(made, "IMMEDIATE_BLOCK"), places["BYTES"])
    is_view = c.op(f"icmp ne i64 {c.element('i64', plan, 0)}, 0")
    buffers, count = c.variable("i64", "0"), c.variable("i64", "0")
    offset = c.variable("i64", c.element("i64", plan, 3))
    with c.each("%count") as (i, agreed):
        a, e = c.element("ptr", "%args", i), c.element("ptr", c.items(key), c.add(i, 1))
        kind, detail = c.element("i8", "%kinds", i), c.element("i64", c.gep("i64", plan, 5), i)
        varying, other, data, source, maybe, whole = (c.new_label(s) for s in ("varying", "other", "data", "source", "maybe", "whole"))
        c.need(c.equal(kind, STATIC, "i8"), varying)
        c.refuse(c.same(a, e), agreed)
        c.fork(c.ask("i1", "alike", a, e), agreed, "miss")

        c.label(varying)
        c.refuse(c.equal(kind, TENSORS, "i8"), "miss")
        c.need(c.is_tensor(a), other)
        s = c.field(a, "TENSOR_STORAGE")
        c.need(c.all(
            c.same(c.field(a, "TENSOR_META"), e), c.other(s, none), c.other(s, "null"), c.op(f"icmp ult i8 {kind}, {NUMBER}")
        ), "miss")  # fmt: skip
        b = c.field(s, "STORAGE_BUFFER")
        c.need(c.all(
            c.other(b, none), c.other(b, "null"), c.same(c.field(s, "STORAGE_GEN"), minus), c.same(c.field(s, "STORAGE_EXTERNAL"), none),
            c.same(c.field(s, "STORAGE_CUT"), minus),
        ), "miss")  # fmt: skip
        c.refuse(is_view, source)
        c.need(c.same(c.field(a, "TENSOR_IMMEDIATE"), none), "miss")
        c.need(c.equal(c.integer(c.field(b, "BUFFER_NBYTES")), detail), "miss")
        c.set("i64", c.gep("i64", words, c.add(c.get("i64", buffers), 2)), c.integer(c.field(b, "BUFFER_ADDRESS")))
        c.branch(source)
        c.label(source)
        c.set("i64", buffers, c.add(c.get("i64", buffers), 1))
        c.branch(agreed)

        c.label(other)
        c.refuse(c.all(c.same(a, none), c.same(a, e)), agreed)
        c.refuse(c.equal(kind, TENSOR, "i8"), "miss")
        _need_data(c, a, e, kind, "%op", i, maybe)
        value = c.variable("i64", "0")
        c.need(c.is_one_of(a, "FLOAT"), whole)
        c.refuse(is_view, "miss")
        c.set("i64", value, c.op(f"bitcast double {c.run('double', 'PyFloat_AsDouble', a)} to i64"))
        c.branch(data)
        c.label(whole)
        c.need(c.is_one_of(a, "INT"), "miss")
        c.set("i64", value, _fitting(c, a, "miss"))
        c.branch(data)
        c.label(data)
        n, v = c.get("i64", count), c.get("i64", value)
        c.set("i64", c.gep("i64", numbers, n), v)
        c.set("i64", count, c.add(n, 1))
        c.set("i64", offset, c.add(c.get("i64", offset), c.mul(v, detail)))
        c.branch(agreed)
        c.label(maybe)
        _number_of_key(c, a, e, kind, agreed, "miss")

    _look_at_numbers(c, c.field(made, "IMMEDIATE_ROOM"), lambda at, type_: c.element(type_, numbers, at), "miss")
    # From here on objects are made.
    before = _quiet(c)
    c.retain(made)
    when, storage, room = c.variable("ptr", gen), c.variable("ptr", "null"), c.variable("ptr", "null")
    c.fork(is_view, "base", "room")
    c.label("base")
    base = c.element("ptr", "%args", c.element("i64", plan, 2))
    c.need(_attached(c, base, "drop"), "unused")
    c.set("ptr", storage, c.retain(c.field(base, "TENSOR_STORAGE")))
    with c.where(c.same(c.field(base, "TENSOR_IMMEDIATE"), none)):
        c.set("ptr", when, minus)  # a view of memory that was there before
    c.branch("objects")
    c.label("room")
    kept = c.place(made, "IMMEDIATE_KEPT")
    with c.where(c.op(f"icmp ne i32 {c.get('i32', c.get('ptr', kept))}, 1")):  # somebody still has the last result
        fresh = c.run("ptr", "PyObject_CallNoArgs", c.field(made, "IMMEDIATE_ALLOCATE"))
        c.refuse(c.same(fresh, "null"), "drop")
        c.exchange(made, "IMMEDIATE_KEPT", fresh, own=True)
    s = _new_storage(c, minus, minus)
    c.refuse(c.same(s, "null"), "drop")
    c.set("ptr", room, c.get("ptr", kept))
    c.exchange(s, "STORAGE_BUFFER", c.get("ptr", room))
    c.set("ptr", storage, s)
    c.branch("objects")
    c.label("objects")
    call = c.run("ptr", "PyTuple_New", f"i64 {c.add('%count', 2)}")
    c.refuse(c.same(call, "null"), "drop")
    c.set("ptr", c.items(call), made)
    c.set("ptr", c.gep("ptr", c.items(call), 1), c.retain(c.get("ptr", when)))
    with c.each("%count") as (i, _):
        c.set("ptr", c.gep("ptr", c.items(call), c.add(i, 2)), c.retain(c.element("ptr", "%args", i)))
    t = _tensor(c, minus, minus, c.field(made, "IMMEDIATE_META"), c.get("ptr", storage), call, "drop")
    _loud(c, before)
    with c.where(is_view):
        c.keep(t, "TENSOR_VIEW", c.word("TRUE"))
    c.need(c.all(c.same(c.field(tr, "TRACE_STATE"), "%state"), c.same(c.field(tr, "TRACE_GEN"), gen)), "unmake")
    c.fork(is_view, "moved", "run")
    c.label("run")
    c.set("i64", words, c.element("i64", plan, 1))
    c.set("i64", c.gep("i64", words, 1), "0")
    to = c.gep("i64", words, c.add(c.get("i64", buffers), 2))
    c.set("i64", to, c.integer(c.field(c.get("ptr", room), "BUFFER_ADDRESS")))
    with c.each(c.get("i64", count)) as (i, _):
        c.set("i64", c.gep("i64", to, c.add(i, 1)), c.element("i64", numbers, i))
    status = c.op(f"call i64 {c.word('RUN')}(ptr {words})")
    c.fork(c.equal(status, 0), "counted", "unmake")
    c.label("moved")
    c.refuse(c.equal(c.element("i64", plan, 4), 0), "counted")
    moved = c.run("ptr", "PyLong_FromLongLong", f"i64 {c.get('i64', offset)}")
    c.refuse(c.same(moved, "null"), "bad")
    status = c.run("i32", "PyObject_SetAttr", t, c.word("OFFSET_NAME"), moved)
    c.release(moved)
    c.need(c.equal(status, 0, "i32"), "bad")
    c.branch("counted")
    c.label("counted")
    counters = c.word("COUNTERS")
    counted = c.run("ptr", "PyLong_FromLongLong", f"i64 {c.add(c.integer(c.field(counters, 'COUNTERS_IMMEDIATE_CALLS')), 1)}")
    c.refuse(c.same(counted, "null"), "bad")
    c.exchange(counters, "COUNTERS_IMMEDIATE_CALLS", counted, own=True)
    c.emit(f"ret ptr {t}")
    c.label("unmake")
    c.release(t)
    c.branch("miss")
    c.label("unused")
    _loud(c, before)
    c.release(made)
    c.branch("miss")
    c.label("drop")  # no memory
    _loud(c, before)
    c.branch("bad")
    c.ending("bad", "null")
    _none(c, "miss")
    parameters = "ptr %table, ptr %tr, ptr %state, ptr %immediate, ptr %op, ptr %kinds, ptr %args, i64 %count"
    return c.finish("learned", parameters)


def edge_module(places: Places) -> str:
    """The builtin of an operation."""
    return module(*[part(places) for part in (enter, known, alike, result, follow, learned, edge)])
