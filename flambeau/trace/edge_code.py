"""LLVM IR of the builtins of known_edge.py: (block, address of the arguments, their number) -> a new reference.

The block of an operation's builtin: [table, operation, kinds of the arguments, one byte each]. `$TRACE_GEN` and its like are where the
objects have their `__slots__`, `$GET` and its like are words of the table that all these builtins share; `miss` answers None: the wrapper's
Python code does the call. Three lines are short for what `expand` makes of them: `word` of the table, `field` of an object, `keep` in a
field. Labels and names with `l` in front belong to learned calls (immediate.py), the others to edges.
"""

from __future__ import annotations

import re
from typing import Final

# Functions of the interpreter, and the table's words, which end with them.
FUNCTIONS: Final = ("PyDict_GetItemWithError", "PyList_Append", "Py_IncRef", "Py_DecRef", "PyErr_Occurred", "PyErr_Clear", "PyLong_AsLongLong",
                     "PyFloat_AsDouble", "PyLong_FromLongLong", "PyTuple_New", "PyObject_CallNoArgs", "PyObject_GetAttr", "PyObject_SetAttr")  # fmt: skip
TABLE: Final = ("THREAD", "LOCALS", "TRACE_NAME", "NEW", "EMPTY", "TENSOR", "PARAMETER", "TRACE", "NONE", "FLOAT", "INT", "TUPLE",
                 "FALSE", "MINUS", "ZERO", "STORAGE", "COUNTERS", "DETACHED_NAME", "OFFSET_NAME", "RUN", "GET", "APPEND", "RETAIN", "RELEASE",
                 "OCCURRED", "CLEAR", "AS_INTEGER", "AS_FLOAT", "FROM_INTEGER", "TUPLE_NEW", "CALL", "GET_ATTRIBUTE", "SET_ATTRIBUTE")  # fmt: skip

