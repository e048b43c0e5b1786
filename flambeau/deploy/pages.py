"""Pages that hold a WebAssembly model and all that it needs in one file, so that a browser opens them from the disk."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent.parent / "data" / "pages"


def page(name: str, files: dict[str, bytes], facts: dict[str, Any]) -> str:
    """The text of a page: `data/pages/NAME.html` with the module, the code and the weights of `files` in it; `facts` are there as the object FACTS."""
    module = files[f"{name}.mjs"].decode().replace("export class", "class").replace("export async", "async")
    held = {kind: base64.b64encode(files[f"{name}.{kind}"]).decode() for kind in ("wasm", "weights")}
    script = (
        f"const FACTS = {_safe(json.dumps(facts))};\n{module}\n"
        "const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));\n"
        f"const model = await load({{wasm: bytes('{held['wasm']}'), weights: bytes('{held['weights']}')}});\n"
        "globalThis.model = model;\n"  # for the browser's console
    )
    text = (_FOLDER / f"{name}.html").read_text()
    assert "/* MODEL */" in text
    return text.replace("/* MODEL */", script)


def _safe(text: str) -> str:
    """JSON that ends no script."""
    return text.replace("<", "\\u003c")
