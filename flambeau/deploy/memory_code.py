"""What generated code calls for memory, as LLVM IR: memcpy and its kin, and where there is no C library, an allocator over the module's memory."""

from __future__ import annotations

from typing import Final

# Loads and stores of 16 bytes at any address. "no-builtins": else LLVM may see a memcpy in a memcpy.
MOVES: Final = """
define internal ptr @memcpy(ptr %to, ptr %from, SIZE %bytes) "no-builtins" {
entry:
  %count = CAST %bytes to i64
  %wide = and i64 %count, -16
  %any = icmp ne i64 %wide, 0
  br i1 %any, label %blocks, label %rest
blocks:
  %i = phi i64 [0, %entry], [%j, %blocks]
  %p = getelementptr i8, ptr %from, i64 %i
  %q = getelementptr i8, ptr %to, i64 %i
  %x = load <16 x i8>, ptr %p, align 1
  store <16 x i8> %x, ptr %q, align 1
  %j = add i64 %i, 16
  %again = icmp ult i64 %j, %wide
  br i1 %again, label %blocks, label %rest
rest:
  %more = icmp ult i64 %wide, %count
  br i1 %more, label %bytes_left, label %end
bytes_left:
  %k = phi i64 [%wide, %rest], [%l, %bytes_left]
  %r = getelementptr i8, ptr %from, i64 %k
  %s = getelementptr i8, ptr %to, i64 %k
  %y = load volatile i8, ptr %r
  store volatile i8 %y, ptr %s
  %l = add i64 %k, 1
  %on = icmp ult i64 %l, %count
  br i1 %on, label %bytes_left, label %end
end:
  ret ptr %to
}
define internal ptr @memset(ptr %to, i32 %value, SIZE %bytes) "no-builtins" {
entry:
  %count = CAST %bytes to i64
  %byte = trunc i32 %value to i8
  %one = insertelement <16 x i8> zeroinitializer, i8 %byte, i32 0
  %all = shufflevector <16 x i8> %one, <16 x i8> zeroinitializer, <16 x i32> zeroinitializer
  %wide = and i64 %count, -16
  %any = icmp ne i64 %wide, 0
  br i1 %any, label %blocks, label %rest
blocks:
  %i = phi i64 [0, %entry], [%j, %blocks]
  %q = getelementptr i8, ptr %to, i64 %i
  store <16 x i8> %all, ptr %q, align 1
  %j = add i64 %i, 16
  %again = icmp ult i64 %j, %wide
  br i1 %again, label %blocks, label %rest
rest:
  %more = icmp ult i64 %wide, %count
  br i1 %more, label %bytes_left, label %end
bytes_left:
  %k = phi i64 [%wide, %rest], [%l, %bytes_left]
  %s = getelementptr i8, ptr %to, i64 %k
  store volatile i8 %byte, ptr %s
  %l = add i64 %k, 1
  %on = icmp ult i64 %l, %count
  br i1 %on, label %bytes_left, label %end
end:
  ret ptr %to
}
define internal ptr @memmove(ptr %to, ptr %from, SIZE %bytes) "no-builtins" {
entry:
  %count = CAST %bytes to i64
  %a = ptrtoint ptr %to to i64
  %b = ptrtoint ptr %from to i64
  %distance = sub i64 %a, %b
  %apart = icmp uge i64 %distance, %count
  br i1 %apart, label %forwards, label %backwards
forwards:
  %any = icmp ne i64 %count, 0
  br i1 %any, label %up, label %end
up:
  %k = phi i64 [0, %forwards], [%l, %up]
  %r = getelementptr i8, ptr %from, i64 %k
  %s = getelementptr i8, ptr %to, i64 %k
  %y = load volatile i8, ptr %r
  store volatile i8 %y, ptr %s
  %l = add i64 %k, 1
  %on = icmp ult i64 %l, %count
  br i1 %on, label %up, label %end
backwards:
  %m = phi i64 [%count, %entry], [%n, %down]
  %left = icmp ne i64 %m, 0
  br i1 %left, label %down, label %end
down:
  %n = sub i64 %m, 1
  %t = getelementptr i8, ptr %from, i64 %n
  %u = getelementptr i8, ptr %to, i64 %n
  %z = load volatile i8, ptr %t
  store volatile i8 %z, ptr %u
  br label %backwards
end:
  ret ptr %to
}
"""

# With a C library: its malloc and free.
_OF_C: Final = """
declare ptr @malloc(i64)
declare void @free(ptr)
define internal ptr @take(i64 %bytes) {
  %p = call ptr @malloc(i64 %bytes)
  ret ptr %p
}
define internal void @give(ptr %p, i64 %bytes) {
  call void @free(ptr %p)
  ret void
}
"""

