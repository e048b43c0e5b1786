"""The primitives with their shape rules and gradients; their meaning is in compiler/graph.py. Import this as a namespace:
`from flambeau.ops import primitives as prim`; inside an operation's body `prim.mul(x, y)` records one."""

from flambeau.ops.primitive import constant as constant
from flambeau.ops.primitives.attention import *
from flambeau.ops.primitives.coded import *
from flambeau.ops.primitives.contract import *
from flambeau.ops.primitives.fourier import *
from flambeau.ops.primitives.host import *
from flambeau.ops.primitives.move import *
from flambeau.ops.primitives.pointwise import *
from flambeau.ops.primitives.recurrent import *
from flambeau.ops.primitives.reduce import *
from flambeau.ops.primitives.two_of_four import *
from flambeau.ops.primitives.view import *
