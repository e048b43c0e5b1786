"""Distribution: the base of all. A sample has the shape sample_shape + batch_shape + event_shape.

batch_shape: independent distributions with parameters of their own. event_shape: the shape of one draw, of whose numbers `log_prob` gives one
joint density. Parameters are tensors; what each may be is in `arg_constraints`, checked where `validate_args` is on.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits
from flambeau.module_names import under_torch
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size
from flambeau.trace.once import warn_here

__all__ = ["Distribution"]


def _hold(*checked: Any) -> bool:
    """Whether all elements of all are True: one observation for all parameters."""
    return not checked or bool(reduce(operator.and_, (found.all() for found in checked)))


class Distribution:
    """A (batch of) probability distribution(s). See the module's docstring for shapes."""

    has_rsample = False
    has_enumerate_support = False
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check parameters and samples unless they are told. ValueError unless a bool."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args takes True or False, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = Size(), event_shape: Any = Size(), validate_args: bool | None = None) -> None:  # noqa: B008
        self._batch_shape = batch_shape
        self._event_shape = event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            required = self.arg_constraints
        except NotImplementedError:
            required = {}
            warn_here(
                f"{self.__class__} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or initialize the distribution "
                "with `validate_args=False` to turn off validation."
            )  # fmt: skip
        checked = []
        for name, constraint in required.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # the other form was given
            value = getattr(self, name)
            checked.append((name, constraint, value, constraint.check(value)))
        if _hold(*(found for *_, found in checked)):
            return
        for name, constraint, value, found in checked:
            if not _hold(found):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} "
                    f"to satisfy the constraint {constraint!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its parameters expanded (as views) to `batch_shape`."""
        raise NotImplementedError

    @property
    def batch_shape(self) -> Any:
        """The shape of independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Any:
        """The shape of one draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> Any:
        """{parameter: what it must satisfy}."""
        raise NotImplementedError

    @property
    def support(self) -> Any:
        """The constraint that samples satisfy."""
        raise NotImplementedError

    @property
    def mean(self) -> Any:
        """The expectation."""
        raise NotImplementedError

    @property
    def mode(self) -> Any:
        """The most probable value."""
        raise NotImplementedError(f"{self.__class__} does not implement mode")

    @property
    def variance(self) -> Any:
        """The variance of each number."""
        raise NotImplementedError

    @property
    def stddev(self) -> Any:
        """The square root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws of the shape sample_shape + batch_shape + event_shape, without gradients."""
        with torch.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws through which gradients reach the parameters."""
        raise NotImplementedError

    def sample_n(self, n: int) -> Any:
        """sample((n,)): the older name."""
        warn_here("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample(Size((n,)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density, or of the probability, at `value`: broadcast against batch_shape, without event dims."""
        raise NotImplementedError

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        raise NotImplementedError

    def icdf(self, value: Any) -> Any:
        """The inverse of `cdf`."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True) -> Any:
        """All values of a discrete distribution along a new first dim, expanded over the batch or with sizes of 1."""
        raise NotImplementedError

    def entropy(self) -> Any:
        """The (differential) entropy in nats, of batch_shape."""
        raise NotImplementedError

    def perplexity(self) -> Any:
        """exp(entropy)."""
        return torch.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Any) -> None:
        """ValueError unless `value` is a tensor whose shape fits, inside the support."""
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        shape, expected = value.size(), Size((*self._batch_shape, *self._event_shape))
        if shape[len(shape) - len(self._event_shape) :] != self._event_shape:
            raise ValueError(f"The right-most size of value must match event_shape: {shape} vs {self._event_shape}.")
        if any(1 not in pair and pair[0] != pair[1] for pair in zip(reversed(shape), reversed(expected), strict=False)):
            raise ValueError(f"Value is not broadcastable with batch_shape+event_shape: {shape} vs {expected}.")
        try:
            support = self.support
        except NotImplementedError:
            warn_here(
                f"{self.__class__} does not define `support` to enable sample validation. Please initialize the distribution with "
                "`validate_args=False` to turn off validation."
            )  # fmt: skip
            return
        if support is None:
            raise AssertionError("support is unexpectedly None")
        if not _hold(support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _checked(self, value: Any) -> Any:
        """The value, after `_validate_sample` where this distribution validates."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _get_checked_instance(self, cls: Any, _instance: Any = None) -> Any:
        """What `expand` fills: `_instance`, or a new object, which has none of the attributes that a subclass's own __init__ sets."""
        if _instance is None and type(self).__init__ != cls.__init__:
            raise NotImplementedError(
                f"Subclass {self.__class__.__name__} of {cls.__name__} that defines a custom __init__ method must also define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def __repr__(self) -> str:
        given = [(name, self.__dict__[name]) for name in self.arg_constraints if name in self.__dict__]
        listed = [f"{name}: {value if value.numel() == 1 else value.size()}" for name, value in given]
        return f"{self.__class__.__name__}({', '.join(listed)})"


class Parametric(Distribution):
    """A distribution that its attributes describe: parameters (named in arg_constraints), constants, and other distributions."""

    _constants: tuple[str, ...] = ()  # attributes that an expanded distribution takes over as they are
    _parts: tuple[str, ...] = ()  # attributes that are distributions of this one's batch_shape

    def _take(self, validate_args: bool | None, **given: Any) -> None:
        """Parameters of scalar events, numbers or tensors, brought to one shape: the batch's."""
        for name, value in zip(given, broadcast_all(*given.values()), strict=True):
            setattr(self, name, value)
        Distribution.__init__(self, value.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution with its parameters expanded (as views) to `batch_shape`."""
        home = next(c for c in type(self).__mro__ if under_torch(c.__module__).startswith("torch.distributions."))
        new = self._get_checked_instance(home, _instance)
        self._expand_into(new, Size(batch_shape))
        return new

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        for name, constraint in self.arg_constraints.items():
            value = self.__dict__.get(name)
            if value is not None:
                dims = 0 if constraints.is_dependent(constraint) else constraint.event_dim
                setattr(new, name, value.expand((*batch_shape, *value.shape[value.dim() - dims :])))
        for name in self._constants:
            if name in self.__dict__:
                setattr(new, name, self.__dict__[name])
        for name in self._parts:
            setattr(new, name, getattr(self, name).expand(batch_shape))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args


class ProbsOrLogits(Parametric):
    """A distribution of probabilities, given as such or as logits; the other form is computed when it is asked for."""

    _binary = True
    _constants: tuple[str, ...] = ("_by_logits",)

    def _choose(self, probs: Any, logits: Any) -> Any:
        """The one of the two that was given. ValueError unless it is exactly one."""
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")
        self._by_logits = probs is None
        return logits if probs is None else probs

    def _take_form(self, probs: Any, logits: Any, validate_args: bool | None) -> None:
        self._take(validate_args, **{self._form(probs, logits): self._choose(probs, logits)})

    @staticmethod
    def _form(probs: Any, logits: Any) -> str:
        return "logits" if probs is None else "probs"

    @lazy_property
    def logits(self) -> Any:
        """Log odds, or log probabilities."""
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> Any:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._binary)

    @property
    def _param(self) -> Any:
        return self.logits if self._by_logits else self.probs

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)

    def _support_of(self, values: Any, expand: bool) -> Any:
        """`values` along a new first dim, for enumerate_support."""
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
