"""torch._higher_order_ops: operations that take functions; here they call them."""

from __future__ import annotations

from flambeau._higher_order_ops.associative_scan import associative_scan as associative_scan
from flambeau._higher_order_ops.out_dtype import out_dtype as out_dtype
from flambeau._higher_order_ops.scan import scan as scan
from flambeau.settings import cond as cond
from flambeau.settings import while_loop as while_loop
