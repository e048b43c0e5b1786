"""torch.hub: models from a folder or a GitHub repository with a `hubconf.py`, and checkpoints from URLs, in a cache folder.

The folder is $TORCH_HOME/hub, $XDG_CACHE_HOME/torch/hub or ~/.cache/torch/hub. Code of a repository is executed: from GitHub only
where `trust_repo` says so, or it is asked for.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from flambeau.runtime import whole_files
from flambeau.trace.once import warn_here

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # resnet18-bfd8deac.pth: the first characters of the file's SHA-256
READ_DATA_CHUNK = 128 * 1024
MODULE_HUBCONF = "hubconf.py"
VAR_DEPENDENCY = "dependencies"
ENV_TORCH_HOME = "TORCH_HOME"
ENV_XDG_CACHE_HOME = "XDG_CACHE_HOME"
ENV_GITHUB_TOKEN = "GITHUB_TOKEN"
DEFAULT_CACHE_DIR = "~/.cache"
_TRUSTED_REPO_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")
_hub_dir: str | None = None

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]


def _get_torch_home() -> str:
    """The folder under which the hub's is."""
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.getenv(ENV_TORCH_HOME, os.path.join(cache, "torch")))


def get_dir() -> str:
    """The cache folder."""
    if os.getenv("TORCH_HUB"):
        warn_here("TORCH_HUB is deprecated, please use env TORCH_HOME instead")
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use another cache folder."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# -- downloads ---------------------------------------------------------------------------------------------------------
def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Write what a URL gives to the file `dst`, which appears only when it is whole.

    RuntimeError unless its SHA-256 starts with `hash_prefix`; with `progress`, a bar on stderr.
    """
    dst = os.path.expanduser(dst)
    request = Request(url, headers={"User-Agent": "torch.hub"})
    with urlopen(request) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdigit() else None
        digest = hashlib.sha256()
        with whole_files.replacing(dst) as file:
            with _bar(total, progress) as advance:
                while chunk := response.read(READ_DATA_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    advance(len(chunk))
            found = digest.hexdigest()
            if hash_prefix is not None and not found.startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')


class _NoBar:
    """What stands for tqdm's bar where tqdm is not installed: nothing is shown."""

    def __init__(self, iterable: Any = (), *args: Any, **kwargs: Any) -> None:
        self._iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iterable)

    def __enter__(self) -> _NoBar:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def update(self, n: int = 1) -> None:
        """Nothing is shown."""

    def close(self) -> None:
        """Nothing is shown."""


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # packages take it from here
        try:
            from tqdm import tqdm
        except ImportError:
            return _NoBar
        return tqdm
    from flambeau.names import otherwise

    return otherwise("torch.hub", name, globals())


