"""The gradients of a module's parameters, made the mean over all ranks after a backward pass: what DistributedDataParallel does."""

from __future__ import annotations

import ctypes
import weakref
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.autograd import engine
from flambeau.distributed.agreement import collective
from flambeau.distributed.collectives import broadcast_all
from flambeau.distributed.ddp_logging import StepTimes
from flambeau.distributed.memory import Memory
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.sparse import all_reduce_sparse
from flambeau.grad_modes import no_grad

if TYPE_CHECKING:
    from flambeau.distributed.group import ProcessGroup
    from flambeau.tensor import Tensor


class GradBucket:
    """Some parameters' gradients as one flat tensor, which a communication hook is given."""

    def __init__(self, index: int, parameters: Sequence[Tensor], buffer: Tensor, is_last: bool) -> None:
        self._index, self._parameters, self._buffer, self._is_last = index, list(parameters), buffer, is_last

    def index(self) -> int:
        """The bucket's number: 0 has the module's last parameters."""
        return self._index

    def buffer(self) -> Tensor:
        """The flat tensor."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Another flat tensor in its place."""
        self._buffer = tensor

    def parameters(self) -> list[Tensor]:
        """Whose gradients these are."""
        return list(self._parameters)

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the flat tensor."""
        sizes = [p.numel() for p in self._parameters]
        return [part.view(p.shape) for part, p in zip(self._buffer.split(sizes), self._parameters, strict=True)]  # type: ignore[attr-defined]

    def is_last(self) -> bool:
        """Whether no bucket comes after it in this pass."""
        return self._is_last


class Reducer:
    """Exchanges the gradients of these parameters (name -> parameter) in a group, when a backward pass has reached them and `armed` is set."""

    def __init__(self, parameters: Mapping[str, Tensor], group: ProcessGroup, finds_unused: bool, static: bool, bucket_bytes: int) -> None:
        self.names, self.parameters, self.group = list(parameters), list(parameters.values()), group
        self.finds_unused, self.static, self.bucket_bytes = finds_unused, static, bucket_bytes
        self.armed = False
        self.sparse: set[int] = set()  # parameters whose gradients are sparse
        self._used: set[int] = set()  # parameters that passes since the last exchange have reached
        self.missing: list[str] = []  # parameters without a gradient in the last pass, where that is not allowed for
        self.joins = False  # ranks may have no inputs any more (join)
        self.divisor = group.size()
        self.hook: Callable[[Any, GradBucket], Any] | None = None
        self.hook_state: Any = None
        self.hook_name = ""  # of a built-in one
        self.times = StepTimes()
        self.always_all = False  # whether each pass so far has reached all parameters
        self.places = {id(p): i for i, p in enumerate(self.parameters)}
        listener = weakref.WeakMethod(self.after_backward)

        def told(leaves: list[Tensor]) -> None:
            method = listener()
            if method is not None:
                method(leaves)

        engine.LISTENERS.append(told)
        weakref.finalize(self, engine.LISTENERS.remove, told)

    def after_backward(self, leaves: list[Tensor]) -> None:
        """A backward pass has ended at these leaves."""
        if not (self.armed or self.finds_unused):
            return
        reached = {self.places[id(leaf)] for leaf in leaves if id(leaf) in self.places}
        if not reached:
            return
        if self.finds_unused:  # those of passes in no_sync, too
            self._used |= reached
        if self.armed:
            self.armed = False
            used, self._used = self._used | reached, set()
            self.exchange(used)

    def exchange(self, reached: set[int]) -> None:
        """Make gradients the mean over all ranks. `reached`: the parameters for which this rank has one of this pass; the others count as zeros."""
        count = len(self.parameters)
        wanted = sorted(reached)
        self.times.mark("compute_start")
        self.always_all = len(wanted) == count and (self.always_all or self.times.steps == 0)
        if self.finds_unused or self.static or self.joins:
            wanted = self._anywhere(reached)
        elif len(wanted) < count:
            self.missing = [name for i, name in enumerate(self.names) if i not in reached]
        with no_grad():
            for i in wanted:
                p = self.parameters[i]
                if p.grad is None:
                    p.grad = flambeau.zeros_like(p)
                if p.grad.is_sparse is not (i in self.sparse):
                    p.grad = p.grad.to_sparse(1) if i in self.sparse else p.grad.to_dense()
            if self.hook is not None:
                self._by_hook(wanted)
                self.times.step_ends()
                return
            dense = [i for i in wanted if i not in self.sparse]
            kinds = dict.fromkeys(self.parameters[i].grad.dtype for i in dense)  # type: ignore[union-attr]
            for kind in kinds:
                self._mean([i for i in dense if self.parameters[i].grad.dtype is kind], kind)  # type: ignore[union-attr]
            for i in wanted:
                if i in self.sparse:
                    gradient: Any = self.parameters[i].grad / self.divisor  # type: ignore[operator]
                    all_reduce_sparse(self.group, gradient, ReduceOp.SUM, False)
                    self.parameters[i].grad = gradient
            self.times.step_ends()

    def _anywhere(self, reached: set[int]) -> list[int]:
        """The parameters that some rank has a gradient for."""
        flags = (ctypes.c_uint8 * len(self.parameters))(*[i in reached for i in range(len(self.parameters))])
        text, key = collective("DistributedDataParallel", f"which of {len(self.parameters)} parameters are used", None, None)
        piece = [(ctypes.addressof(flags), len(self.parameters))]

        def run() -> None:
            self.group.window.begin(text, key)
            self.group.window.reduce(piece, piece, "max", "uint8")

        self.group.lane.now(run)
        return [i for i, used in enumerate(flags) if used]

    def _mean(self, wanted: Sequence[int], kind: Any) -> None:
        """All gradients of a dtype in one go: terms are multiplied with 1 / ranks, then added in the ranks' order."""
        memories = [Memory(self.parameters[i].grad, True) for i in wanted]  # type: ignore[arg-type]
        which = zlib.crc32(repr(wanted).encode())
        detail = f"gradients of {len(wanted)} of {len(self.parameters)} parameters, {which:08x}"
        text, key = collective("DistributedDataParallel", detail, kind, (sum(m.nbytes for m in memories) // kind.itemsize,))
        pieces = [m.piece for m in memories]
        element = kind.to_real().name if kind.is_complex else kind.name

        def run() -> None:
            self.times.mark("comm_start")
            self.group.window.begin(text, key)
            self.group.window.reduce(pieces, pieces, "sum", element, 1.0 / self.divisor, owners=memories)
            for memory in memories:
                memory.finish()

        self.group.lane.now(run)

    def buckets(self, wanted: Sequence[int]) -> list[list[int]]:
        """Parameters by buckets, the last first: as many bytes as fit, of one dtype each, a sparse one alone; the first bucket is small."""
        buckets: list[list[int]] = []
        filled, kind, limit = 0, None, min(self.bucket_bytes, 1 << 20)
        for i in reversed(wanted):
            p: Any = self.parameters[i]
            nbytes = p.numel() * p.dtype.itemsize
            alone = i in self.sparse or (bool(buckets) and buckets[-1][0] in self.sparse)
            if not buckets or alone or p.dtype is not kind or filled + nbytes > limit:
                if buckets:
                    limit = self.bucket_bytes
                buckets.append([])
                filled, kind = 0, p.dtype
            buckets[-1].append(i)
            filled += nbytes
        return buckets

    def _by_hook(self, wanted: Sequence[int]) -> None:
        """By a communication hook: buckets of flat gradients, the last parameters' first."""
        assert self.hook is not None
        buckets = self.buckets(wanted)
        self.times.mark("comm_start")
        for number, places in enumerate(buckets):
            parameters = [self.parameters[i] for i in places]
            sparse = places[0] in self.sparse
            flat: Any = parameters[0].grad if sparse else flambeau.cat([p.grad.reshape(-1) for p in parameters])  # type: ignore[union-attr]
            bucket = GradBucket(number, parameters, flat, number == len(buckets) - 1)
            future = self.hook(self.hook_state, bucket)
            # One bucket after the other: what a hook's callbacks start has then the same place among the collectives on each rank.
            if not hasattr(future, "wait"):
                raise RuntimeError(f"Communication hook: callback must return a torch.futures.Future object, but got {type(future).__name__}")
            result = future.wait()
            flat = result[0] if isinstance(result, (list, tuple)) else result
            if sparse:
                parameters[0].grad = flat if flat.is_sparse else flat.to_sparse(1)
                continue
            for part, p in zip(flat.split([p.numel() for p in parameters]), parameters, strict=True):
                p.grad.copy_(part.view(p.shape))  # type: ignore[union-attr]

    def check_finished(self) -> None:
        """RuntimeError if the last pass has not reached all parameters, and nothing says that it need not."""
        if not self.missing:
            return
        names, self.missing = self.missing, []
        self.times.error = (
            "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that "
            "were not used in producing loss. You can enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to "
            f"`torch.nn.parallel.DistributedDataParallel`. Parameters which did not receive grad for rank {self.group.rank()}: {', '.join(names)}"
        )
        raise RuntimeError(self.times.error)


def same_everywhere(tensors: Sequence[Tensor], group: ProcessGroup) -> None:
    """DistBackendError, naming ranks, unless all ranks have parameters of these shapes and dtypes."""
    kinds = tuple([(t.dtype.name, *t.shape) for t in tensors])
    shapes = kinds if len(kinds) < 20 else f"{zlib.crc32(repr(kinds).encode()):08x}"
    text, key = collective("DistributedDataParallel", f"a module of {len(kinds)} parameters of shapes {shapes}", None, None)

    def run() -> None:
        group.window.begin(text, key)
        group.window.meet()

    group.lane.now(run)


def send_all(tensors: Sequence[Tensor], root: int, group: ProcessGroup) -> None:
    """Tensors become those of a rank of the group."""
    if tensors and group.size() > 1:
        broadcast_all(tensors, root, group, False, "DistributedDataParallel broadcast")
