"""From a checkpoint to a program: which network a file of weights belongs to, and what the program's inputs look like.

A checkpoint is what `torch.save` has written of a `state_dict`: alone, or in a dict under "model", "state_dict" or "model_state_dict", perhaps with the
network's name under "network" and what it is made with under "arguments". Nothing in it is executed. The network is one of NETWORKS, or a class, or a
function that makes a module, of a Python file that the user names.
"""

from __future__ import annotations

import importlib
import inspect
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import flambeau as torch
from flambeau import as_torch
from flambeau.cli.demo import DigitNet, MnistNet
from flambeau.cli.demo_gpt import GPT
from flambeau.export import Dim, ExportedProgram, export, load, save
from flambeau.export.archive import VOCABULARY, extra_file
from flambeau.nn.modules.utils import consume_prefix_in_state_dict_if_present

_HOLDERS: Final = ("model", "state_dict", "model_state_dict")
_SHOWN: Final = 4  # names of an error
_LARGEST: Final = 1024  # of a dynamic size whose range nobody has said


@dataclass(frozen=True)
class Input:
    """An input of a network: its sizes, of which those with a name are dynamic. Integers are `below` this, in examples."""

    name: str
    sizes: tuple[int | str, ...]
    dtype: Any = torch.float32
    below: int = 1


@dataclass(frozen=True)
class Form:
    """What a network takes: its inputs, and the least and the greatest of each dynamic size."""

    inputs: tuple[Input, ...]
    ranges: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Known:
    """A network that commands know by name: how it is made, and what it takes."""

    make: Callable[..., Any]
    form: Callable[[Any], Form]


def _images(size: int) -> Callable[[Any], Form]:
    return lambda model: Form((Input("x", ("batch", 1, size, size)),), {"batch": (1, 256)})


def _letters(model: Any) -> Form:
    vocabulary, context = model.tokens.num_embeddings, model.positions.num_embeddings
    return Form((Input("tokens", ("batch", "length"), torch.int64, vocabulary),), {"batch": (1, 16), "length": (1, context)})


NETWORKS: Final[Mapping[str, Known]] = {
    "digits": Known(DigitNet, _images(8)),
    "mnist": Known(MnistNet, _images(28)),
    "gpt": Known(GPT, _letters),
}


