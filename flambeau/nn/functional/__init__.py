"""torch.nn.functional: one file a family; every function is a composition recorded as one edge."""

from flambeau.nn.functional.activation import *  # noqa: F403
from flambeau.nn.functional.attention import *  # noqa: F403
from flambeau.nn.functional.convolution import *  # noqa: F403
from flambeau.nn.functional.dropout import *  # noqa: F403
from flambeau.nn.functional.linear import *  # noqa: F403
from flambeau.nn.functional.loss import *  # noqa: F403
from flambeau.nn.functional.normalization import *  # noqa: F403
from flambeau.nn.functional.pooling import *  # noqa: F403
from flambeau.nn.functional.vision import *  # noqa: F403
