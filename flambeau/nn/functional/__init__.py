"""torch.nn.functional: one file a family; every function is a composition recorded as one edge."""

from flambeau.documentation import document as _document
from flambeau.names import answering as _answering
from flambeau.nn.functional.activation import *
from flambeau.nn.functional.attention import *
from flambeau.nn.functional.convolution import *
from flambeau.nn.functional.dropout import *
from flambeau.nn.functional.embedding_bags import *
from flambeau.nn.functional.linear import *
from flambeau.nn.functional.loss import *
from flambeau.nn.functional.normalization import *
from flambeau.nn.functional.others import *
from flambeau.nn.functional.others import _canonical_mask as _canonical_mask
from flambeau.nn.functional.others import _none_or_dtype as _none_or_dtype
from flambeau.nn.functional.pooling import *
from flambeau.nn.functional.pooling_axes import *
from flambeau.nn.functional.sampling import *
from flambeau.nn.functional.vision import *
from flambeau.ops.guard import guard as _guard

_guard("nn.functional", globals())
_document("torch.nn.functional", globals())
__getattr__ = _answering("torch.nn.functional", globals())
