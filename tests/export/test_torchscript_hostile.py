"""torch.jit.load of archives that are damaged, hostile or use what is not read: a clear error that names what was met, and nothing executed."""

from __future__ import annotations

import io
import pickle
import random
import zipfile
from typing import Any

import pytest

import flambeau

_CODE = """class M(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  n : int
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    {body}
    return {result}
"""
_DATA = b"\x80\x02c__torch__\nM\n)\x81}(X\x08\x00\x00\x00training\x89X\x01\x00\x00\x00nK\x03ub."


def archive(code: str = "", data: bytes = _DATA, constants: bytes = b"\x80\x02).", more: dict[str, Any] | None = None, **parts: str) -> io.BytesIO:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as z:
        z.writestr("a/data.pkl", data)
        z.writestr("a/code/__torch__.py", code or _CODE.format(**{"body": "pass", "result": "x", **parts}), zipfile.ZIP_DEFLATED)
        z.writestr("a/constants.pkl", constants)
        z.writestr("a/version", "3\n")
        for name, content in (more or {}).items():
            z.writestr(name, content, zipfile.ZIP_DEFLATED)
    stream.seek(0)
    return stream


def test_the_smallest_archive_runs() -> None:
    made = flambeau.jit.load(archive(body="y = torch.add(x, self.n)", result="torch.mul(y, 2)"))
    assert made(flambeau.ones(2)).tolist() == [8.0, 8.0] and not made.training and made.n == 3


@pytest.mark.parametrize(("parts", "named"), [
    ({"result": "torch.frobnicate(x)"}, r"torch\.frobnicate, which is no operator"), ({"result": "ops.evil.run(x)"}, r"ops\.evil\.run"),
    ({"result": "ops.prim.PythonOp(x)"}, r"ops\.prim\.PythonOp"), ({"result": '__import__("os")'}, "__import__"),
    ({"result": 'eval("1")'}, "calls a function that TorchScript does not have"), ({"result": "os.system"}, r"os\.system"),
    ({"result": 'getattr(x, "a" "b", 1)'}, "getattr"), ({"result": "(lambda: 1)()"}, "line 9"), ({"result": "[y for y in [x]]"}, "ListComp"),
    ({"body": "import os"}, "import os"), ({"body": "from os import system"}, "from os"), ({"body": "global x"}, "global x"),
    ({"body": "try: pass\n    finally: pass"}, "try"), ({"body": "x = y = 1"}, "x = y = 1"), ({"body": "x[0] = 1"}, r"x\[0\]"),
    ({"body": "for i in [1, 2]: pass"}, "a loop over"), ({"body": "raise x"}, "raise x"), ({"result": "99999999999999999999"}, "beyond 64 bits"),
    ({"result": "CONSTANTS.c7"}, r"CONSTANTS\.c7.*0 constants"), ({"result": "unknown"}, "'unknown' is a name that nothing before it makes"),
    ({"result": "__torch__.nothing(x)"}, r"__torch__\.nothing.*nothing that the archive defines"), ({"result": "(" * 300 + "x" + ")" * 300}, "no TorchScript"),
    ({"result": "x if x else x"}, "IfExp"), ({"result": "x @ x"}, "operator that"), ({"result": "f(*x)"}, "f"), ({"result": "torch.add(**x)"}, r"\*\*"),
    ({"result": "torch.nn.functional.relu(x)"}, r"torch\.nn\.functional\.relu"), ({"result": "9" * 5000}, "no TorchScript"),
    ({"result": "f'{x}'"}, "JoinedStr"), ({"result": "(yield)"}, "Yield"), ({"result": "ops.aten.frobnicate(x)"}, "frobnicate"),
])  # fmt: skip
def test_code_that_is_not_read(parts: dict[str, str], named: str) -> None:
    with pytest.raises(RuntimeError, match=rf"(?s)torch\.jit\.load.*{named}"):
        flambeau.jit.load(archive(**parts))


@pytest.mark.parametrize(("code", "named"), [
    ("import os\n", "import os"), ("x = 1\n", "x = 1"), ("class M(Module, metaclass=x):\n  pass\n", "bases"), ("class M(dict):\n  pass\n", "dict"),
    ("@evil\nclass M(Module):\n  pass\n", "bases"), ("class M(Module):\n  print(1)\n", "print"),
    ("class M(Module):\n  @evil\n  def f(self): return 1\n", "decor"),
    ("class M(Module):\n  __forward_hooks__ = ['h']\n", "hook 'h', which it has not"), ("class M(Module):\n  __parameters__ = 3\n", "no list of names"),
    ("def f(*args): return 1\n", "parameters or decorators"), ("class M(Module):\n\tdef\n", "no TorchScript"), ("\0", "no TorchScript"),
    ("class N(Module):\n  pass\n", r"the class __torch__\.M, which the archive's code does not define"),
    ("class M(Module):\n  training : bool\n", "attribute 'n', which the class does not declare"),
    ("class M(NamedTuple):\n  n : int\n", "NamedTuple|not allowed"),
])  # fmt: skip
def test_files_of_code_that_are_not_read(code: str, named: str) -> None:
    with pytest.raises((RuntimeError, pickle.UnpicklingError), match=named):
        flambeau.jit.load(archive(code))


