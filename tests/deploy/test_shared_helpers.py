"""Helpers of a library's kernels: those that are the same stand in it once, those that differ in anything do not meet."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from flambeau.deploy import code

HELPER = """define internal i64 @add_one(i64 %x) {{
  %g = load i64, ptr @{table}
  %y = add i64 %x, %g
  ret i64 %y
}}
"""
CALLER = "define internal i64 @twice(i64 %x) {\n  %y = call i64 @add_one(i64 %x)\n  ret i64 %y\n}\n"
KERNEL = "define i64 @{name}(i64 %x) {{\n  %y = call i64 @twice(i64 %x)\n  ret i64 %y\n}}\n"


def text(name: str, table: str = "table", value: int = 1, attributes: str = "") -> str:
    return f"@{table} = private constant i64 {value}\n" + HELPER.format(table=table) + CALLER + KERNEL.format(name=name) + attributes


def helpers(texts: Iterable[str]) -> set[str]:
    return {m for t in texts for m in code._NAME.findall(code.shared(t)) if m.startswith("twice")}


@pytest.mark.parametrize(
    ("other", "one"),
    [
        (text("second"), True),
        (text("second", value=2), False),  # a helper's helper reads another constant
        (text("second").replace("add i64", "sub i64"), False),
        (text("second").replace("define internal i64 @twice", "define internal fastcc i64 @twice"), False),
        (text("second", attributes='attributes #0 = { "no-trapping-math"="true" }\n'), False),
    ],
)
def test_only_what_is_the_same_has_one_name(other: str, one: bool) -> None:
    assert (len(helpers([text("first"), other])) == 1) is one


def test_kernels_call_their_own_helpers_after_linking() -> None:
    """Two kernels whose helpers have the same names: `first` and `second` share theirs, `third` has others."""
    import ctypes

    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()  # the engine's own: it ends with it
    texts = [text("first"), text("second"), text("third", value=5)]
    context = binding.create_context()
    whole = code._parsed(code.shared(texts[0]), context, machine)
    for other in texts[1:]:
        whole.link_in(code._parsed(code.shared(other), context, machine))
    assert len([f for f in whole.functions if f.name.startswith("twice")]) == 2
    engine = binding.create_mcjit_compiler(whole, machine)
    engine.finalize_object()
    found = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(engine.get_function_address(name))(10) for name in ("first", "second", "third")]
    assert found == [11, 11, 15]
