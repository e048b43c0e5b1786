"""A known edge in native code: what the generated wrappers (ops/wrapper.py) do for a call whose edge leads to one plain result, at a fifth of the time.

A State remembers in `next` the edge that was last taken from it. The builtin of an operation compares the call with that edge: the same
operation, tensors whose slots are those of the key, everything else the very objects of the key. If they agree it moves the trace on and
gives a new tensor; else None, and the wrapper goes its usual way, so nothing is ever decided here that the look-up would decide otherwise.

The IR knows these objects by the offsets of their `__slots__` (Tensor, Trace, State), read from the member descriptors; the interpreter's
structures are those of runtime/native_calls.py. The trace is the one of the main thread, found by the thread pointer and in that thread's
dictionary of `local`; other threads, and whatever else stands in for the trace there (Fragment, Level), go the usual way.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from typing import Any, Final

from flambeau import dtypes
from flambeau.ops.registry import Operation
from flambeau.runtime import jit, memory, native_calls, threads
from flambeau.runtime.buffers import Buffer
from flambeau.statistics import Counters, counters
from flambeau.trace import recorder
from flambeau.trace.immediate import Immediate
from flambeau.trace.recorder import Trace, local
from flambeau.trace.state import State
from flambeau.trace.storage import Storage

MOST_ARGUMENTS: Final = 8
# How an argument of each kind may agree with its part of the key: only the same object (0), a tensor by its slot (1), a tensor or a number
# that is data or stands in the key (2), a tensor or a number that stands in the key (4), a number that stands in the key (5), or is data (6).
_CODES: Final = {"static": 0, "tensor": 1, "tensor?": 1, "operand": 2, "operand?": 2, "exponent": 4, "number": 5}
_FUNCTIONS: Final = ("PyDict_GetItemWithError", "PyList_Append", "Py_IncRef", "Py_DecRef", "PyErr_Occurred", "PyErr_Clear", "PyLong_AsLongLong",
                     "PyFloat_AsDouble", "PyLong_FromLongLong", "PyTuple_New", "PyObject_CallNoArgs", "PyObject_GetAttr", "PyObject_SetAttr")  # fmt: skip
# The table that all builtins share: words, in this order.
_TABLE: Final = ("THREAD", "LOCALS", "TRACE_NAME", "NEW", "EMPTY", "TENSOR", "PARAMETER", "TRACE", "NONE", "FLOAT", "INT", "TUPLE",
                 "FALSE", "MINUS", "ZERO", "STORAGE", "COUNTERS", "DETACHED_NAME", "OFFSET_NAME", "RUN", "GET", "APPEND", "RETAIN", "RELEASE",
                 "OCCURRED", "CLEAR", "AS_INTEGER", "AS_FLOAT", "FROM_INTEGER", "TUPLE_NEW", "CALL", "GET_ATTRIBUTE", "SET_ATTRIBUTE")  # fmt: skip
_TP_NEW: Final = 65  # Py_tp_new of the stable ABI's typeslots.h

_TEXT: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %count) #0 {
entry:
  %pushed = alloca [$MOST x ptr], align 8
  %words = alloca [32 x i64], align 8
  %numbers = alloca [$MOST x i64], align 8
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %table = load ptr, ptr %block
  %opp = getelementptr i64, ptr %block, i64 1
  %op = load ptr, ptr %opp
  %kinds = getelementptr i64, ptr %block, i64 2
  %nonep = getelementptr i64, ptr %table, i64 $NONE
  %none = load ptr, ptr %nonep
  %retainp = getelementptr i64, ptr %table, i64 $RETAIN
  %retain = load ptr, ptr %retainp
  %herep = getelementptr i64, ptr %table, i64 $THREAD
  %home = load ptr, ptr %herep
  %here = call ptr @llvm.thread.pointer.p0()
  %ours = icmp eq ptr %here, %home
  br i1 %ours, label %find, label %miss
find:
  %localsp = getelementptr i64, ptr %table, i64 $LOCALS
  %locals = load ptr, ptr %localsp
  %tracep = getelementptr i64, ptr %table, i64 $TRACE_NAME
  %trace_name = load ptr, ptr %tracep
  %getp = getelementptr i64, ptr %table, i64 $GET
  %get = load ptr, ptr %getp
  %tr = call ptr %get(ptr %locals, ptr %trace_name)
  %lost = icmp eq ptr %tr, null
  br i1 %lost, label %miss, label %found
found:
  %trtp = getelementptr i8, ptr %tr, i64 8
  %trt = load ptr, ptr %trtp
  %tracetp = getelementptr i64, ptr %table, i64 $TRACE
  %tracet = load ptr, ptr %tracetp
  %is_trace = icmp eq ptr %trt, %tracet
  br i1 %is_trace, label %where, label %miss
where:
  %genp = getelementptr i8, ptr %tr, i64 $TRACE_GEN
  %gen = load ptr, ptr %genp
  %statep = getelementptr i8, ptr %tr, i64 $TRACE_STATE
  %state = load ptr, ptr %statep
  %immediatep = getelementptr i8, ptr %state, i64 $STATE_IMMEDIATE
  %immediate = load ptr, ptr %immediatep
  %tensorp = getelementptr i64, ptr %table, i64 $TENSOR
  %tensor_type = load ptr, ptr %tensorp
  %parameterp = getelementptr i64, ptr %table, i64 $PARAMETER
  %parameter_type = load ptr, ptr %parameterp
  %newp = getelementptr i64, ptr %table, i64 $NEW
  %new = load ptr, ptr %newp
  %emptyp = getelementptr i64, ptr %table, i64 $EMPTY
  %empty = load ptr, ptr %emptyp
  %releasep = getelementptr i64, ptr %table, i64 $RELEASE
  %release = load ptr, ptr %releasep
  %minusp = getelementptr i64, ptr %table, i64 $MINUS
  %minus = load ptr, ptr %minusp
  %recorded = icmp eq ptr %immediate, %none
  br i1 %recorded, label %known, label %learned
known:
  %nextp = getelementptr i8, ptr %state, i64 $STATE_NEXT
  %next = load ptr, ptr %nextp
  %unknown = icmp eq ptr %next, %none
  br i1 %unknown, label %miss, label %plainly
plainly:
  %edgep = getelementptr i8, ptr %next, i64 $STATE_EDGE
  %edge = load ptr, ptr %edgep
  %sizep = getelementptr i8, ptr %edge, i64 16
  %size = load i64, ptr %sizep
  %parts = sub i64 %size, 1
  %fits = icmp eq i64 %parts, %count
  br i1 %fits, label %operation, label %miss
operation:
  %itemsp = getelementptr i8, ptr %edge, i64 24
  %edge_op = load ptr, ptr %itemsp
  %same_op = icmp eq ptr %edge_op, %op
  %items = getelementptr ptr, ptr %itemsp, i64 1
  br i1 %same_op, label %argument, label %miss
argument:
  %i = phi i64 [0, %operation], [%i1, %agreed]
  %n = phi i64 [0, %operation], [%n1, %agreed]
  %ap = getelementptr ptr, ptr %args, i64 %i
  %a = load ptr, ptr %ap
  %ep = getelementptr ptr, ptr %items, i64 %i
  %e = load ptr, ptr %ep
  %kp = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kp
  %same = icmp eq ptr %a, %e
  %fixed = icmp eq i8 %kind, 0
  br i1 %fixed, label %static, label %varying
static:
  br i1 %same, label %agreed, label %miss
varying:
  %typep = getelementptr i8, ptr %a, i64 8
  %type = load ptr, ptr %typep
  %is_t = icmp eq ptr %type, %tensor_type
  %is_p = icmp eq ptr %type, %parameter_type
  %is_tensor = or i1 %is_t, %is_p
  br i1 %is_tensor, label %tensor, label %other
tensor:
  %tgp = getelementptr i8, ptr %a, i64 $TENSOR_GEN
  %tg = load ptr, ptr %tgp
  %pending = icmp eq ptr %tg, %gen
  %tsp = getelementptr i8, ptr %a, i64 $TENSOR_SLOT
  %ts = load ptr, ptr %tsp
  %slot_same = icmp eq ptr %ts, %e
  %may = icmp ult i8 %kind, 5
  %t1 = and i1 %pending, %slot_same
  %t2 = and i1 %t1, %may
  br i1 %t2, label %agreed, label %miss
other:
  %is_none = icmp eq ptr %a, %none
  %absent = and i1 %is_none, %same
  br i1 %absent, label %agreed, label %maybe
maybe:
  %is_kind_1 = icmp eq i8 %kind, 1
  br i1 %is_kind_1, label %miss, label %number
number:
  %data = icmp eq ptr %type, %e
  %kind_2 = icmp eq i8 %kind, 2
  %kind_6 = icmp eq i8 %kind, 6
  %is_operand = or i1 %kind_2, %kind_6
  %run_time = and i1 %data, %is_operand
  br i1 %run_time, label %which, label %pair
which:
  %floatp = getelementptr i64, ptr %table, i64 $FLOAT
  %float_type = load ptr, ptr %floatp
  %is_float = icmp eq ptr %type, %float_type
  br i1 %is_float, label %push, label %maybe_integer
maybe_integer:
  %intp = getelementptr i64, ptr %table, i64 $INT
  %int_type = load ptr, ptr %intp
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %integer, label %miss
integer:
  %asp = getelementptr i64, ptr %table, i64 $AS_INTEGER
  %as = load ptr, ptr %asp
  %value = call i64 %as(ptr %a)
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %push
doubt:
  %occurredp = getelementptr i64, ptr %table, i64 $OCCURRED
  %occurred = load ptr, ptr %occurredp
  %error = call ptr %occurred()
  %too_big = icmp ne ptr %error, null
  br i1 %too_big, label %clear, label %push
clear:
  %clearp = getelementptr i64, ptr %table, i64 $CLEAR
  %clear_error = load ptr, ptr %clearp
  call void %clear_error()
  br label %miss
push:
  %to = getelementptr ptr, ptr %pushed, i64 %n
  store ptr %a, ptr %to
  %n2 = add i64 %n, 1
  br label %agreed
pair:
  %etp = getelementptr i8, ptr %e, i64 8
  %et = load ptr, ptr %etp
  %tuplep = getelementptr i64, ptr %table, i64 $TUPLE
  %tuple_type = load ptr, ptr %tuplep
  %is_tuple = icmp eq ptr %et, %tuple_type
  br i1 %is_tuple, label %inside, label %miss
inside:
  %e_size_p = getelementptr i8, ptr %e, i64 16
  %e_size = load i64, ptr %e_size_p
  %two = icmp eq i64 %e_size, 2
  br i1 %two, label %parts_of_pair, label %miss
parts_of_pair:
  %e0p = getelementptr i8, ptr %e, i64 24
  %e0 = load ptr, ptr %e0p
  %e1p = getelementptr i8, ptr %e, i64 32
  %e1 = load ptr, ptr %e1p
  %class_same = icmp eq ptr %e0, %type
  %number_same = icmp eq ptr %e1, %a
  %pair_same = and i1 %class_same, %number_same
  br i1 %pair_same, label %agreed, label %miss
agreed:
  %n1 = phi i64 [%n, %static], [%n, %tensor], [%n, %other], [%n2, %push], [%n, %parts_of_pair]
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %argument, label %make
make:
  %t = call ptr %new(ptr %tensor_type, ptr %empty, ptr null)
  %no_memory = icmp eq ptr %t, null
  br i1 %no_memory, label %give_up, label %still
still:
  ; an allocation may collect garbage, and finalizers may record
  %state_now = load ptr, ptr %statep
  %gen_now = load ptr, ptr %genp
  %s1 = icmp eq ptr %state_now, %state
  %s2 = icmp eq ptr %gen_now, %gen
  %s3 = and i1 %s1, %s2
  br i1 %s3, label %fill, label %drop
drop:
  call void %release(ptr %t)
  br label %miss
fill:
  call void %retain(ptr %gen)
  %ngp = getelementptr i8, ptr %t, i64 $TENSOR_GEN
  store ptr %gen, ptr %ngp
  %slotp = getelementptr i8, ptr %next, i64 $STATE_SLOT
  %slot = load ptr, ptr %slotp
  call void %retain(ptr %slot)
  %nsp = getelementptr i8, ptr %t, i64 $TENSOR_SLOT
  store ptr %slot, ptr %nsp
  %metap = getelementptr i8, ptr %next, i64 $STATE_META
  %meta = load ptr, ptr %metap
  call void %retain(ptr %meta)
  %nmp = getelementptr i8, ptr %t, i64 $TENSOR_META
  store ptr %meta, ptr %nmp
  call void %retain(ptr %none)
  %nstp = getelementptr i8, ptr %t, i64 $TENSOR_STORAGE
  store ptr %none, ptr %nstp
  call void %retain(ptr %none)
  %nip = getelementptr i8, ptr %t, i64 $TENSOR_IMMEDIATE
  store ptr %none, ptr %nip
  %appendp = getelementptr i64, ptr %table, i64 $APPEND
  %append = load ptr, ptr %appendp
  %paramsp = getelementptr i8, ptr %tr, i64 $TRACE_PARAMS
  %params = load ptr, ptr %paramsp
  %any = icmp ne i64 %n1, 0
  br i1 %any, label %parameter, label %move
parameter:
  %j = phi i64 [0, %fill], [%j1, %parameter_next]
  %pp = getelementptr ptr, ptr %pushed, i64 %j
  %p = load ptr, ptr %pp
  %failed_p = call i32 %append(ptr %params, ptr %p)
  %bad_p = icmp ne i32 %failed_p, 0
  br i1 %bad_p, label %undo, label %parameter_next
parameter_next:
  %j1 = add i64 %j, 1
  %more_p = icmp ult i64 %j1, %n1
  br i1 %more_p, label %parameter, label %move
move:
  %tensorsp = getelementptr i8, ptr %tr, i64 $TRACE_TENSORS
  %tensors = load ptr, ptr %tensorsp
  %failed_t = call i32 %append(ptr %tensors, ptr %t)
  %bad_t = icmp ne i32 %failed_t, 0
  br i1 %bad_t, label %undo, label %arrive
arrive:
  call void %retain(ptr %next)
  store ptr %next, ptr %statep
  call void %release(ptr %state)
  ret ptr %t
undo:
  call void %release(ptr %t)
  br label %give_up
give_up:
  ret ptr null
miss:
  call void %retain(ptr %none)
  ret ptr %none

learned:
  %heldp = getelementptr i8, ptr %tr, i64 $TRACE_HELD
  %held = load ptr, ptr %heldp
  %falsep = getelementptr i64, ptr %table, i64 $FALSE
  %false = load ptr, ptr %falsep
  %free = icmp eq ptr %held, %false
  %recentp = getelementptr i8, ptr %op, i64 $OPERATION_RECENT
  %made = load ptr, ptr %recentp
  %some = icmp ne ptr %made, %none
  %l1 = and i1 %free, %some
  br i1 %l1, label %l_valid, label %miss
l_valid:
  %knownp = getelementptr i8, ptr %made, i64 $IMMEDIATE_KNOWN
  %in = load ptr, ptr %knownp
  %current = icmp eq ptr %in, %immediate
  %l_keyp = getelementptr i8, ptr %made, i64 $IMMEDIATE_KEY
  %l_key = load ptr, ptr %l_keyp
  %l_sizep = getelementptr i8, ptr %l_key, i64 16
  %l_size = load i64, ptr %l_sizep
  %l_parts = sub i64 %l_size, 1
  %l_fits = icmp eq i64 %l_parts, %count
  %l2 = and i1 %current, %l_fits
  br i1 %l2, label %l_begin, label %miss
l_begin:
  %l_items = getelementptr i8, ptr %l_key, i64 32
  %bytesp = getelementptr i8, ptr %made, i64 $IMMEDIATE_BLOCK
  %bytes = load ptr, ptr %bytesp
  %plan = getelementptr i8, ptr %bytes, i64 $BYTES
  %of_view = load i64, ptr %plan
  %is_view = icmp ne i64 %of_view, 0
  %programp = getelementptr i64, ptr %plan, i64 1
  %program = load i64, ptr %programp
  %constp = getelementptr i64, ptr %plan, i64 3
  %constant = load i64, ptr %constp
  %per_argument = getelementptr i64, ptr %plan, i64 5
  %l_asp = getelementptr i64, ptr %table, i64 $AS_INTEGER
  %l_as = load ptr, ptr %l_asp
  br label %l_argument
l_argument:
  %li = phi i64 [0, %l_begin], [%li1, %l_agreed]
  %lm = phi i64 [0, %l_begin], [%lm1, %l_agreed]
  %lk = phi i64 [0, %l_begin], [%lk1, %l_agreed]
  %lo = phi i64 [%constant, %l_begin], [%lo1, %l_agreed]
  %lap = getelementptr ptr, ptr %args, i64 %li
  %la = load ptr, ptr %lap
  %lep = getelementptr ptr, ptr %l_items, i64 %li
  %le = load ptr, ptr %lep
  %lkp = getelementptr i8, ptr %kinds, i64 %li
  %lkind = load i8, ptr %lkp
  %lwp = getelementptr i64, ptr %per_argument, i64 %li
  %lw = load i64, ptr %lwp
  %lsame = icmp eq ptr %la, %le
  %lfixed = icmp eq i8 %lkind, 0
  br i1 %lfixed, label %l_static, label %l_varying
l_static:
  br i1 %lsame, label %l_agreed, label %miss
l_varying:
  %ltypep = getelementptr i8, ptr %la, i64 8
  %ltype = load ptr, ptr %ltypep
  %lis_t = icmp eq ptr %ltype, %tensor_type
  %lis_p = icmp eq ptr %ltype, %parameter_type
  %lis_tensor = or i1 %lis_t, %lis_p
  br i1 %lis_tensor, label %l_tensor, label %l_other
l_tensor:
  %lmp = getelementptr i8, ptr %la, i64 $TENSOR_META
  %lmeta = load ptr, ptr %lmp
  %lmeta_same = icmp eq ptr %lmeta, %le
  %lsp = getelementptr i8, ptr %la, i64 $TENSOR_STORAGE
  %ls = load ptr, ptr %lsp
  %lhas = icmp ne ptr %ls, %none
  %lhas0 = icmp ne ptr %ls, null
  %lt1 = and i1 %lmeta_same, %lhas
  %lt2 = and i1 %lt1, %lhas0
  %lmay = icmp ult i8 %lkind, 5
  %lt3 = and i1 %lt2, %lmay
  br i1 %lt3, label %l_storage, label %miss
l_storage:
  %lbp = getelementptr i8, ptr %ls, i64 $STORAGE_BUFFER
  %lb = load ptr, ptr %lbp
  %lthere = icmp ne ptr %lb, %none
  %lthere0 = icmp ne ptr %lb, null
  %lgp = getelementptr i8, ptr %ls, i64 $STORAGE_GEN
  %lg = load ptr, ptr %lgp
  %lsettled = icmp eq ptr %lg, %minus
  %lxp = getelementptr i8, ptr %ls, i64 $STORAGE_EXTERNAL
  %lx = load ptr, ptr %lxp
  %lunseen = icmp eq ptr %lx, %none
  %lcp = getelementptr i8, ptr %ls, i64 $STORAGE_CUT
  %lc = load ptr, ptr %lcp
  %luncut = icmp eq ptr %lc, %minus
  %ls1 = and i1 %lthere, %lthere0
  %ls2 = and i1 %lsettled, %lunseen
  %ls3 = and i1 %ls1, %ls2
  %ls4 = and i1 %ls3, %luncut
  br i1 %ls4, label %l_which, label %miss
l_which:
  br i1 %is_view, label %l_source, label %l_data
l_data:
  %limp = getelementptr i8, ptr %la, i64 $TENSOR_IMMEDIATE
  %lim = load ptr, ptr %limp
  %lseen = icmp eq ptr %lim, %none
  %lnp = getelementptr i8, ptr %lb, i64 $BUFFER_NBYTES
  %lno = load ptr, ptr %lnp
  %ln = call i64 %l_as(ptr %lno)
  %lnsame = icmp eq i64 %ln, %lw
  %ld1 = and i1 %lseen, %lnsame
  br i1 %ld1, label %l_address, label %miss
l_address:
  %ladp = getelementptr i8, ptr %lb, i64 $BUFFER_ADDRESS
  %lado = load ptr, ptr %ladp
  %lad = call i64 %l_as(ptr %lado)
  %lm2 = add i64 %lm, 2
  %lto = getelementptr i64, ptr %words, i64 %lm2
  store i64 %lad, ptr %lto
  br label %l_source
l_source:
  %lmn = add i64 %lm, 1
  br label %l_agreed
l_other:
  %lis_none = icmp eq ptr %la, %none
  %labsent = and i1 %lis_none, %lsame
  br i1 %labsent, label %l_agreed, label %l_maybe
l_maybe:
  %lkind_1 = icmp eq i8 %lkind, 1
  br i1 %lkind_1, label %miss, label %l_number
l_number:
  %ldata = icmp eq ptr %ltype, %le
  %lkind_2 = icmp eq i8 %lkind, 2
  %lkind_6 = icmp eq i8 %lkind, 6
  %lis_operand = or i1 %lkind_2, %lkind_6
  %lrun_time = and i1 %ldata, %lis_operand
  br i1 %lrun_time, label %l_class, label %l_pair
l_class:
  %lfloatp = getelementptr i64, ptr %table, i64 $FLOAT
  %lfloat_type = load ptr, ptr %lfloatp
  %lis_float = icmp eq ptr %ltype, %lfloat_type
  %lintp = getelementptr i64, ptr %table, i64 $INT
  %lint_type = load ptr, ptr %lintp
  %lis_int = icmp eq ptr %ltype, %lint_type
  br i1 %lis_float, label %l_float, label %l_maybe_integer
l_float:
  br i1 %is_view, label %miss, label %l_real
l_real:
  %las_fp = getelementptr i64, ptr %table, i64 $AS_FLOAT
  %las_f = load ptr, ptr %las_fp
  %lreal = call double %las_f(ptr %la)
  %lbits = bitcast double %lreal to i64
  br label %l_value
l_maybe_integer:
  br i1 %lis_int, label %l_integer, label %miss
l_integer:
  %lint = call i64 %l_as(ptr %la)
  %lodd = icmp eq i64 %lint, -1
  br i1 %lodd, label %l_doubt, label %l_value
l_doubt:
  %loccurredp = getelementptr i64, ptr %table, i64 $OCCURRED
  %loccurred = load ptr, ptr %loccurredp
  %lerror = call ptr %loccurred()
  %ltoo_big = icmp ne ptr %lerror, null
  br i1 %ltoo_big, label %clear, label %l_value
l_value:
  %lv = phi i64 [%lbits, %l_real], [%lint, %l_integer], [%lint, %l_doubt]
  %lvp = getelementptr i64, ptr %numbers, i64 %lk
  store i64 %lv, ptr %lvp
  %lkn = add i64 %lk, 1
  %lmoved = mul i64 %lv, %lw
  %lon = add i64 %lo, %lmoved
  br label %l_agreed
l_pair:
  %letp = getelementptr i8, ptr %le, i64 8
  %let = load ptr, ptr %letp
  %ltuplep = getelementptr i64, ptr %table, i64 $TUPLE
  %ltuple_type = load ptr, ptr %ltuplep
  %lis_tuple = icmp eq ptr %let, %ltuple_type
  br i1 %lis_tuple, label %l_inside, label %miss
l_inside:
  %lesp = getelementptr i8, ptr %le, i64 16
  %les = load i64, ptr %lesp
  %ltwo = icmp eq i64 %les, 2
  br i1 %ltwo, label %l_parts_of_pair, label %miss
l_parts_of_pair:
  %le0p = getelementptr i8, ptr %le, i64 24
  %le0 = load ptr, ptr %le0p
  %le1p = getelementptr i8, ptr %le, i64 32
  %le1 = load ptr, ptr %le1p
  %lclass_same = icmp eq ptr %le0, %ltype
  %lnumber_same = icmp eq ptr %le1, %la
  %lpair_same = and i1 %lclass_same, %lnumber_same
  br i1 %lpair_same, label %l_agreed, label %miss
l_agreed:
  %lm1 = phi i64 [%lm, %l_static], [%lmn, %l_source], [%lm, %l_other], [%lm, %l_value], [%lm, %l_parts_of_pair]
  %lk1 = phi i64 [%lk, %l_static], [%lk, %l_source], [%lk, %l_other], [%lkn, %l_value], [%lk, %l_parts_of_pair]
  %lo1 = phi i64 [%lo, %l_static], [%lo, %l_source], [%lo, %l_other], [%lon, %l_value], [%lo, %l_parts_of_pair]
  %li1 = add i64 %li, 1
  %lmore = icmp ult i64 %li1, %count
  br i1 %lmore, label %l_argument, label %l_make

l_make:
  call void %retain(ptr %made)
  br i1 %is_view, label %l_base, label %l_room
l_base:
  %aliasp = getelementptr i64, ptr %plan, i64 2
  %alias = load i64, ptr %aliasp
  %basep = getelementptr ptr, ptr %args, i64 %alias
  %base = load ptr, ptr %basep
  %get_attrp = getelementptr i64, ptr %table, i64 $GET_ATTRIBUTE
  %get_attr = load ptr, ptr %get_attrp
  %dnp = getelementptr i64, ptr %table, i64 $DETACHED_NAME
  %dn = load ptr, ptr %dnp
  %det = call ptr %get_attr(ptr %base, ptr %dn)
  %det_bad = icmp eq ptr %det, null
  br i1 %det_bad, label %l_give_up, label %l_det
l_det:
  call void %release(ptr %det)
  %zerop = getelementptr i64, ptr %table, i64 $ZERO
  %zero = load ptr, ptr %zerop
  %attached1 = icmp eq ptr %det, %zero
  %attached2 = icmp eq ptr %det, %false
  %attached = or i1 %attached1, %attached2
  %base_storagep = getelementptr i8, ptr %base, i64 $TENSOR_STORAGE
  %base_storage = load ptr, ptr %base_storagep
  br i1 %attached, label %l_share, label %l_miss
l_share:
  call void %retain(ptr %base_storage)
  br label %l_objects
l_room:
  %keptp = getelementptr i8, ptr %made, i64 $IMMEDIATE_KEPT
  %kept0 = load ptr, ptr %keptp
  %references = load i32, ptr %kept0
  %ours_alone = icmp eq i32 %references, 1
  br i1 %ours_alone, label %l_store, label %l_allocate
l_allocate:
  %allocatep = getelementptr i8, ptr %made, i64 $IMMEDIATE_ALLOCATE
  %allocate = load ptr, ptr %allocatep
  %callp = getelementptr i64, ptr %table, i64 $CALL
  %callf = load ptr, ptr %callp
  %kept_new = call ptr %callf(ptr %allocate)
  %kept_bad = icmp eq ptr %kept_new, null
  br i1 %kept_bad, label %l_give_up, label %l_replace
l_replace:
  %kept_old = load ptr, ptr %keptp
  store ptr %kept_new, ptr %keptp
  call void %release(ptr %kept_old)
  br label %l_store
l_store:
  %kept = load ptr, ptr %keptp
  call void %retain(ptr %kept)
  %stp = getelementptr i64, ptr %table, i64 $STORAGE
  %st = load ptr, ptr %stp
  %s = call ptr %new(ptr %st, ptr %empty, ptr null)
  %s_bad = icmp eq ptr %s, null
  br i1 %s_bad, label %l_give_up, label %l_storage_fill
l_storage_fill:
  %sbp = getelementptr i8, ptr %s, i64 $STORAGE_BUFFER
  store ptr %kept, ptr %sbp
  call void %retain(ptr %minus)
  %sgp = getelementptr i8, ptr %s, i64 $STORAGE_GEN
  store ptr %minus, ptr %sgp
  call void %retain(ptr %none)
  %sxp = getelementptr i8, ptr %s, i64 $STORAGE_EXTERNAL
  store ptr %none, ptr %sxp
  call void %retain(ptr %minus)
  %scp = getelementptr i8, ptr %s, i64 $STORAGE_CUT
  store ptr %minus, ptr %scp
  br label %l_objects
l_objects:
  %storage = phi ptr [%base_storage, %l_share], [%s, %l_storage_fill]
  %viewed = phi ptr [%base, %l_share], [null, %l_storage_fill]
  %room = phi ptr [null, %l_share], [%kept, %l_storage_fill]
  %lt = call ptr %new(ptr %tensor_type, ptr %empty, ptr null)
  %lt_bad = icmp eq ptr %lt, null
  br i1 %lt_bad, label %l_give_up, label %l_fill
l_fill:
  call void %retain(ptr %minus)
  %l_ngp = getelementptr i8, ptr %lt, i64 $TENSOR_GEN
  store ptr %minus, ptr %l_ngp
  call void %retain(ptr %minus)
  %l_nsp = getelementptr i8, ptr %lt, i64 $TENSOR_SLOT
  store ptr %minus, ptr %l_nsp
  %l_metap = getelementptr i8, ptr %made, i64 $IMMEDIATE_META
  %l_meta = load ptr, ptr %l_metap
  call void %retain(ptr %l_meta)
  %l_nmp = getelementptr i8, ptr %lt, i64 $TENSOR_META
  store ptr %l_meta, ptr %l_nmp
  %l_nstp = getelementptr i8, ptr %lt, i64 $TENSOR_STORAGE
  store ptr %storage, ptr %l_nstp
  %tnp = getelementptr i64, ptr %table, i64 $TUPLE_NEW
  %tn = load ptr, ptr %tnp
  %tsize = add i64 %count, 2
  %tuple = call ptr %tn(i64 %tsize)
  %tuple_bad = icmp eq ptr %tuple, null
  br i1 %tuple_bad, label %l_give_up, label %l_remember
l_remember:
  %l_nip = getelementptr i8, ptr %lt, i64 $TENSOR_IMMEDIATE
  store ptr %tuple, ptr %l_nip
  %t0 = getelementptr i8, ptr %tuple, i64 24
  store ptr %made, ptr %t0
  br i1 %is_view, label %l_when_view, label %l_when
l_when_view:
  %bip = getelementptr i8, ptr %viewed, i64 $TENSOR_IMMEDIATE
  %bi = load ptr, ptr %bip
  %bi_none = icmp eq ptr %bi, %none
  %when_view = select i1 %bi_none, ptr %minus, ptr %gen
  br label %l_when
l_when:
  %when = phi ptr [%gen, %l_remember], [%when_view, %l_when_view]
  call void %retain(ptr %when)
  %t1p = getelementptr i8, ptr %tuple, i64 32
  store ptr %when, ptr %t1p
  %t2p = getelementptr i8, ptr %tuple, i64 40
  br label %l_arguments
l_arguments:
  %ai = phi i64 [0, %l_when], [%ai1, %l_arguments]
  %arp = getelementptr ptr, ptr %args, i64 %ai
  %ar = load ptr, ptr %arp
  call void %retain(ptr %ar)
  %tip = getelementptr ptr, ptr %t2p, i64 %ai
  store ptr %ar, ptr %tip
  %ai1 = add i64 %ai, 1
  %ai_more = icmp ult i64 %ai1, %count
  br i1 %ai_more, label %l_arguments, label %l_still
l_still:
  %l_state_now = load ptr, ptr %statep
  %l_gen_now = load ptr, ptr %genp
  %lq1 = icmp eq ptr %l_state_now, %state
  %lq2 = icmp eq ptr %l_gen_now, %gen
  %lq3 = and i1 %lq1, %lq2
  br i1 %lq3, label %l_do, label %l_drop
l_do:
  br i1 %is_view, label %l_moved, label %l_run
l_run:
  store i64 %program, ptr %words
  %teamp = getelementptr i64, ptr %words, i64 1
  store i64 0, ptr %teamp
  %out_at = add i64 %lm1, 2
  %outp = getelementptr i64, ptr %words, i64 %out_at
  %kap = getelementptr i8, ptr %room, i64 $BUFFER_ADDRESS
  %kao = load ptr, ptr %kap
  %ka = call i64 %l_as(ptr %kao)
  store i64 %ka, ptr %outp
  %any_numbers = icmp ne i64 %lk1, 0
  br i1 %any_numbers, label %l_numbers, label %l_go
l_numbers:
  %ni = phi i64 [0, %l_run], [%ni1, %l_numbers]
  %nfp = getelementptr i64, ptr %numbers, i64 %ni
  %nf = load i64, ptr %nfp
  %ni1 = add i64 %ni, 1
  %ntp = getelementptr i64, ptr %outp, i64 %ni1
  store i64 %nf, ptr %ntp
  %n_more = icmp ult i64 %ni1, %lk1
  br i1 %n_more, label %l_numbers, label %l_go
l_go:
  %runp = getelementptr i64, ptr %table, i64 $RUN
  %run = load ptr, ptr %runp
  %status = call i64 %run(ptr %words)
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %l_drop, label %l_count
l_moved:
  %dynamicp = getelementptr i64, ptr %plan, i64 4
  %dynamic = load i64, ptr %dynamicp
  %is_dynamic = icmp ne i64 %dynamic, 0
  br i1 %is_dynamic, label %l_offset, label %l_count
l_offset:
  %fip = getelementptr i64, ptr %table, i64 $FROM_INTEGER
  %fi = load ptr, ptr %fip
  %offset = call ptr %fi(i64 %lo1)
  %offset_bad = icmp eq ptr %offset, null
  br i1 %offset_bad, label %l_give_up, label %l_set
l_set:
  %set_attrp = getelementptr i64, ptr %table, i64 $SET_ATTRIBUTE
  %set_attr = load ptr, ptr %set_attrp
  %onp = getelementptr i64, ptr %table, i64 $OFFSET_NAME
  %on = load ptr, ptr %onp
  %set = call i32 %set_attr(ptr %lt, ptr %on, ptr %offset)
  call void %release(ptr %offset)
  %set_bad = icmp ne i32 %set, 0
  br i1 %set_bad, label %l_give_up, label %l_count
l_count:
  %counterp = getelementptr i64, ptr %table, i64 $COUNTERS
  %counters = load ptr, ptr %counterp
  %icp = getelementptr i8, ptr %counters, i64 $COUNTERS_IMMEDIATE_CALLS
  %ic = load ptr, ptr %icp
  %icn = call i64 %l_as(ptr %ic)
  %icn1 = add i64 %icn, 1
  %fip2 = getelementptr i64, ptr %table, i64 $FROM_INTEGER
  %fi2 = load ptr, ptr %fip2
  %ic1 = call ptr %fi2(i64 %icn1)
  %ic_bad = icmp eq ptr %ic1, null
  br i1 %ic_bad, label %l_give_up, label %l_counted
l_counted:
  store ptr %ic1, ptr %icp
  call void %release(ptr %ic)
  ret ptr %lt
l_drop:
  call void %release(ptr %lt)
  br label %miss
l_miss:
  call void %release(ptr %made)
  br label %miss
l_give_up:  ; no memory
  ret ptr null
}
declare ptr @llvm.thread.pointer.p0()
attributes #0 = { nounwind }
"""

