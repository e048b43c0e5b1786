"""Every function that takes a sequence of tensors, with something else for it: a TypeError that names the function, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

# A second argument, where the function needs one.
FUNCTIONS: dict[str, tuple[Any, ...]] = dict.fromkeys(
    "cat concat concatenate stack hstack vstack row_stack dstack column_stack block_diag cartesian_prod broadcast_tensors meshgrid "
    "atleast_1d atleast_2d atleast_3d _foreach_exp _foreach_exp_ _foreach_zero_ _foreach_norm".split(), (),
) | {"cat": (1,), "stack": (0,), "_foreach_add": (1,), "_foreach_add_": (1,), "_foreach_mul": (2.0,), "_foreach_addcmul_": ([], [])}  # fmt: skip
WRONG = {"slice": slice(1), "int": 3, "object": object(), "None": None, "str": "ab", "ints": [1, 2], "mixed": "a tensor and an int"}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_no_sequence_of_tensors(name: str, wrong: str) -> None:
    def call(m: Any) -> None:
        value = [m.ones(2), 3] if wrong == "mixed" else WRONG[wrong]
        getattr(m, name)(value, *FUNCTIONS[name])

    with pytest.raises(TypeError):
        call(torch)
    for _ in range(2):  # the second call is a known one
        with pytest.raises(TypeError) as caught:
            call(flambeau)
        plain = {"concat": "cat", "concatenate": "cat", "row_stack": "vstack"}.get(name, name)
        assert plain in str(caught.value)
        assert "has no len" not in str(caught.value)