@contextlib.contextmanager
def _bar(total: int | None, progress: bool) -> Iterator[Any]:
    """A progress bar, where tqdm is installed and it is wanted."""
    if progress:
        try:
            from tqdm import tqdm as shown
        except ImportError:
            progress = False
    if not progress:
        yield lambda n: None
        return
    with shown(total=total, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield bar.update


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
    file_name: str | None = None, weights_only: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The checkpoint at a URL, kept in `model_dir` (the cache folder's "checkpoints" by default).

    A zip archive of one file is opened. `check_hash`: the file's name ends in the start of its SHA-256. Nothing in it is executed,
    whatever `weights_only` says: checkpoints are read by flambeau's own reader.
    """
    import flambeau

    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(folder, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, match[1] if match else None, progress=progress)
    if _is_plain_zip(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != 1:
                raise RuntimeError("Only one file(not dir) is allowed in the zipfile")
            archive.extractall(folder)
            path = os.path.join(folder, members[0].filename)
    return flambeau.load(path, map_location=map_location, weights_only=True)  # type: ignore[no-any-return]


def _is_plain_zip(path: str) -> bool:
    """Whether a file is a zip archive that is not itself a checkpoint."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not any(name.endswith("data.pkl") for name in archive.namelist())


# -- repositories ------------------------------------------------------------------------------------------------------
def _parse(github: str) -> tuple[str, str, str | None]:
    """ "owner/name[:ref]" in parts."""
    repo, _, ref = github.partition(":")
    owner, slash, name = repo.partition("/")
    if not slash or not owner or not name:
        raise ValueError(f"torch.hub: a repository is 'owner/name[:branch or tag]', got {github!r}")
    return owner, name, ref or None


def _default_branch(owner: str, name: str) -> str:
    for ref in ("main", "master"):
        try:
            with urlopen(Request(f"https://github.com/{owner}/{name}/tree/{ref}/", headers=_headers())):
                return ref
        except HTTPError as error:
            if error.code != 404:
                raise
    return "master"


def _headers() -> dict[str, str]:
    token = os.environ.get(ENV_GITHUB_TOKEN)
    return {"Accept": "application/vnd.github.v3+json", **({"Authorization": f"token {token}"} if token else {})}


def _repository(github: str, force_reload: bool, trust_repo: Any, calling_fn: str, verbose: bool) -> str:
    """The folder of a repository in the cache, fetched if it is not there."""
    hub = get_dir()
    os.makedirs(hub, exist_ok=True)
    owner, name, ref = _parse(github)
    if ref is None:
        existing = [r for r in ("main", "master") if os.path.exists(os.path.join(hub, f"{owner}_{name}_{r}"))]
        try:
            ref = existing[0] if existing and not force_reload else _default_branch(owner, name)
        except URLError as error:
            raise RuntimeError(f"torch.hub: it is not known which branch of {owner}/{name} to use, and the internet could not be reached ({error})") from None
    path = os.path.join(hub, f"{owner}_{name}_{ref.replace('/', '_')}")
    _check_trusted(owner, name, path, trust_repo, calling_fn)
    if force_reload and os.path.exists(path):
        shutil.rmtree(path)
    if os.path.exists(path):
        if verbose:
            sys.stderr.write(f"Using cache found in {path}\n")
        return path
    url = f"https://github.com/{owner}/{name}/zipball/{ref}"
    with tempfile.TemporaryDirectory(dir=hub) as folder:
        archive_path = os.path.join(folder, "archive.zip")
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        download_url_to_file(url, archive_path, progress=False)
        with zipfile.ZipFile(archive_path) as archive:
            top = archive.infolist()[0].filename
            archive.extractall(folder)
        shutil.move(os.path.join(folder, top), path)
    return path


def _check_trusted(owner: str, name: str, path: str, trust_repo: Any, calling_fn: str) -> None:
    """Ask, warn or refuse, as `trust_repo` says, before code of a repository is executed."""
    record = Path(get_dir()) / "trusted_list"
    full = f"{owner}_{name}"
    trusted = record.read_text().splitlines() if record.exists() else []
    known = full in trusted or owner in _TRUSTED_REPO_OWNERS or (trust_repo is not True and trust_repo is not False and os.path.exists(path))
    if trust_repo is None and not known:
        trust_repo = "check"
    if trust_repo is False or (trust_repo == "check" and not known):
        answer = input(
            f"The repository {owner}/{name} does not belong to the list of trusted repositories and as such cannot be downloaded. "
            "Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
        )
        if answer.lower() not in ("y", "yes"):
            raise Exception("Untrusted repository." if answer.lower() in ("", "n", "no") else f"Unrecognized response {answer}.")
        trust_repo = True
    if trust_repo is True and full not in trusted:
        record.parent.mkdir(parents=True, exist_ok=True)
        with record.open("a") as file:
            file.write(full + "\n")


@contextlib.contextmanager
def _on_path(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)


def _hubconf(folder: str) -> Any:
    """The repository's hubconf, executed; RuntimeError if what it depends on is not installed."""
    path = os.path.join(folder, MODULE_HUBCONF)
    if not os.path.exists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    spec = importlib.util.spec_from_file_location(MODULE_HUBCONF, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    wanted = getattr(module, VAR_DEPENDENCY, None) or ()
    lacking = [name for name in wanted if name != "torch" and importlib.util.find_spec(name) is None]
    if lacking:
        raise RuntimeError(f"Missing dependencies: {', '.join(lacking)}")
    return module


def _entry(module: Any, name: str) -> Any:
    found = getattr(module, name, None)
    if not isinstance(name, str):
        raise ValueError("Invalid input: model should be a string of function name")
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {name} in hubconf")
    return found


def _folder(repo: str, source: str, force_reload: bool, trust_repo: Any, calling_fn: str, verbose: bool) -> str:
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        return os.path.expanduser(repo)
    return _repository(repo, force_reload, trust_repo, calling_fn, verbose)


def _with_torch() -> None:
    """A hubconf says `import torch`: where PyTorch is not imported, that is flambeau."""
    if "torch" not in sys.modules:
        from flambeau.as_torch import install

        install()


def load(
    repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check", force_reload: bool = False, verbose: bool = True,
    skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """What the function `model` of a hubconf.py returns for the other arguments.

    `repo_or_dir`: "owner/name[:ref]", or a folder with source="local". Code of the repository is executed.
    """
    folder = _folder(repo_or_dir, source, force_reload, trust_repo, "load", verbose)
    _with_torch()
    with _on_path(folder):
        return _entry(_hubconf(folder), model)(*args, **kwargs)


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check") -> str | None:
    """The docstring of a function of a GitHub repository's hubconf.py."""
    folder = _folder(github, "github", force_reload, trust_repo, "help", True)
    _with_torch()
    with _on_path(folder):
        return _entry(_hubconf(folder), model).__doc__  # type: ignore[no-any-return]


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check", verbose: bool = True) -> Any:
    """The names of the functions of a GitHub repository's hubconf.py."""
    folder = _folder(github, "github", force_reload, trust_repo, "list", verbose)
    _with_torch()
    with _on_path(folder):
        module = _hubconf(folder)
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]