# Which of the results that a trace has recorded somebody still holds: bytes, 1 for each tensor of the list that has another reference.
_ALIVE: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %count) #0 {
entry:
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %make = load ptr, ptr %block
  %list = load ptr, ptr %args
  %sizep = getelementptr i8, ptr %list, i64 16
  %size = load i64, ptr %sizep
  %itemsp = getelementptr i8, ptr %list, i64 24
  %items = load ptr, ptr %itemsp
  %result = call ptr %make(ptr null, i64 %size)
  %bad = icmp eq ptr %result, null
  br i1 %bad, label %out, label %begin
begin:
  %to = getelementptr i8, ptr %result, i64 $BYTES
  %any = icmp ne i64 %size, 0
  br i1 %any, label %loop, label %out
loop:
  %i = phi i64 [0, %begin], [%i1, %loop]
  %tp = getelementptr ptr, ptr %items, i64 %i
  %t = load ptr, ptr %tp
  %references = load i32, ptr %t
  %held = icmp ne i32 %references, 1
  %bit = zext i1 %held to i8
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 %bit, ptr %at
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %size
  br i1 %more, label %loop, label %out
out:
  ret ptr %result
}
attributes #0 = { nounwind }
"""

# The thread pointer, for the table.
_THREAD: Final = """
define ptr @$NAME(ptr %self, ptr %args, i64 %count) #0 {
  %block = getelementptr i8, ptr %self, i64 $BYTES
  %make = load ptr, ptr %block
  %here = call ptr @llvm.thread.pointer.p0()
  %result = call ptr %make(ptr %here)
  ret ptr %result
}
declare ptr @llvm.thread.pointer.p0()
attributes #0 = { nounwind }
"""

_held: Final[list[Any]] = []  # what native code has the addresses of


def offset_of(cls: type, name: str) -> int:
    """Where an object of the class has the reference of one of its `__slots__`."""
    descriptor = vars(cls)[name]
    # PyMemberDescrObject: object (16 bytes), type, name, qualified name, PyMemberDef: name, type, offset.
    member = ctypes.c_void_p.from_address(id(descriptor) + 40).value
    assert member is not None
    return ctypes.c_ssize_t.from_address(member + 16).value


def _fields() -> dict[str, int]:
    """Where the objects have what the IR reads. AssertionError if an object shows something else there."""
    tensor = recorder._TENSOR[0]
    trace = local.main
    wanted: tuple[tuple[type, str, str], ...] = (
        (tensor, "gen slot meta storage immediate", "_"), (Trace, "gen state params tensors held", ""), (State, "next immediate edge slot meta", ""),
        (Storage, "buffer gen external cut", ""), (Buffer, "address nbytes", ""), (Operation, "recent", ""), (Counters, "immediate_calls", ""),
        (Immediate, "known key block kept allocate meta", ""),
    )  # fmt: skip
    found = {}
    for cls, names, prefix in wanted:
        sample = trace if cls is Trace else object.__new__(cls)
        for name in names.split():
            at = found[f"{cls.__name__.upper()}_{name.upper()}"] = offset_of(cls, prefix + name)
            if cls is not Trace:
                setattr(sample, prefix + name, found)
            if ctypes.c_void_p.from_address(id(sample) + at).value != id(getattr(sample, prefix + name)):
                raise AssertionError(f"{cls.__name__} has no {name} at {at}")
        if cls is Buffer:
            sample._class = None  # it came from no pool
    return found


def start() -> None:
    """From now on the wrappers of operations ask the builtins first. Nothing happens where they cannot be had, or outside of the main thread."""
    from flambeau.ops import wrapper
    from flambeau.trace import evaluate

    if not native_calls.available():
        evaluate.start_native = None
        return
    if threading.current_thread() is not threading.main_thread():
        return
    evaluate.start_native = None
    values = {"BYTES": native_calls.BYTES_AT, "MOST": MOST_ARGUMENTS} | {name: i for i, name in enumerate(_TABLE)} | _fields()
    modules = [native_calls.module(name, text, values) for name, text in (("edge", _TEXT), ("alive", _ALIVE), ("thread", _THREAD))]
    readers = native_calls.readers()
    edge, alive, thread, *reads = jit.functions([*modules, *[code for code, _ in readers.values()]])
    for (name, (_, make)), address in zip(readers.items(), reads, strict=True):
        memory.READERS[getattr(dtypes, name)] = make(address)
    address_of = native_calls.address_of
    here = native_calls.builtin(thread, native_calls.words([address_of("PyLong_FromVoidPtr")]), "thread")
    new = ctypes.pythonapi.PyType_GetSlot
    new.restype, new.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_int)
    objects: list[Any] = [vars(local), "trace", (), recorder._TENSOR[0], recorder._PARAMETER[0] or recorder._TENSOR[0], Trace, None, float, int, tuple,
                          False, -1, 0, Storage, counters, "_detached", "_offset"]  # fmt: skip
    names, name, empty, *others = [id(o) for o in objects]
    functions = [threads.native_address(), *[address_of(f) for f in _FUNCTIONS]]
    table = (ctypes.c_uint64 * len(_TABLE))(here(), names, name, new(object, _TP_NEW), empty, *others, *functions)
    _held.extend((objects, table))

    def equip(op: Operation) -> Any:
        """The builtin of an operation; None if it takes what has no code."""
        codes = [
            6 if kind == "number" and default is inspect.Parameter.empty else _CODES.get(kind)
            for kind, default in zip(op.kinds, op.defaults, strict=True)
        ]
        if None in codes or not any(codes) or len(codes) > MOST_ARGUMENTS:
            return None
        _held.append(op)
        block = native_calls.words([ctypes.addressof(table), id(op)]) + bytes([c for c in codes if c is not None])
        return native_calls.builtin(edge, block, op.name)

    evaluate.alive_among = native_calls.builtin(alive, native_calls.words([address_of("PyBytes_FromStringAndSize")]), "alive")
    wrapper.equip_with(equip)
