"""Compiling for other machines: every kernel of random graphs becomes an object there, of that machine's instructions and no other's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings

from flambeau import dtypes
from flambeau.compiler import objects
from flambeau.compiler.graph import Graph
from flambeau.compiler.pipeline import compile_graph
from flambeau.runtime import costs, jit, tiles
from flambeau.runtime.target import NAMED, Target
from tests import reference
from tests.compiler.programs import data, graphs
from tests.graphs import GraphBuilder
from tests.native import assert_same_bits, run_plan

NAMES: Final = ("x86-64-v3", "znver4", "sapphirerapids", "aarch64-linux", "apple-m1")
MACHINE_OF_ELF: Final = {"x86_64": 62, "aarch64": 183}  # e_machine: System V ABI's EM_X86_64, EM_AARCH64
OUTSIDE: Final = {"memcpy", "memset", "memmove", "bzero"}  # the last is how macOS clears; what generated code may take from the C library
_SEEN: set[tuple[str, str]] = set()  # kernels that were compiled for a target already


def foreign(target: Target, assembly: str) -> list[str]:
    """What in the assembly is not the target's: intrinsics that nobody has expanded, other registers than its own."""
    found = re.findall(r"llvm\.(?:x86|aarch64|arm)\.[\w.]+", assembly)
    if target.architecture != "x86_64":
        return found + re.findall(r"%[xyz]mm\d+|%r[a-d]x", assembly)
    found += re.findall(r"\bv\d+\.\d+[bhsd]\b|\bfmla\b", assembly)
    if target.vector_bits < 512:
        found += re.findall(r"%zmm\d+|%k[0-7]\b|%[xy]mm(?:1[6-9]|2\d|3[01])\b", assembly)
    if not target.matrix_dtypes:
        found += re.findall(r"\bt(?:dp\w+|ileloadd\w*|ilestored|ilezero|ilerelease)\b|\bldtilecfg\b|%tmm\d", assembly)
    return found


def outside(assembly: str) -> set[str]:
    """The functions that the code calls and that its module does not define."""
    called = {name.removesuffix("@PLT") for name in re.findall(r"\t(?:callq?|bl|b|jmp)\t([A-Za-z_$][\w$@]*)", assembly)}
    defined = set(re.findall(r"^([A-Za-z_$][\w$]*):", assembly, re.MULTILINE))
    return {name.removeprefix("_") for name in called - defined}


def check(graph: Graph, name: str) -> None:
    """Compile a graph for a target; look at the code of the kernels that no graph before had."""
    target = Target.named(name, workers=2)
    plan = compile_graph(graph, target=target, check_passes=True)
    with pytest.raises(RuntimeError, match=f"compiled for {name}"):
        plan.run([], [])
    for key, text in objects.texts(plan).items():
        if (name, key) in _SEEN:
            continue
        _SEEN.add((name, key))
        content, assembly = jit.compile_text(text, target=target), jit.assembly(text, target)
        if content[:4] == b"\x7fELF":
            assert int.from_bytes(content[18:20], "little") == MACHINE_OF_ELF[target.architecture]
        else:
            assert content[:4] == b"\xcf\xfa\xed\xfe" and name.startswith("apple")  # Mach-O, 64 bits
        assert foreign(target, assembly) == [], key
        assert outside(assembly) <= OUTSIDE, key


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(floats=(dtypes.float32, dtypes.float64, dtypes.float16)))
def test_random_graphs_compile_for_every_target(graph: Graph) -> None:
    for name in NAMES:
        check(graph, name)


def _products(d: dtypes.dtype) -> Graph:
    b = GraphBuilder()
    for m, n, k in ((3, 4, 5), (40, 50, 60), (1, 300, 200), (200, 300, 700), (16, 16, 5000)):
        b.output(b.op("matmul", b.input((m, k), d), b.input((k, n), d)))
    return b.graph