EDGE: Final = """
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
  %none = word NONE
  %retain = word RETAIN
  %home = word THREAD
  %here = call ptr @llvm.thread.pointer.p0()
  %ours = icmp eq ptr %here, %home
  br i1 %ours, label %find, label %miss
find:
  %locals = word LOCALS
  %trace_name = word TRACE_NAME
  %get = word GET
  %tr = call ptr %get(ptr %locals, ptr %trace_name)
  %lost = icmp eq ptr %tr, null
  br i1 %lost, label %miss, label %found
found:
  %trtp = getelementptr i8, ptr %tr, i64 8
  %trt = load ptr, ptr %trtp
  %tracet = word TRACE
  %is_trace = icmp eq ptr %trt, %tracet
  br i1 %is_trace, label %where, label %miss
where:
  %genp = getelementptr i8, ptr %tr, i64 $TRACE_GEN
  %gen = load ptr, ptr %genp
  %statep = getelementptr i8, ptr %tr, i64 $TRACE_STATE
  %state = load ptr, ptr %statep
  %immediate = field %state STATE_IMMEDIATE
  %tensor_type = word TENSOR
  %parameter_type = word PARAMETER
  %new = word NEW
  %empty = word EMPTY
  %release = word RELEASE
  %minus = word MINUS
  %recorded = icmp eq ptr %immediate, %none
  br i1 %recorded, label %known, label %learned
known:
  %next = field %state STATE_NEXT
  %unknown = icmp eq ptr %next, %none
  br i1 %unknown, label %miss, label %plainly
plainly:
  %edge = field %next STATE_EDGE
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
  %tg = field %a TENSOR_GEN
  %pending = icmp eq ptr %tg, %gen
  %ts = field %a TENSOR_SLOT
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
  %float_type = word FLOAT
  %is_float = icmp eq ptr %type, %float_type
  br i1 %is_float, label %push, label %maybe_integer
maybe_integer:
  %int_type = word INT
  %is_int = icmp eq ptr %type, %int_type
  br i1 %is_int, label %integer, label %miss
integer:
  %as = word AS_INTEGER
  %value = call i64 %as(ptr %a)
  %odd = icmp eq i64 %value, -1
  br i1 %odd, label %doubt, label %push
doubt:
  %occurred = word OCCURRED
  %error = call ptr %occurred()
  %too_big = icmp ne ptr %error, null
  br i1 %too_big, label %clear, label %push
clear:
  %clear_error = word CLEAR
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
  %tuple_type = word TUPLE
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
  keep %gen in %t TENSOR_GEN
  %slot = field %next STATE_SLOT
  call void %retain(ptr %slot)
  keep %slot in %t TENSOR_SLOT
  %meta = field %next STATE_META
  call void %retain(ptr %meta)
  keep %meta in %t TENSOR_META
  call void %retain(ptr %none)
  keep %none in %t TENSOR_STORAGE
  call void %retain(ptr %none)
  keep %none in %t TENSOR_IMMEDIATE
  %append = word APPEND
  %params = field %tr TRACE_PARAMS
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
  %tensors = field %tr TRACE_TENSORS
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
  %held = field %tr TRACE_HELD
  %false = word FALSE
  %free = icmp eq ptr %held, %false
  %made = field %op OPERATION_RECENT
  %some = icmp ne ptr %made, %none
  %l1 = and i1 %free, %some
  br i1 %l1, label %l_valid, label %miss
l_valid:
  %in = field %made IMMEDIATE_KNOWN
  %current = icmp eq ptr %in, %immediate
  %l_key = field %made IMMEDIATE_KEY
  %l_sizep = getelementptr i8, ptr %l_key, i64 16
  %l_size = load i64, ptr %l_sizep
  %l_parts = sub i64 %l_size, 1
  %l_fits = icmp eq i64 %l_parts, %count
  %l2 = and i1 %current, %l_fits
  br i1 %l2, label %l_begin, label %miss
l_begin:
  %l_items = getelementptr i8, ptr %l_key, i64 32
  %bytes = field %made IMMEDIATE_BLOCK
  %plan = getelementptr i8, ptr %bytes, i64 $BYTES
  %of_view = load i64, ptr %plan
  %is_view = icmp ne i64 %of_view, 0
  %programp = getelementptr i64, ptr %plan, i64 1
  %program = load i64, ptr %programp
  %constp = getelementptr i64, ptr %plan, i64 3
  %constant = load i64, ptr %constp
  %per_argument = getelementptr i64, ptr %plan, i64 5
  %l_as = word AS_INTEGER
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
  %lmeta = field %la TENSOR_META
  %lmeta_same = icmp eq ptr %lmeta, %le
  %ls = field %la TENSOR_STORAGE
  %lhas = icmp ne ptr %ls, %none
  %lhas0 = icmp ne ptr %ls, null
  %lt1 = and i1 %lmeta_same, %lhas
  %lt2 = and i1 %lt1, %lhas0
  %lmay = icmp ult i8 %lkind, 5
  %lt3 = and i1 %lt2, %lmay
  br i1 %lt3, label %l_storage, label %miss
l_storage:
  %lb = field %ls STORAGE_BUFFER
  %lthere = icmp ne ptr %lb, %none
  %lthere0 = icmp ne ptr %lb, null
  %lg = field %ls STORAGE_GEN
  %lsettled = icmp eq ptr %lg, %minus
  %lx = field %ls STORAGE_EXTERNAL
  %lunseen = icmp eq ptr %lx, %none
  %lc = field %ls STORAGE_CUT
  %luncut = icmp eq ptr %lc, %minus
  %ls1 = and i1 %lthere, %lthere0
  %ls2 = and i1 %lsettled, %lunseen
  %ls3 = and i1 %ls1, %ls2
  %ls4 = and i1 %ls3, %luncut
  br i1 %ls4, label %l_which, label %miss
l_which:
  br i1 %is_view, label %l_source, label %l_data
l_data:
  %lim = field %la TENSOR_IMMEDIATE
  %lseen = icmp eq ptr %lim, %none
  %lno = field %lb BUFFER_NBYTES
  %ln = call i64 %l_as(ptr %lno)
  %lnsame = icmp eq i64 %ln, %lw
  %ld1 = and i1 %lseen, %lnsame
  br i1 %ld1, label %l_address, label %miss
l_address:
  %lado = field %lb BUFFER_ADDRESS
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
  %lfloat_type = word FLOAT
  %lis_float = icmp eq ptr %ltype, %lfloat_type
  %lint_type = word INT
  %lis_int = icmp eq ptr %ltype, %lint_type
  br i1 %lis_float, label %l_float, label %l_maybe_integer
l_float:
  br i1 %is_view, label %miss, label %l_real
l_real:
  %las_f = word AS_FLOAT
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
  %loccurred = word OCCURRED
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
  %ltuple_type = word TUPLE
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
  %get_attr = word GET_ATTRIBUTE
  %dn = word DETACHED_NAME
  %det = call ptr %get_attr(ptr %base, ptr %dn)
  %det_bad = icmp eq ptr %det, null
  br i1 %det_bad, label %l_give_up, label %l_det
l_det:
  call void %release(ptr %det)
  %zero = word ZERO
  %attached1 = icmp eq ptr %det, %zero
  %attached2 = icmp eq ptr %det, %false
  %attached = or i1 %attached1, %attached2
  %base_storage = field %base TENSOR_STORAGE
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
  %allocate = field %made IMMEDIATE_ALLOCATE
  %callf = word CALL
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
  %st = word STORAGE
  %s = call ptr %new(ptr %st, ptr %empty, ptr null)
  %s_bad = icmp eq ptr %s, null
  br i1 %s_bad, label %l_give_up, label %l_storage_fill
l_storage_fill:
  keep %kept in %s STORAGE_BUFFER
  call void %retain(ptr %minus)
  keep %minus in %s STORAGE_GEN
  call void %retain(ptr %none)
  keep %none in %s STORAGE_EXTERNAL
  call void %retain(ptr %minus)
  keep %minus in %s STORAGE_CUT
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
  keep %minus in %lt TENSOR_GEN
  call void %retain(ptr %minus)
  keep %minus in %lt TENSOR_SLOT
  %l_meta = field %made IMMEDIATE_META
  call void %retain(ptr %l_meta)
  keep %l_meta in %lt TENSOR_META
  keep %storage in %lt TENSOR_STORAGE
  %tn = word TUPLE_NEW
  %tsize = add i64 %count, 2
  %tuple = call ptr %tn(i64 %tsize)
  %tuple_bad = icmp eq ptr %tuple, null
  br i1 %tuple_bad, label %l_give_up, label %l_remember
l_remember:
  keep %tuple in %lt TENSOR_IMMEDIATE
  %t0 = getelementptr i8, ptr %tuple, i64 24
  store ptr %made, ptr %t0
  br i1 %is_view, label %l_when_view, label %l_when
l_when_view:
  %bi = field %viewed TENSOR_IMMEDIATE
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
  %kao = field %room BUFFER_ADDRESS
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
  %run = word RUN
  %status = call i64 %run(ptr %words)
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %l_drop, label %l_count
l_moved:
  %dynamicp = getelementptr i64, ptr %plan, i64 4
  %dynamic = load i64, ptr %dynamicp
  %is_dynamic = icmp ne i64 %dynamic, 0
  br i1 %is_dynamic, label %l_offset, label %l_count
l_offset:
  %fi = word FROM_INTEGER
  %offset = call ptr %fi(i64 %lo1)
  %offset_bad = icmp eq ptr %offset, null
  br i1 %offset_bad, label %l_give_up, label %l_set
l_set:
  %set_attr = word SET_ATTRIBUTE
  %on = word OFFSET_NAME
  %set = call i32 %set_attr(ptr %lt, ptr %on, ptr %offset)
  call void %release(ptr %offset)
  %set_bad = icmp ne i32 %set, 0
  br i1 %set_bad, label %l_give_up, label %l_count
l_count:
  %counters = word COUNTERS
  %icp = getelementptr i8, ptr %counters, i64 $COUNTERS_IMMEDIATE_CALLS
  %ic = load ptr, ptr %icp
  %icn = call i64 %l_as(ptr %ic)
  %icn1 = add i64 %icn, 1
  %fi2 = word FROM_INTEGER
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
ALIVE: Final = """
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
THREAD: Final = """
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


def expand(text: str) -> str:
    """LLVM IR of a text with the short lines."""
    text = re.sub(r"  (%\w+) = word (\w+)\n", r"  \1.p = getelementptr i64, ptr %table, i64 $\2\n  \1 = load ptr, ptr \1.p\n", text)
    text = re.sub(r"  (%\w+) = field (%\w+) (\w+)\n", r"  \1.p = getelementptr i8, ptr \2, i64 $\3\n  \1 = load ptr, ptr \1.p\n", text)
    return re.sub(r"  keep (%\w+) in (%\w+) (\w+)\n", r"  \2.\3 = getelementptr i8, ptr \2, i64 $\3\n  store ptr \1, ptr \2.\3\n", text)
