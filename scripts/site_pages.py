"""The pages of the site: docs/ as it is, the changelog, and a reference page for each namespace from the docstrings (used by scripts/site)."""

from __future__ import annotations

import html
import importlib
import inspect
import re
import shutil
import sys
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import flambeau  # noqa: E402
from flambeau.module_names import is_ours  # noqa: E402
from flambeau.names import torch_names  # noqa: E402

# Where a namespace's page would be long, it is one page a letter.
SPACES = (
    "torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.utils", "torch.optim", "torch.optim.lr_scheduler",
    "torch.utils.data", "torch.linalg", "torch.fft", "torch.special", "torch.autograd", "torch.distributions", "torch.func",
)  # fmt: skip
MOST = 250  # names on a page
SECTIONS = ("Args", "Returns", "Raises", "Example")


def members(space: str) -> dict[str, Any]:
    """The documented functions and classes of a namespace."""
    place: Any = flambeau.Tensor if space == "torch.Tensor" else flambeau if space == "torch" else importlib.import_module("flambeau" + space[5:])
    found = {}
    for name in sorted(torch_names()[space]):
        value = inspect.getattr_static(place, name, None) if space == "torch.Tensor" else getattr(place, name, None)
        if isinstance(value, (FunctionType, type)) and value.__doc__ and is_ours(getattr(value, "__module__", "") or ""):
            found[name] = value
    return found


def signature(name: str, value: Any) -> str:
    """How it is called, without annotations: they are in the list of arguments."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return name
    shown = [p.replace(annotation=p.empty, default=p.empty if repr(p.default) == "<required>" else p.default) for p in parameters]
    try:
        return f"{name}{inspect.Signature(shown)}"
    except ValueError:  # a required one behind an optional one: told apart at the call
        return f"{name}({', '.join(p.name for p in parameters)})"


def escaped(text: str) -> str:
    """Text of a docstring as Markdown: only its `code` is special."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join([p if i % 2 else re.sub(r"([\\*_\[\]#|])", r"\\\1", html.escape(p, quote=False)) for i, p in enumerate(parts)])


def section(title: str, body: str) -> list[str]:
    """A section of a docstring: arguments and errors as a list, the example as code."""
    lines = inspect.cleandoc(f"\n{body}").split("\n")
    if title == "Example":
        return ["", "```pycon", *lines, "```", ""]
    if title == "Returns":
        return ["", f"**Returns** {escaped(' '.join(lines))}", ""]
    out = ["", f"**{'Arguments' if title == 'Args' else 'Errors'}**", ""]
    for line in lines:
        head, _, rest = line.partition(": ")
        name, _, kind = head.partition(" (")
        out.append(f"- `{name.rstrip(':')}`" + (f" ({escaped(kind[:-1])})" if kind else "") + (f": {escaped(rest)}" if rest else ""))
    return [*out, ""]


def entry(space: str, name: str, value: Any) -> list[str]:
    """One name: signature, words, sections."""
    text = inspect.cleandoc(value.__doc__)
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):\n", text, flags=re.M)
    lines = [f"## {space}.{name}", "", "```python", signature(f"{space}.{name}", value), "```", ""]
    for paragraph in pieces[0].strip().split("\n\n"):
        code = any(line.startswith(("    ", ">>>")) for line in paragraph.split("\n"))
        lines += ["```text", *paragraph.split("\n"), "```", ""] if code else [escaped(paragraph), ""]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        lines += section(title, body.rstrip())
    return lines


def pages(target: Path) -> list[tuple[str, str]]:
    """Write the reference; (title, file) of each page, for the navigation."""
    folder = target / "reference"
    folder.mkdir()
    listed = []
    for space in SPACES:
        found = members(space)
        groups: dict[str, dict[str, Any]] = {}
        for name, value in found.items():
            letter = name.lstrip("_")[0].lower() if len(found) > MOST else ""
            groups.setdefault(letter, {})[name] = value
        for letter, names in sorted(groups.items()):
            title = f"{space}, {letter.upper()}" if letter else space
            file = f"reference/{space}{f'-{letter}' if letter else ''}.md"
            lines = [f"# {title}", "", "In the examples `torch` is flambeau: `import flambeau as torch`.", ""]
            for name, value in names.items():
                lines += entry(space, name, value)
            (target / file).write_text("\n".join(lines))
            listed.append((title, file))
    return listed


def main() -> None:
    """All pages, and mkdocs.yml with the reference in its navigation."""
    target = ROOT / "build" / "site-pages"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", target)
    changelog = (ROOT / "CHANGELOG.md").read_text()
    (target / "changelog.md").write_text(changelog.replace("](docs/", "]("))
    listed = pages(target)
    nav = "".join(f"\n      - {title!r}: {file}" for title, file in listed)
    text = (ROOT / "mkdocs.yml").read_text().replace("Reference: REFERENCE", f"Reference:{nav}")
    text = text.replace("docs_dir: build/site-pages", "docs_dir: site-pages").replace("site_dir: build/site", "site_dir: site")
    (ROOT / "build" / "mkdocs.yml").write_text(text)
    print(f"{len(listed)} pages of reference, {len(list(target.glob('*.md')))} others")


if __name__ == "__main__":
    main()