def _convolutions(d: dtypes.dtype) -> Graph:
    b = GraphBuilder()
    for batch, inputs, outputs, size, groups, stride in ((2, 3, 16, 20, 1, 1), (32, 64, 64, 7, 1, 1), (2, 32, 48, 24, 1, 2), (2, 16, 16, 20, 16, 1)):
        x, w = b.input((batch, inputs, size, size), d), b.input((outputs, inputs // groups, 3, 3), d)
        common = {"stride": (stride, stride), "padding": (1, 1), "dilation": (1, 1), "groups": groups}
        y = b.op("convolution", x, w, **common)
        b.output(y)
        g = b.input(b.graph.values[y].shape, d)
        b.output(b.op("convolution_input_gradient", g, w, shape=(batch, inputs, size, size), **common))
        b.output(b.op("convolution_weight_gradient", g, x, shape=(outputs, inputs // groups, 3, 3), **common))
    return b.graph


def _movement(d: dtypes.dtype) -> Graph:
    b = GraphBuilder()
    x, index = b.input((60, 70), d), b.input((60, 9), dtypes.int64)
    for results in (b.op("sort", x, dim=1, descending=False), b.op("topk", x, k=3, dim=1, largest=True)):
        b.output(results[0])
    b.output(b.op("gather", x, index, dim=1))
    b.output(b.op("cumsum", x, dim=0))
    return b.graph


def _transforms(d: dtypes.dtype) -> Graph:
    """One pass with rows and with columns, two passes, and a convolution."""
    b = GraphBuilder()
    for shape, dim in (((40, 360), 1), ((360, 40), 0), ((1, 1 << 15), 1), ((40, 101), 1), ((1, 10007), 1)):
        z, x = b.input(shape, d.to_complex()), b.input(shape, d)
        half = b.op("fourier", x, dim=dim, kind="real", size=shape[dim], inverse=False, scale=1.0)
        b.output(b.op("fourier", z, dim=dim, kind="complex", size=shape[dim], inverse=True, scale=0.5))
        b.output(half)
        b.output(b.op("fourier", half, dim=dim, kind="hermitian", size=shape[dim], inverse=True, scale=1.0))
    return b.graph


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", [_products, _convolutions, _movement, _transforms])
def test_kernels_that_are_no_loop_nests_compile_for_every_target(make: object, name: str) -> None:
    kinds = {_movement: (dtypes.float32, dtypes.int32), _transforms: (dtypes.float32, dtypes.float64)}
    for d in kinds.get(make, (dtypes.float32, dtypes.bfloat16, dtypes.float64)):
        check(make(d), name)  # type: ignore[operator]


def test_the_checks_find_what_does_not_belong() -> None:
    v3, arm = Target.named("x86-64-v3"), Target.named("aarch64-linux")
    assert foreign(v3, "vaddps %zmm1, %zmm2, %zmm3") and foreign(v3, "vmovups %ymm17, (%rax)") and foreign(v3, "tdpbf16ps %tmm1, %tmm2, %tmm0")
    assert foreign(arm, "vaddps %ymm1, %ymm2, %ymm3") and foreign(arm, "bl llvm.x86.tilezero") and not foreign(arm, "fmla v0.4s, v1.4s, v2.4s")
    assert outside("\tcallq\tpowf@PLT\n\tcallq\tmine\nmine:\n") == {"powf"}
    graph = _products(dtypes.bfloat16)
    for name, there in (("sapphirerapids", True), ("znver4", False)):
        text = "\n".join(objects.assembly(compile_graph(graph, target=Target.named(name))).values())
        assert ("tdpbf16ps" in text) is there


def test_the_host_by_name_is_the_host() -> None:
    host = Target.host()
    assert Target.named("host", host.workers) == host and host.is_host and not any(target.is_host for target in NAMED.values())
    assert host.matrix_dtypes == tiles.dtypes()
    with pytest.raises(ValueError, match="no target 'pdp-11'; there are host, x86-64-v3"):
        Target.named("pdp-11")
    b = GraphBuilder()
    x = b.input((5, 70), dtypes.float32)
    b.output(b.op("exp", x))
    plan = compile_graph(b.graph)
    assert objects.texts(plan) == objects.texts(compile_graph(b.graph, target=host)) and len(objects.objects(plan)) == 1


def test_the_matrix_unit_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiles.dtypes.__wrapped__() == tiles.dtypes()
    monkeypatch.setenv("FLAMBEAU_MATRIX_UNIT", "0")
    monkeypatch.setattr(tiles, "dtypes", tiles.dtypes.__wrapped__)
    assert Target.host().matrix_dtypes == frozenset() and not any(atom.name.startswith("matrix") for atom in Target.host().atoms)
    assert not any("tdp" in text for text in objects.texts(compile_graph(_products(dtypes.bfloat16))).values())


def test_every_fact_of_a_target_is_in_its_key() -> None:
    target = NAMED["znver4"]
    others = [
        replace(target, **facts)
        for facts in (
            {"name": "x"}, {"triple": "x"}, {"cpu": "x"}, {"features": "x"}, {"vector_bits": 256}, {"caches": (1, 2, 3)},
            {"matrix": frozenset(("int8",))}, {"workers": 7}, {"fused": False}, {"costs": costs.Costs(stream_bytes=1)},
        )
    ]  # fmt: skip
    assert len({target.key(), *[other.key() for other in others]}) == 1 + len(others)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_costs_do_not_change_the_bits(graph: Graph) -> None:
    inputs, parameters = data(graph)
    expected = reference.run(graph, inputs, parameters)
    usual = run_plan(compile_graph(graph), inputs, parameters, expected)
    odd = costs.Costs(bytes_per_nanosecond=0.01, nanoseconds_per_weight=9.0, thread_nanoseconds=1.0, stream_bytes=64, operations_per_nanosecond=0.1)
    found = run_plan(compile_graph(graph, target=replace(Target.host(), costs=odd)), inputs, parameters, expected)
    assert_same_bits(found, usual, "other costs")


def test_stored_costs_are_those_of_their_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path))
    costs.calibrated.cache_clear()
    measured = costs.Costs(12.5, 90.0, 0.02, 5000.0, 1 << 22, (100.0, 50.0, 20.0), (("vector_float32", 120.5),), 900.0)
    try:
        assert costs.store("this", measured) == costs.file()
        assert costs.calibrated("this") == measured and costs.calibrated("that") == costs.DEFAULT
        costs.store("that", costs.Costs(stream_bytes=1 << 20))
        assert costs.calibrated("this") == measured and costs.calibrated("that").stream_bytes == 1 << 20
        monkeypatch.setenv("FLAMBEAU_COSTS", "0")
        costs.calibrated.cache_clear()
        assert costs.calibrated("this") == costs.DEFAULT
        monkeypatch.delenv("FLAMBEAU_COSTS")
        for damage in ("", "[]", '{"format": 1, "machines": {"this": {"stream_bytes": "many", "peaks": 3}}}', '{"format": 9}'):
            (tmp_path / "costs.json").write_text(damage)
            costs.calibrated.cache_clear()
            assert costs.calibrated("this") == costs.DEFAULT
    finally:
        costs.calibrated.cache_clear()


def test_calibration_does_not_count_the_time_that_others_have_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    from time import sleep

    from flambeau.cli import calibrate

    monkeypatch.setattr(calibrate, "_LEAST_SECONDS", 0.0)
    assert calibrate._seconds(lambda: sleep(0.05), 2) < 0.025
