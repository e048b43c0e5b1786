"""Huge arguments of circular functions: the remainder by pi/2 from all the bits of 2/pi that matter.

Payne and Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18 (1983). The work is done by a
scalar helper function in integer arithmetic, reached by a branch that is taken only when some lane is huge.
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.emit.lanes import Lanes, literal
from flambeau.runtime.target import Target

# 64 zero bits, then the first 1280 bits of 2/pi (computed in 1600-bit arithmetic).
_TWO_OVER_PI = (
    0x0,
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D,
)  # fmt: skip
_TABLE = "flambeau_two_over_pi"
_HELPER = "flambeau_reduce_huge"


def _table() -> str:
    words = ", ".join(f"i64 {literal('i64', word)}" for word in _TWO_OVER_PI)
    return f"@{_TABLE} = internal constant [{len(_TWO_OVER_PI)} x i64] [{words}]"


def _helper(target: Target) -> tuple[str, set[str]]:
    """For each of `count` doubles at %x: x = quadrant pi/2 + high + low, |high| <= pi/4; NaN for infinities and NaN.

    x = M 2^e with a 53-bit M. Bits of 2/pi worth 4 or more after the product drop out; the 192 bits that follow give
    the quadrant (2 bits) and 190 bits of fraction, of which at most 62 cancel.
    """
    b = Builder(target)
    with b.for_(0, "%count") as index:
        x = b.load("double", b.gep("double", "%x", index), 8)
        bits = b.op(f"bitcast double {x} to i64")
        field = b.op(f"and i64 {b.op(f'lshr i64 {bits}, 52')}, 2047")
        mantissa = b.op(f"or i64 {b.op(f'and i64 {bits}, {(1 << 52) - 1}')}, {1 << 52}")
        # First bit wanted: e - 2 places after the point, and 64 padding bits; e = field - 1075. Never below 0 here.
        first = b.max(b.sub(field, 1075 - 62), 0)
        word = b.op(f"lshr i64 {first}, 6")
        words = [b.load("i64", b.gep("i64", f"@{_TABLE}", b.add(word, i)), 8) for i in range(4)]

        def funnel(high: str, low: str, shift: str) -> str:
            return b.call("i64", "llvm.fshl.i64", [("i64", high), ("i64", low), ("i64", shift)])

        shift = b.op(f"and i64 {first}, 63")
        window = [funnel(words[i], words[i + 1], shift) for i in range(3)]
        wide = b.op(f"zext i64 {mantissa} to i128")
        low = b.op(f"mul i128 {wide}, {b.op(f'zext i64 {window[2]} to i128')}")
        middle = b.op(f"mul i128 {wide}, {b.op(f'zext i64 {window[1]} to i128')}")
        middle = b.op(f"add i128 {middle}, {b.op(f'lshr i128 {low}, 64')}")
        p0 = b.op(f"trunc i128 {low} to i64")
        p1 = b.op(f"trunc i128 {middle} to i64")
        carried = b.op(f"trunc i128 {b.op(f'lshr i128 {middle}, 64')} to i64")
        p2 = b.add(b.mul(mantissa, window[0]), carried)
        # Fraction to the nearest quadrant: a signed 128-bit number of unit 2^-128.
        f1, f0 = funnel(p2, p1, "2"), funnel(p1, p0, "2")
        negative = b.op(f"icmp slt i64 {f1}, 0")
        quadrant = b.add(b.op(f"lshr i64 {p2}, 62"), b.op(f"zext i1 {negative} to i64"))
        high = b.op(f"shl i128 {b.op(f'zext i64 {f1} to i128')}, 64")
        fraction = b.op(f"or i128 {high}, {b.op(f'zext i64 {f0} to i128')}")
        opposite = b.op(f"sub i128 0, {fraction}")
        size = b.op(f"select i1 {negative}, i128 {opposite}, i128 {fraction}")
        top = b.op(f"trunc i128 {b.op(f'lshr i128 {size}, 64')} to i64")
        zeros = b.call("i64", "llvm.ctlz.i64", [("i64", top), ("i1", "false")])
        size = b.op(f"shl i128 {size}, {b.op(f'zext i64 {zeros} to i128')}")
        n1 = b.op(f"trunc i128 {b.op(f'lshr i128 {size}, 64')} to i64")
        n0 = b.op(f"trunc i128 {size} to i64")
        head = Lanes(b, "i64", 1, b.op(f"and i64 {n1}, -2048")).to("double", "uitofp")
        rest = b.op(f"or i64 {b.op(f'shl i64 {n1}, 53')}, {b.op(f'lshr i64 {n0}, 11')}")
        tail = Lanes(b, "i64", 1, rest).to("double", "uitofp")
        unit = Lanes(b, "i64", 1, b.op(f"shl i64 {b.sub(1023, zeros)}, 52")).as_float()
        head, tail = head * 2.0**-64 * unit, tail * 2.0**-117 * unit
        r = head * 1.5707963267948966
        r_low = head.fma(1.5707963267948966, -r) + (head * 6.123233995736766e-17 + tail * 1.5707963267948966)
        below = Lanes(b, "i1", 1, b.op(f"icmp slt i64 {bits}, 0"))
        flip = Lanes(b, "i1", 1, negative) ^ below
        r, r_low = flip.select(-r, r), flip.select(-r_low, r_low)
        infinite = Lanes(b, "i1", 1, b.op(f"icmp eq i64 {field}, 2047"))
        r = infinite.select(r.like(float("nan")), r)
        turn = Lanes(b, "i64", 1, quadrant)
        b.store("double", r.name, b.gep("double", "%high", index), 8)
        b.store("double", r_low.name, b.gep("double", "%low", index), 8)
        b.store("i64", below.select(-turn, turn).name, b.gep("i64", "%quadrant", index), 8)
    # optnone: it runs rarely, and optimising it took 20 of the 40 ms that a kernel with a sine took to compile.
    parameters = "ptr %x, ptr %high, ptr %low, ptr %quadrant, i64 %count"
    header = f"define internal void @{_HELPER}({parameters}) #0 noinline optnone"
    return b.function(header), b.declarations


def large_reduction(x: Lanes, huge: Lanes, high: Lanes, low: Lanes, quadrant: Lanes) -> tuple[Lanes, Lanes, Lanes]:
    """The given (high, low, quadrant), with the lanes where `huge` is set replaced by the full reduction of x.

    Huge means 2^17 at least. float lanes are reduced as doubles, and the result is split into two floats again.
    """
    b, width = x.b, x.width
    text, needed = _helper(b.target)
    b.declarations.update((_table(), text, *needed))
    slots = [b.fresh("huge") for _ in range(4)]
    b.allocas.extend(f"  {slot} = alloca [{width} x i64], align 64" for slot in slots)
    before, then, after = b.block, b.new_label("huge"), b.new_label("near")
    b.emit(f"br i1 {huge.any()}, label %{then}, label %{after}")
    b.label(then)
    wide = x.to("double", "fpext")
    b.store(wide.type, wide.name, slots[0], 8)
    arguments = [*(("ptr", slot) for slot in slots), ("i64", str(width))]
    b.call("void", _HELPER, arguments, declare=False)
    integers = wide.like(0, "i64").type
    wide_high, wide_low = (Lanes(b, "double", width, b.load(wide.type, slot, 8)) for slot in slots[1:3])
    turn = Lanes(b, "i64", width, b.load(integers, slots[3], 8))
    if x.element == "float":
        new_high = wide_high.to("float", "fptrunc")
        new_low = (wide_high - new_high.to("double", "fpext")).to("float", "fptrunc")
        new = [new_high, new_low, turn.to("i32", "trunc")]
    else:
        new = [wide_high, wide_low, turn]
    old = [high, low, quadrant]
    found = [huge.select(n, o) for n, o in zip(new, old, strict=True)]
    end = b.block
    b.branch(after)
    b.label(after)
    results = [Lanes(b, o.element, width, b.op(f"phi {o.type} [{o.name}, %{before}], [{f.name}, %{end}]")) for o, f in zip(old, found, strict=True)]
    return results[0], results[1], results[2]