@pytest.mark.parametrize(("body", "result", "named"), [
    ("pass", "x.__class__", "attribute '__class__' of a Tensor"), ("pass", "self._parameters", "attribute '_parameters'"),
    ("pass", "(x).numpy()", "method 'numpy' of a Tensor"), ("self.other = x", "x", "sets the attribute 'other'"),
    ("pass", "self.forward", "attribute 'forward'"),
    ("pass", 'getattr(self, "__dict__")', "attribute '__dict__'"), ("pass", '"{0.__class__}"[3]', ""), ("a, b, = [x]", "x", "Provided 1 values"),
    ("pass", "x[0]", "takes a part of a Tensor"), ("pass", "torch.conv2d(x)", r"no overload of torch\.conv2d takes \(Tensor\)"),
    ("pass", "torch.zeros([2], dtype=99)", "dtype number 99"), ("pass", 'torch.add(x, "a")', r"no overload of torch\.add takes \(Tensor, str\)"),
    ("y = y", "x", "'y' before it has a value"), ("with x:\n      pass", "x", "method '__exit__' of a Tensor"),
    ("pass", "torch.append(x, 1)", "append"), ("pass", 'torch.save(x, "/f")', "torch.save"),
])  # fmt: skip
def test_programs_that_reach_for_more(body: str, result: str, named: str) -> None:
    made = flambeau.jit.load(archive(body=body, result=result))
    if not named:
        assert made(flambeau.ones(2)) == "_"  # texts are only texts: nothing in braces is looked up
        return
    with pytest.raises((RuntimeError, NotImplementedError), match=named):
        made(flambeau.ones(2))


@pytest.mark.parametrize(("data", "named"), [
    (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", r"os\.system"), (b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.", "eval"),
    (b"\x80\x02c__torch__.torch.classes.quantized\nConv\n)\x81.", r"C\+\+ class"), (b"\x80\x02K\x01.", "holds a int"), (b"\x80\x02", "truncated"),
    (_DATA.replace(b"}(", b"](").replace(b"ub.", b"eb."), "state that is no dict"), (b"", "truncated"),
])  # fmt: skip
def test_pickles_that_are_refused(data: bytes, named: str) -> None:
    with pytest.raises((RuntimeError, pickle.UnpicklingError), match=named):
        flambeau.jit.load(archive(data=data))


def test_names_outside_and_what_would_grow() -> None:
    for name in ("a/code/../../evil.py", "a/code//x.py", "a/code/a-b.py"):
        with pytest.raises(RuntimeError, match="name that is no name of a module"):
            flambeau.jit.load(archive(more={name: "def f() -> int:\n  return 1\n"}))
    with pytest.raises(RuntimeError, match="read at most"):
        flambeau.jit.load(archive(more={"a/code/big.py": " " * (1 << 25)}))
    with pytest.raises(RuntimeError, match="compressed"):
        flambeau.jit.load(archive(more={"a/extra/x": "y"}))
    with pytest.raises(RuntimeError, match="lacks the record"):
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as z:
            z.writestr("a/data.pkl", _DATA)
            z.writestr("a/code/x.py", "")
        flambeau.jit.load(stream)


def test_damaged_files_end_in_an_error_or_load() -> None:
    whole = archive(body="y = torch.add(x, self.n)").getvalue()
    choose = random.Random(0)
    outcomes = 0
    for i in range(300):
        data = bytearray(whole)
        if i % 2:
            del data[choose.randrange(len(data)) :]
        else:
            for _ in range(choose.randrange(1, 6)):
                data[choose.randrange(len(data))] = choose.randrange(256)
        try:
            flambeau.jit.load(io.BytesIO(bytes(data)))
        except (RuntimeError, pickle.UnpicklingError, EOFError):
            outcomes += 1
    assert outcomes > 150


def test_a_pickle_of_a_module_and_a_part_of_one_are_refused() -> None:
    made = flambeau.jit.load(archive())
    with pytest.raises(pickle.PickleError, match=r"torch\.jit\.save"):
        pickle.dumps(made)
    with pytest.raises(RuntimeError, match=r"torch\.jit\.load reads"):
        flambeau.load(archive())
