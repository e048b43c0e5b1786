"""torch.export: which sizes a program holds for, and what is refused, with errors that name the input and the dim; files that are no programs."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest
import torch as oracle

import flambeau as torch
from flambeau.export import Dim, export, load, save


def _module(package: Any, function: Any) -> Any:
    class Program(package.nn.Module):
        def forward(self, x: Any, y: Any = None) -> Any:
            return function(package, x, y)

    return Program()


PROGRAMS = {
    "reads the size": (lambda t, x, y: x * 2 if x.shape[0] == 5 else x * 3, "x"),
    "compares the size": (lambda t, x, y: x * 2 if x.shape[0] < 10 else x * 3, "x"),
    "adds a constant": (lambda t, x, y: x.T + t.ones(5), "x"),
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_a_size_that_is_asked_for_is_an_error_as_in_pytorch(name: str) -> None:
    function, _ = PROGRAMS[name]
    theirs: Any = None
    for package in (oracle, torch):
        with pytest.raises(Exception, match=r"Constraints violated \(b\)") as caught:
            package.export.export(_module(package, function), (package.ones(5, 3),), dynamic_shapes={"x": {0: package.export.Dim("b", min=2)}})
        theirs = theirs or caught
        assert type(caught.value).__name__ == type(theirs.value).__name__ == "UserError"
    assert "x.size()[0]" in str(caught.value)


def test_auto_dims_are_static_where_the_program_asks() -> None:
    function = PROGRAMS["adds a constant"][0]
    program = export(_module(torch, function), (torch.ones(5, 3),), dynamic_shapes={"x": {0: Dim.AUTO, 1: Dim.AUTO}})
    module = program.module()
    assert module(torch.ones(5, 7)).shape == (7, 5)
    with pytest.raises(AssertionError, match=r"x.size\(\)\[0\] == 5: it is 6"):
        module(torch.ones(6, 3))
    with pytest.raises(torch.export.errors.UserError, match=r"x.size\(\)\[0\] as dynamic but your code specialized it to be a constant \(5\)"):
        export(_module(torch, function), (torch.ones(5, 3),), dynamic_shapes={"x": {0: Dim.DYNAMIC}})


def test_auto_dims_that_are_added_are_one() -> None:
    program = export(_module(torch, lambda t, x, y: x + y), (torch.ones(4), torch.ones(4)), dynamic_shapes={"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}})
    assert len(program.range_constraints) == 1
    assert program.module()(torch.ones(7), torch.ones(7)).tolist() == [2.0] * 7
    with pytest.raises(AssertionError, match=r"y.size\(\)\[0\] == 7: it is 6"):
        program.module()(torch.ones(7), torch.ones(6))
    with pytest.raises(torch.export.errors.UserError, match="must always be equal"):
        a, b = torch.export.dims("a", "b")
        export(_module(torch, lambda t, x, y: x + y), (torch.ones(4), torch.ones(4)), dynamic_shapes={"x": {0: a}, "y": {0: b}})


@pytest.mark.parametrize("example", [5, 64, 1009])
def test_a_constant_that_equals_the_example_is_no_constraint(example: int) -> None:
    """A batch of 5 and 5 classes: which of two equal numbers a size is depends on where it comes from."""
    layer = torch.nn.Sequential(torch.nn.Linear(example, example), torch.nn.LayerNorm(example), torch.nn.Softmax(-1))
    program = export(layer, (torch.ones(example, example),), dynamic_shapes=({0: Dim("b", min=2)},))
    assert program.module()(torch.ones(3, example)).shape == (3, example)


def test_ranges_are_held() -> None:
    b = Dim("b", min=2, max=8)
    program = export(_module(torch, lambda t, x, y: x + 1), (torch.ones(4, 3),), dynamic_shapes={"x": {0: b}})
    assert str(program.range_constraints) == "{'s0': VR[2, 8]}"
    with pytest.raises(AssertionError, match=r"x.size\(\)\[0\] <= 8: it is 9"):
        program.module()(torch.ones(9, 3))
    with pytest.raises(AssertionError, match=r"x.size\(\)\[1\] == 3: it is 2"):
        program.module()(torch.ones(4, 2))
    with pytest.raises(ValueError, match="input tree spec"):
        program.module()([torch.ones(4, 3)])


@pytest.mark.parametrize("call", ["item", "tolist", "nonzero", "if", "float"])
def test_values_are_refused_with_the_call(call: str) -> None:
    def function(t: Any, x: Any, y: Any) -> Any:
        if call == "if":
            return x if x.sum() > 0 else -x
        return float(x.sum()) if call == "float" else getattr(x, call)()

    with pytest.raises(torch.export.errors.GuardOnDataDependentSymNode, match="result depends on values"):
        export(_module(torch, function), (torch.ones(1),))


def test_wrong_calls_name_what_is_wrong() -> None:
    module = _module(torch, lambda t, x, y: x)
    x = torch.ones(4, 3)
    for dynamic, words in (
        ({"z": {0: Dim.AUTO}}, "top-level keys must be the arg names"), ({"x": {5: Dim.AUTO}}, "has 2 dims"), ({"x": {0: "b"}}, "dimension 0 of the input x"),
        ({"x": {0: 7}}, "does not match input size"), (({0: Dim.AUTO}, None), "Expected dynamic_shapes for 1 inputs"),
    ):  # fmt: skip
        with pytest.raises(torch.export.errors.UserError, match=words):
            export(module, (x,), dynamic_shapes=dynamic)
    with pytest.raises(torch.export.errors.UserError, match="to be a tuple"):
        export(module, x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Expected `mod` to be an instance"):
        export(lambda x: x, (x,))


def _saved() -> bytes:
    file = io.BytesIO()
    save(export(torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({0: Dim("b")},)), file)
    return file.getvalue()


def _changed(change: Any) -> io.BytesIO:
    """The file with one record changed: `change(name, data) -> data`, None leaves it out."""
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(_saved())) as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = change(name.partition("/")[2], old.read(name))
            if data is not None:
                new.writestr(name, data)
    made.seek(0)
    return made


def _in_program(change: Any) -> Any:
    def apply(name: str, data: bytes) -> bytes:
        if name != "models/model.json":
            return data
        document = json.loads(data)
        change(document)
        return json.dumps(document).encode()

    return apply


HOSTILE = {
    "another version": _in_program(lambda d: d["schema_version"].update(major=9)),
    "a function": _in_program(lambda d: d["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.os.system.default")),
    "a name of Python": _in_program(lambda d: d["graph_module"]["graph"]["nodes"][0].update(target="_operator.attrgetter")),
    "an attribute": _in_program(lambda d: d["graph_module"]["graph"]["nodes"][0].update(target="torch.ops.aten.__class__.__init__")),
    "code for a size": _in_program(
        lambda d: d["graph_module"]["graph"]["tensor_values"]["linear"]["sizes"][0]["as_expr"].update(expr_str="__import__('os').system('true')")),
    "a value that nothing makes": _in_program(lambda d: d["graph_module"]["graph"]["outputs"][0]["as_tensor"].update(name="other")),
    "no nodes": _in_program(lambda d: d["graph_module"].pop("graph")),
    "no program": lambda name, data: None if name == "models/model.json" else data,
    "no weights": lambda name, data: None if name == "data/weights/weight_0" else data,
    "short weights": lambda name, data: data[:8] if name == "data/weights/weight_0" else data,
    "a pickle": lambda name, data: data.replace(b'"use_pickle": false', b'"use_pickle": true') if name.endswith("weights_config.json") else data,
    "a path": lambda name, data: data.replace(b"weight_0", b"../../w") if name.endswith("weights_config.json") else data,
    "no text": lambda name, data: b"\x00\xff" if name == "models/model.json" else data,
}  # fmt: skip


@pytest.mark.parametrize("name", list(HOSTILE))
def test_files_that_are_no_programs_are_refused(name: str) -> None:
    with pytest.raises((RuntimeError, ValueError, NotImplementedError)):
        load(_changed(HOSTILE[name]))


def test_a_file_that_is_cut_off_or_not_changed() -> None:
    whole = _saved()
    load(io.BytesIO(whole))
    load(_changed(lambda name, data: data))
    for length in (0, 10, len(whole) // 2, len(whole) - 30):
        with pytest.raises(RuntimeError, match=r"no \.pt2 file"):
            load(io.BytesIO(whole[:length]))


def test_a_path_is_written_whole(tmp_path: Any) -> None:
    path = tmp_path / "model.pt2"
    program = export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    save(program, path, extra_files={"notes.txt": "hello"})
    extra = {"notes.txt": ""}
    again = load(path, extra_files=extra)
    assert extra == {"notes.txt": "hello"}
    assert str(again.graph_signature) == str(program.graph_signature)
    assert [p.name for p in tmp_path.iterdir()] == ["model.pt2"]
    before = path.read_bytes()
    program.state_dict["weight"] = object()
    with pytest.raises(AttributeError):
        save(program, path)
    assert path.read_bytes() == before


def test_shared_weights_are_saved_once_and_stay_shared() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    file = io.BytesIO()
    save(export(module, (torch.ones(4, 3),)), file)
    with zipfile.ZipFile(io.BytesIO(file.getvalue())) as archive:
        assert len([n for n in archive.namelist() if "/weights/weight_" in n]) == 1
    again = load(io.BytesIO(file.getvalue()))
    a, b = again.state_dict["0.weight"], again.state_dict["1.weight"]
    assert a.data_ptr() == b.data_ptr()


def test_a_program_knows_that_it_is_exported() -> None:
    """Models branch on it where values would have to be known (transformers' masks)."""
    seen = []

    def function(t: Any, x: Any, y: Any) -> Any:
        seen.append((t.compiler.is_compiling(), t.compiler.is_exporting()))
        return x + 1 if t.compiler.is_exporting() or (x > 0).all() else x

    for package in (oracle, torch):
        program = package.export.export(_module(package, function), (package.ones(2, 3),))
        assert program.module()(package.zeros(2, 3)).tolist() == [[1.0] * 3] * 2 and set(seen) == {(True, True)}
        assert not package.compiler.is_exporting() and not package.compiler.is_compiling()
        seen.clear()


def test_programs_with_type_as_are_read(tmp_path: Any) -> None:
    """aten.to.dtype_layout, which transformers' decoders have in PyTorch's programs."""
    program = oracle.export.export(_module(oracle, lambda t, x, y: t.ops.aten.to.dtype_layout(x, dtype=t.float64, layout=t.strided) * 2), (oracle.ones(2),))
    assert "dtype_layout" in str(program.graph)
    oracle.export.save(program, str(tmp_path / "a.pt2"))
    found = torch.export.load(tmp_path / "a.pt2").module()(torch.ones(2))
    assert found.dtype is torch.float64 and found.tolist() == [2.0, 2.0]