@dataclass
class Trained:
    """A network with its weights, and what it takes; of a `.pt2` file only the program is known."""

    name: str
    model: Any
    form: Form
    facts: dict[str, Any] = field(default_factory=dict)
    program: ExportedProgram | None = None

    def exported(self, ranges: Mapping[str, tuple[int, int]] | None = None) -> ExportedProgram:
        """The program, for any size of the ranges; `ranges` are narrower ones. A range of one size makes it static."""
        if self.program is not None:
            return self.program
        args, kwargs, shapes = self.arguments(ranges)
        return export(self.model, args, kwargs, dynamic_shapes=shapes)

    def save(self, program: ExportedProgram, path: str | Path) -> None:
        """Write one of this network's programs; of a network that writes text with its vocabulary, which `flambeau serve` reads."""
        letters = self.facts.get("letters")
        vocabulary = self.facts.get(VOCABULARY) if letters is None else json.dumps({"tokens": list(letters)})
        save(program, path, extra_files=None if vocabulary is None else {VOCABULARY: vocabulary})

    def arguments(self, ranges: Mapping[str, tuple[int, int]] | None = None) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """What export is given: the example's inputs by position and by name, and which of their sizes are dynamic."""
        within = {**self.form.ranges, **(ranges or {})}
        dims = {name: Dim(name, min=low, max=high) for name, (low, high) in within.items() if low < high}
        shapes = {x.name: {i: dims[n] for i, n in enumerate(x.sizes) if n in dims} for x in self.form.inputs}
        return *self._call(self.example(within)), shapes

    def example(self, ranges: Mapping[str, tuple[int, int]] | None = None, more: int = 0) -> dict[str, Any]:
        """Inputs of sizes within the ranges, by name; `more` is added to each dynamic size, as far as it may be."""
        within = self.form.ranges if ranges is None else ranges
        sizes = {name: max(low, min(high, 3 + i + more)) for i, (name, (low, high)) in enumerate(within.items())}
        made = {}
        for x in self.form.inputs:
            shape = [sizes[n] if isinstance(n, str) else n for n in x.sizes]
            floats = x.dtype.is_floating_point
            made[x.name] = torch.randn(shape, dtype=x.dtype) if floats else torch.randint(0, x.below, shape).to(x.dtype)
        return made

    def call(self, given: Mapping[str, Any]) -> Any:
        """What the network gives for inputs by name."""
        args, kwargs = self._call(given)
        with torch.no_grad():
            return self.model(*args, **kwargs)

    def _call(self, given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs by position as far as they are the first parameters, the others by name."""
        rest, args = dict(given), []
        for name in _parameters(self.model):
            if name not in rest:
                break
            args.append(rest.pop(name))
        return tuple(args), rest


def read(path: str, network: str | None = None, inputs: Sequence[str] = (), ranges: Sequence[str] = ()) -> Trained:
    """The network of a checkpoint, in eval mode, or the program of a `.pt2` file.

    `network`: a name of NETWORKS, or FILE.py:NAME or MODULE:NAME of a class or a function that makes a module. `inputs`: NAME:SIZES[:DTYPE] for each input
    of such a network; `ranges`: NAME=LEAST..MOST of its dynamic sizes. OSError, ValueError or RuntimeError, whose text says what must change.
    """
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"{file} is a folder; give the file of a checkpoint, as torch.save writes it")
    if file.suffix == ".pt2":
        if network or inputs or ranges:
            raise ValueError(f"{file} is a program already, which has its network and its inputs: leave out --network, --input and --range")
        vocabulary = extra_file(file, VOCABULARY)
        return Trained(name_of(file), None, Form((), {}), {} if vocabulary is None else {VOCABULARY: vocabulary.decode()}, load(file))
    try:
        content = torch.load(file)
    except (OSError, ModuleNotFoundError):
        raise
    except Exception as error:
        raise ValueError(f"{file} is no checkpoint that can be read without executing it: {' '.join(str(error).split())}") from error
    weights, facts = _weights(content, file)
    named = network or facts.get("network")
    named = _matching(weights, file) if named is None else str(named)
    if network and ":" in network:  # of a file that says so itself nothing is executed
        model = _made(_from_python(named), facts.get("arguments", {}), named)
        form, name = _asked(model, inputs, named), name_of(file)
    else:
        known = NETWORKS.get(named)
        if known is None:
            who = "" if network else f"{file} says that it belongs to {named!r}; "
            raise ValueError(f"{who}there is no network {named!r}: give one of {', '.join(NETWORKS)}, or FILE.py:CLASS of your own (--network)")
        model = _made(known.make, facts.get("arguments", {}), named)
        form, name = _asked(model, inputs, named) if inputs else known.form(model), named
    _fill(model, weights, file, named)
    return Trained(name, model.eval(), Form(form.inputs, _within(form, ranges)), facts)


def known(name: str, model: Any) -> Trained:
    """A module that is a network of NETWORKS."""
    return Trained(name, model.eval(), NETWORKS[name].form(model))


def name_of(file: Path) -> str:
    """What a model is called after its file: letters, digits and _."""
    return "".join([c if c.isalnum() else "_" for c in file.stem]).lower()


def _weights(content: Any, file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the state_dict, the other entries) of what a checkpoint holds."""
    if isinstance(content, Mapping):
        for key in _HOLDERS:
            if _is_state(content.get(key)):
                return _plain(content[key]), {k: v for k, v in content.items() if k != key}
        if _is_state(content):
            return _plain(content), {}
    held = f"a dict of {', '.join(map(str, list(content)[:_SHOWN]))}" if isinstance(content, Mapping) else type(content).__name__
    raise ValueError(
        f"{file} holds no state_dict (itself, or under {', '.join(map(repr, _HOLDERS))}), but {held}; write it with torch.save(model.state_dict(), ...)"
    )


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """A state_dict without the prefixes of wrappers, if all of its names have one."""
    made = dict(state)
    for prefix in ("_orig_mod.", "module."):
        if all(name.startswith(prefix) for name in made):
            consume_prefix_in_state_dict_if_present(made, prefix)
    return made


def _is_state(x: Any) -> bool:
    return isinstance(x, Mapping) and bool(x) and all(isinstance(k, str) for k in x) and any(isinstance(v, torch.Tensor) for v in x.values())


def _matching(weights: Mapping[str, Any], file: Path) -> str:
    """The network of NETWORKS that has these weights."""
    found = {name: tuple(t.shape) for name, t in weights.items() if isinstance(t, torch.Tensor)}
    for name, known in NETWORKS.items():
        if {n: tuple(t.shape) for n, t in known.make().state_dict().items()} == found:
            return name
    raise ValueError(f"{file} does not say which network it belongs to, and has the weights of none of {', '.join(NETWORKS)}: "
                     "give --network FILE.py:CLASS and its inputs, as --input x:batch,3,224,224")  # fmt: skip


def _from_python(named: str) -> Any:
    """The object that FILE.py:NAME or MODULE:NAME names; the file runs with flambeau as torch."""
    where, _, attribute = named.rpartition(":")
    path = Path(where)
    if where.endswith(".py") and not path.is_file():
        raise FileNotFoundError(f"--network {named}: no such file: {path}")
    as_torch.install()
    if where.endswith(".py"):
        sys.path.insert(0, str(path.resolve().parent))
        scope: Mapping[str, Any] = runpy.run_path(str(path), run_name=path.stem)
    else:
        sys.path.insert(0, "")
        scope = vars(importlib.import_module(where))
    if attribute not in scope:
        raise ValueError(f"--network {named}: {where} has no {attribute!r}")
    return scope[attribute]


def _made(make: Any, arguments: Any, named: str) -> Any:
    if isinstance(make, torch.nn.Module):
        return make
    if not callable(make):
        raise ValueError(f"--network {named}: this is {make!r}; it must be a class of a torch.nn.Module, or a function that makes one")
    if not isinstance(arguments, Mapping):
        raise ValueError(f"the checkpoint's arguments of the network {named} must be a dict, got {type(arguments).__name__}")
    try:
        model = make(**arguments)
    except TypeError as error:
        raise ValueError(
            f"the network {named} cannot be made with {arguments or 'no arguments'}: {error}; name a function without parameters that makes it"
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"--network {named} makes {type(model).__name__}; it must be a torch.nn.Module")
    return model


def _fill(model: Any, weights: Mapping[str, Any], file: Path, named: str) -> None:
    """Load the weights; ValueError says which names and shapes do not fit."""
    given, own = weights, model.state_dict()
    wrong = [f"{n}: the network has {_shape(own[n])}, the checkpoint {_shape(given[n])}" for n in own if n in given and _shape(own[n]) != _shape(given[n])]
    for text, names in (("the checkpoint has no {}", own.keys() - given.keys()), ("the network has no {}", given.keys() - own.keys())):
        if names:
            rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            wrong.append(text.format(", ".join(sorted(names)[:_SHOWN]) + rest))
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ValueError(f"{file} does not have the weights of the network {named}: {'; '.join(wrong[:_SHOWN])}{more}")
    model.load_state_dict(given)


def _shape(x: Any) -> Any:
    return tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__


def _parameters(model: Any) -> list[str]:
    return [p.name for p in inspect.signature(model.forward).parameters.values() if p.kind is not p.VAR_KEYWORD]


# -- what the user says of inputs ---------------------------------------------------------------------------------------
def _asked(model: Any, inputs: Sequence[str], named: str) -> Form:
    """The form that --input and --range give."""
    known = _parameters(model)
    if not inputs:
        raise ValueError(f"the inputs of the network {named} are not known: give each of {', '.join(known)} as --input NAME:SIZES[:DTYPE], "
                         "a dynamic size by a name: --input x:batch,3,224,224")  # fmt: skip
    made = []
    for text in inputs:
        name, _, rest = text.partition(":")
        sizes, _, kind = rest.partition(":")
        dtype = getattr(torch, kind or "float32", None)
        if name not in known:
            raise ValueError(f"--input {text}: the network {named} takes {', '.join(known)}, not {name!r}")
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"--input {text}: there is no dtype {kind!r}")
        words = [w.strip() for w in sizes.split(",")] if sizes else []
        for w in words:
            if not (w.isdigit() or w.isidentifier()):
                raise ValueError(f"--input {text}: a size must be a number, or a name if it is dynamic; got {w!r}")
        made.append(Input(name, tuple([int(w) if w.isdigit() else w for w in words]), dtype))
    names = dict.fromkeys([n for x in made for n in x.sizes if isinstance(n, str)])
    return Form(tuple(made), dict.fromkeys(names, (1, _LARGEST)))


def _within(form: Form, ranges: Sequence[str]) -> dict[str, tuple[int, int]]:
    """The ranges of a form with those that the user has given."""
    made = dict(form.ranges)
    for text in ranges:
        name, _, rest = text.partition("=")
        low, _, high = rest.partition("..")
        if name not in made:
            raise ValueError(f"--range {text}: the dynamic sizes are {', '.join(made) or 'none'}")
        if not (low.isdigit() and (high.isdigit() or not high)) or int(high or low) < int(low):
            raise ValueError(f"--range {text}: write NAME=LEAST..MOST, as batch=1..64, or NAME=SIZE")
        made[name] = int(low), int(high or low)
    return made