# WebAssembly: blocks one after the other at the end of the memory, which grows. The last block that was taken can be given back.
_OF_WASM: Final = """
@__heap_base = external global i8
@heap_end = internal global i64 0
declare i32 @llvm.wasm.memory.size.i32(i32)
declare i32 @llvm.wasm.memory.grow.i32(i32, i32)
define internal ptr @take(i64 %bytes) {
entry:
  %known = load i64, ptr @heap_end
  %first = icmp eq i64 %known, 0
  %base = ptrtoint ptr @__heap_base to i64
  %from = select i1 %first, i64 %base, i64 %known
  %up = add i64 %from, 63
  %at = and i64 %up, -64
  %end = add i64 %at, %bytes
  %pages = call i32 @llvm.wasm.memory.size.i32(i32 0)
  %wide = zext i32 %pages to i64
  %there = shl i64 %wide, 16
  %enough = icmp ule i64 %end, %there
  br i1 %enough, label %good, label %grow
grow:
  %limit = icmp ugt i64 %end, 4294967295
  br i1 %limit, label %bad, label %ask
ask:
  %short = sub i64 %end, %there
  %round = add i64 %short, 65535
  %more = lshr i64 %round, 16
  %count = trunc i64 %more to i32
  %before = call i32 @llvm.wasm.memory.grow.i32(i32 0, i32 %count)
  %failed = icmp eq i32 %before, -1
  br i1 %failed, label %bad, label %good
good:
  store i64 %end, ptr @heap_end
  %p = inttoptr i64 %at to ptr
  ret ptr %p
bad:
  ret ptr null
}
define internal void @give(ptr %p, i64 %bytes) {
entry:
  %at = ptrtoint ptr %p to i64
  %end = add i64 %at, %bytes
  %known = load i64, ptr @heap_end
  %last = icmp eq i64 %end, %known
  br i1 %last, label %back, label %done
back:
  store i64 %at, ptr @heap_end
  ret void
done:
  ret void
}
"""

# Integers of 128 bits, which WebAssembly has not: what LLVM calls for their products and shifts.
WIDE: Final = """
define i128 @__multi3(i128 %a, i128 %b) {
  %al = trunc i128 %a to i64
  %as = lshr i128 %a, 64
  %ah = trunc i128 %as to i64
  %bl = trunc i128 %b to i64
  %bs = lshr i128 %b, 64
  %bh = trunc i128 %bs to i64
  %a0 = and i64 %al, 4294967295
  %a1 = lshr i64 %al, 32
  %b0 = and i64 %bl, 4294967295
  %b1 = lshr i64 %bl, 32
  %p00 = mul i64 %a0, %b0
  %p01 = mul i64 %a0, %b1
  %p10 = mul i64 %a1, %b0
  %p11 = mul i64 %a1, %b1
  %c = lshr i64 %p00, 32
  %mid = add i64 %p10, %c
  %midl = and i64 %mid, 4294967295
  %mid2 = add i64 %p01, %midl
  %mids = shl i64 %mid2, 32
  %p0 = and i64 %p00, 4294967295
  %lo = or i64 %mids, %p0
  %mh = lshr i64 %mid, 32
  %m2h = lshr i64 %mid2, 32
  %h1 = add i64 %p11, %mh
  %h2 = add i64 %h1, %m2h
  %x1 = mul i64 %al, %bh
  %x2 = mul i64 %ah, %bl
  %h3 = add i64 %h2, %x1
  %hi = add i64 %h3, %x2
  %wl = zext i64 %lo to i128
  %wh = zext i64 %hi to i128
  %ws = shl i128 %wh, 64
  %r = or i128 %ws, %wl
  ret i128 %r
}
define i128 @__ashlti3(i128 %a, i32 %by) {
  %lo = trunc i128 %a to i64
  %as = lshr i128 %a, 64
  %hi = trunc i128 %as to i64
  %wide = zext i32 %by to i64
  %n = and i64 %wide, 63
  %over = icmp uge i64 %wide, 64
  %l = shl i64 %lo, %n
  %half = lshr i64 %lo, 1
  %back = xor i64 %n, 63
  %carry = lshr i64 %half, %back
  %hs = shl i64 %hi, %n
  %h = or i64 %hs, %carry
  %rl = select i1 %over, i64 0, i64 %l
  %rh = select i1 %over, i64 %l, i64 %h
  %wl = zext i64 %rl to i128
  %wh = zext i64 %rh to i128
  %ws = shl i128 %wh, 64
  %r = or i128 %ws, %wl
  ret i128 %r
}
define i128 @__lshrti3(i128 %a, i32 %by) {
  %lo = trunc i128 %a to i64
  %as = lshr i128 %a, 64
  %hi = trunc i128 %as to i64
  %wide = zext i32 %by to i64
  %n = and i64 %wide, 63
  %over = icmp uge i64 %wide, 64
  %h = lshr i64 %hi, %n
  %twice = shl i64 %hi, 1
  %back = xor i64 %n, 63
  %carry = shl i64 %twice, %back
  %ls = lshr i64 %lo, %n
  %l = or i64 %ls, %carry
  %rl = select i1 %over, i64 %h, i64 %l
  %rh = select i1 %over, i64 0, i64 %h
  %wl = zext i64 %rl to i128
  %wh = zext i64 %rh to i128
  %ws = shl i128 %wh, 64
  %r = or i128 %ws, %wl
  ret i128 %r
}
"""


def text(wasm: bool) -> str:
    """The functions for a target with 64-bit addresses and a C library, or for WebAssembly."""
    moves = MOVES.replace("SIZE", "i32" if wasm else "i64")
    moves = moves.replace("%count = CAST %bytes to i64", "%count = zext i32 %bytes to i64" if wasm else "%count = add i64 %bytes, 0")
    return moves + (_OF_WASM if wasm else _OF_C)
