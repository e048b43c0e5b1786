"""Classes in the place of tensors and numbers: `Tensor` has the attributes that its instances are known by, and is none."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

X = flambeau.ones(2, 2)
NAMES = sorted(  # not those that set what later tests count on
    n for n in dir(flambeau) if not n.startswith(("_", "set_", "use_")) and callable(getattr(flambeau, n)) and not isinstance(getattr(flambeau, n), type)
)
TENSOR = flambeau.Tensor
CALLS: list[tuple[Any, ...]] = [(TENSOR,), (X, TENSOR), (TENSOR, X), (X, TENSOR, 1), (X, 1, TENSOR), ([X, TENSOR],), ([TENSOR], 1)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_classes_for_tensors(name: str) -> None:
    """An error, where there is one, is of the call: none of a look-up in the class."""
    function = getattr(flambeau, name)
    before = dict(vars(TENSOR))
    for args in CALLS:
        try:
            function(*args)
        except AttributeError as error:
            assert str(error).startswith(f"{name}():")  # PyTorch's type for what is no file
        except (TypeError, ValueError, RuntimeError, NotImplementedError, IndexError) as error:
            assert "positional argument: 'self'" not in str(error)
            assert "descriptor" not in str(error)
        assert dict(vars(TENSOR)) == before
