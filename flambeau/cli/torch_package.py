"""`flambeau torch install | remove | status | wheel`: the present environment's `import torch` gives flambeau.

What is written is two small modules (torch, functorch) and a `dist-info` with a RECORD, so that Python, pip and programs find torch as they find any package;
what the module does is in as_torch.py.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.machinery
import importlib.metadata
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

from flambeau import as_torch

MODULE = '''"""torch is flambeau in this environment (written by `flambeau torch install`; `flambeau torch remove` takes it away)."""

from flambeau.as_torch import install

install(children=False)
'''

FUNCTORCH = '''"""functorch is flambeau's in this environment (written by `flambeau torch install`; `flambeau torch remove` takes it away)."""

import importlib
import sys

from flambeau.as_torch import install

install(children=False)
sys.modules[__name__] = importlib.import_module("flambeau.functorch")
'''
_PACKAGES = {"torch": MODULE, "functorch": FUNCTORCH}  # as PyTorch's distribution has them

# PyTorch's command. It belongs to torch, not to flambeau: beside an installed PyTorch one would replace the other.
_COMMAND = "torchrun = torch.distributed.run:command"


class Refused(Exception):
    """Why the environment is left as it is, and what to do."""


def _name() -> str:
    return f"torch-{as_torch.version()}.dist-info"


def _hashed(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


# Folders of flambeau's that torch has no name for.
_INNER = frozenset("cli compiler data io ops runtime testing trace".split())


def stubs() -> dict[str, str]:
    """What type checkers read of torch, by paths below site-packages: each module has the names of flambeau's. They do not run what MODULE does."""
    package = Path(as_torch.__file__).parent
    found = {"torch/py.typed": ""}
    for path in sorted(package.rglob("*.py")):
        inside = path.relative_to(package)
        if inside.parts[0] in _INNER or path.stem == "__main__":
            continue
        parts = inside.parent.parts if path.stem == "__init__" else (*inside.parent.parts, path.stem)
        target = inside.parent / f"{path.stem}.pyi"
        if path.stem != "__init__" and (path.parent / path.stem).is_dir():
            continue  # a folder of the same name is what is imported
        found[f"torch/{target.as_posix()}"] = f"from {'.'.join(('flambeau', *parts))} import *\n"
    return found


def _script() -> tuple[str, bytes]:
    """The command torchrun, which pip makes of a wheel's entry points: its path from site-packages, and its text."""
    name, target = _COMMAND.split(" = ")
    module, _, function = target.partition(":")
    text = f'#!{sys.executable}\nimport sys\n\nfrom {module} import {function}\n\nif __name__ == "__main__":\n    sys.exit({function}())\n'
    return os.path.relpath(_commands() / name, _site()), text.encode()


def _files(requires: list[str], more: dict[str, str], scripts: dict[str, bytes]) -> dict[str, bytes]:
    """The files by their paths below site-packages, RECORD the last of them."""
    more = {"entry_points.txt": f"[console_scripts]\n{_COMMAND}\n", **more}
    texts = {
        **{f"{name}/__init__.py": text for name, text in _PACKAGES.items()},
        **stubs(),
        **{f"{_name()}/{name}": text for name, text in (as_torch.metadata(requires) | more).items()},
    }
    files = {path: text.encode() for path, text in texts.items()} | scripts
    record = "".join(f"{path},{_hashed(data)},{len(data)}\n" for path, data in files.items())
    return files | {f"{_name()}/RECORD": f"{record}{_name()}/RECORD,,\n".encode()}


def _distribution(path: list[str]) -> importlib.metadata.Distribution | None:
    return next(iter(importlib.metadata.distributions(name="torch", path=path)), None)


def _is_ours(file: Path) -> bool:
    firsts = tuple([text.partition(" (")[0] for text in _PACKAGES.values()])  # of any version
    return file.is_file() and file.read_text(errors="replace").startswith(firsts)


def _is_ours_by_version(found: importlib.metadata.Distribution) -> bool:
    return "+flambeau" in (found.version or "+flambeau")  # a folder without METADATA is what an installation that was cut off has left


def _check(site: Path) -> None:
    """Raise Refused where another torch is, in this environment or on the path before it."""
    spec = importlib.machinery.PathFinder.find_spec("torch", [str(site), *sys.path])
    found = _distribution([str(site), *sys.path])
    place = None
    if spec is not None and not (spec.origin is not None and _is_ours(Path(spec.origin))):
        place = spec.origin or next(iter(spec.submodule_search_locations or ()), "?")
    elif found is not None and not _is_ours_by_version(found):
        place = str(found.locate_file(""))
    if place is not None:
        what = f"PyTorch {found.version}" if found is not None and not _is_ours_by_version(found) else "another torch"
        raise Refused(
            f"{what} is installed here ({place}). Both cannot be `import torch`: take it away (`{sys.executable} -m pip uninstall torch`), "
            "or install flambeau in an environment of its own (`python -m venv DIR`), or run one program by `flambeau run script.py`, "
            "which needs no installation."
        )


def _site() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _commands() -> Path:
    return Path(sysconfig.get_path("scripts"))


def _requirement() -> list[str]:
    """flambeau itself, if pip knows of it; not of one that runs from its source by PYTHONPATH."""
    try:
        return [f"flambeau=={importlib.metadata.version('flambeau')}"]
    except importlib.metadata.PackageNotFoundError:
        return []


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:3])


def missing(path: list[str]) -> list[str]:
    """What PyTorch requires and is not on the path, or too old: `pip check` names it, and pip brings it with the next package that requires torch."""
    found = []
    for text in as_torch.REQUIRES:
        name, _, least = text.partition(">=")
        there = next(iter(importlib.metadata.distributions(name=name, path=path)), None)
        if there is None or _release(there.version) < _release(least):
            found.append(text)
    return found


def _advice(site: Path) -> str:
    absent = missing([str(site), *sys.path])
    if not absent:
        return ""
    command = f"{sys.executable} -m pip install {' '.join(repr(text) if '>' in text else text for text in absent)}"
    return f"\nPackages written for PyTorch may expect what it requires and flambeau does not; pip brings it with the next of them, or now: {command}"


def install() -> str:
    """Write the module and its dist-info, whole or not at all; what was done, in words. Refused where another torch is."""
    site = _site()
    _check(site)
    found = _distribution([str(site)])
    command, text = _script()
    files = _files(_requirement(), {"INSTALLER": "flambeau\n"}, {command: text})
    if found is not None and all((site / path).is_file() and (site / path).read_bytes() == data for path, data in files.items()):
        return f"`import torch` gives flambeau already: torch {found.version} in {site}{_advice(site)}"
    remove()  # another version, or what is left of an installation that was cut off
    try:
        made = Path(tempfile.mkdtemp(prefix="~torch-", dir=site))
    except OSError as error:
        raise Refused(f"{site} cannot be written to ({error.strerror}); use an environment of your own: python -m venv DIR") from None
    moved: list[Path] = []
    try:
        for path, data in files.items():
            if path != command:
                (made / path).parent.mkdir(parents=True, exist_ok=True)
                (made / path).write_bytes(data)
        for name in (*_PACKAGES, _name()):  # the distribution comes last: pip sees it when all is there
            os.rename(made / name, site / name)
            moved.append(site / name)
        (site / command).parent.mkdir(parents=True, exist_ok=True)
        (site / command).write_bytes(text)
        (site / command).chmod(0o755)
    except BaseException:
        for folder in moved:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return f"`import torch` gives flambeau now: torch {as_torch.version()} in {site}{_advice(site)}"


def remove() -> str:
    """Take away what `install` has written, and nothing else; what was done, in words."""
    site = _site()
    gone = [folder for folder in site.glob("torch-*+flambeau*.dist-info") if folder.is_dir()]
    gone += [site / name for name in _PACKAGES if _is_ours(site / name / "__init__.py")]
    command, text = _script()
    if gone and (site / command).is_file() and (site / command).read_bytes() == text:
        (site / command).unlink()
    for folder in gone:
        shutil.rmtree(folder)
    return f"removed torch from {site}" if gone else f"nothing to remove: there is no torch of flambeau's in {site}"


def status() -> tuple[str, bool]:
    """What `import torch` gives in this environment, in words, and whether it is flambeau."""
    spec = importlib.machinery.PathFinder.find_spec("torch", [str(_site()), *sys.path])
    found = _distribution([str(_site()), *sys.path])
    if spec is None:
        return "there is no torch in this environment; `flambeau torch install` makes `import torch` give flambeau", False
    if spec.origin is not None and _is_ours(Path(spec.origin)):
        if found is None or found.version != as_torch.version():
            known = "no version" if found is None else f"the version {found.version}"
            return f"`import torch` gives flambeau {as_torch.version()}, but pip knows {known}: `flambeau torch install` mends it", False
        return f"`import torch` gives flambeau: torch {found.version} in {Path(spec.origin).parent.parent}", True
    return f"`import torch` gives PyTorch{'' if found is None else ' ' + found.version}: {spec.origin or 'a folder without a module'}", False


def wheel(folder: Path) -> Path:
    """The same as a wheel for pip, which requires this version of flambeau."""
    ours = as_torch.version().rpartition("flambeau")[2]
    tag = {"WHEEL": "Wheel-Version: 1.0\nGenerator: flambeau\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"torch-{as_torch.version()}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in _files([f"flambeau=={ours}"], tag, {}).items():
            archive.writestr(path, data)
    return target


def main(action: str, out: str) -> int:
    """The command; returns the exit status."""
    try:
        if action == "install":
            print(install())
        elif action == "remove":
            print(remove())
        elif action == "wheel":
            print(wheel(Path(out)))
        else:
            text, ours = status()
            print(text)
            return 0 if ours else 1
    except Refused as error:
        print(f"flambeau torch {action}: {error}", file=sys.stderr)
        return 2
    return 0
