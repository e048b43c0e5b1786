"""Process groups: which ranks they have, how they are made, and what they are called."""

from __future__ import annotations

import atexit
import os
import platform
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from flambeau.distributed.backend_calls import BackendCalls
from flambeau.distributed.store import HashStore, PrefixStore, Store, exchanged, seconds
from flambeau.distributed.work import Lane
from flambeau.trace.once import warn_here

if TYPE_CHECKING:
    from flambeau.distributed.bridge import Bridge
    from flambeau.distributed.options import BackendOptions
    from flambeau.distributed.p2p import Mail
    from flambeau.distributed.window import Window

default_pg_timeout = timedelta(minutes=30)


class BackendPlugin(NamedTuple):
    """What makes a backend of one's own."""

    creator_fn: Any
    extended_api: bool


class Backend(str):
    """The name of a backend, in lower case. PyTorch's own stand for the same: memory that the ranks of a machine share, and MPI between machines.

    But "fake": no others are there, and nothing is waited for (fake.py). `register_backend` adds some of one's own (own_backends.py).
    """

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL, FAKE = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl", "fake"
    backend_list: ClassVar[list[str]] = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]
    default_device_backend_map: ClassVar[dict[str, str]] = {"cpu": GLOO, "cuda": NCCL, "xpu": XCCL, "mps": GLOO}
    backend_capability: ClassVar[dict[str, list[str]]] = {
        GLOO: ["cpu", "cuda"], NCCL: ["cuda"], XCCL: ["xpu"], UCC: ["cpu", "cuda"], MPI: ["cpu", "cuda"], FAKE: ["cpu", "cuda", "hpu", "xpu"],
    }  # fmt: skip
    _plugins: ClassVar[dict[str, BackendPlugin]] = {}
    _BackendPlugin = BackendPlugin

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(cls, name: str, func: Any, extended_api: bool = False, devices: str | list[str] | None = None) -> None:
        """A backend of one's own: `func(store, rank, size, timeout)` makes what has PyTorch's methods of a process group (allreduce, send, barrier ...).

        With `extended_api` it is called with one object of all of that, and the group's pg_options.
        """
        name = name.lower()
        if not hasattr(cls, name.upper()):
            setattr(cls, name.upper(), name)
        if name not in cls.backend_list:
            cls.backend_list.append(name)
        if devices is None:
            warn_here(
                f"Device capability of {name} unspecified, assuming `cpu` and `cuda` or `xpu`. Please specify it via the `devices` argument of "
                "`register_backend`."
            )
        given = ["cpu", "cuda"] if devices is None else [devices] if isinstance(devices, str) else list(devices)
        for device in [] if devices is None else given:
            if cls.default_device_backend_map.get(device) in (None, "fake"):
                cls.default_device_backend_map[device] = name
        cls.backend_capability[name] = given
        if name != cls.FAKE:  # which is here by itself
            cls._plugins[name.upper()] = BackendPlugin(func, extended_api)


class BackendConfig:
    """Which backend works for which device: of a name, or of "cpu:gloo,cuda:nccl"."""

    def __init__(self, backend: str) -> None:
        text = str(backend).lower()
        self.device_backend_map: dict[str, Backend] = {}
        if text == Backend.UNDEFINED:
            self.device_backend_map = {"cpu": Backend(Backend.GLOO)}
        elif text in Backend.backend_list:
            self.device_backend_map = dict.fromkeys(Backend.backend_capability[text], Backend(text))
        elif ":" in text:
            for part in text.split(","):
                device, colon, name = part.partition(":")
                if not colon or ":" in name:
                    raise ValueError(f"Invalid device:backend pairing: {part} in {backend!r}; it must be like 'cpu:gloo,cuda:nccl'")
                if device in self.device_backend_map:
                    raise ValueError(f"Duplicate device type {device} in backend string: {backend}")
                self.device_backend_map[device] = Backend(name)
        else:
            warn_here(f"Device capability of {backend} unknown, assuming `cpu` and `cuda`. You can specify it in `device:backend` format.")
            self.device_backend_map = dict.fromkeys(("cpu", "cuda", "xpu"), Backend(text))

    def __repr__(self) -> str:
        return ",".join(f"{device}:{name}" for device, name in self.device_backend_map.items())

    def get_device_backend_map(self) -> dict[str, Backend]:
        """Device -> backend."""
        return self.device_backend_map


class ProcessGroup(BackendCalls):
    """Some of the ranks, of which this process is one.

    A class derived from it is made by `ProcessGroup(rank, size)`, as with PyTorch, and has its own collectives (Backend.register_backend).
    """

    own_backend: Any = None  # what makes the collectives, where that is a backend of one's own
    splits = 0  # how often it was split so far, on all members the same
    supports_splitting = supports_shrinking = True

    def __init__(
        self, backend: str | int, ranks: Sequence[int] | int = (0,), rank: int = 0, store: Store | None = None, timeout: Any = None, name: str = "0",
        own_backend: Any = None,
    ) -> None:  # fmt: skip
        if isinstance(backend, int):
            assert isinstance(ranks, int)  # the base of a backend of one's own
            self._rank, self.ranks, self.own_backend, self._backend = backend, list(range(ranks)), self, Backend(Backend.UNDEFINED)
            self.timeout, self.bound_device_id = default_pg_timeout, None
            return
        assert not isinstance(ranks, int)
        if own_backend is not None:
            self.own_backend = own_backend
        self._backend = Backend(backend)
        self.ranks = list(ranks)
        self._rank = rank
        self.store = HashStore() if store is None else store
        self.timeout = default_pg_timeout if timeout is None else timeout
        self.group_name = name
        self.group_desc = "undefined"
        self.lane = Lane(f"flambeau group {name}", name)
        self._window: Window | Bridge | None = None
        self._mail: Mail | None = None
        self._making = threading.Lock()
        self.bound_device_id = None  # the device that a backend of GPUs works for
        if len(self.ranks) > 1 and own_backend is None:
            self.window  # noqa: B018  # all members are here now

    @property
    def window(self) -> Window | Bridge:
        """The memory that the members share; where they are on several machines, what goes between these, too."""
        if self._window is None:
            with self._making:
                if self._window is None:
                    self._window = self._open()
        return self._window

    @property
    def is_fake(self) -> bool:
        """Whether there are no other processes: the backend is "fake"."""
        return "fake" in [part.rpartition(":")[2] for part in self._backend.split(",")]

    def _open(self) -> Window | Bridge:
        if self.own_backend is not None:
            raise NotImplementedError(f"{self!r}: the backend {type(self.own_backend).__name__} has its own collectives; this one is not among them")
        if self.is_fake:
            from flambeau.distributed.fake import FakeWindow

            return cast("Window", FakeWindow())  # has what collectives ask of a window
        from flambeau.distributed.window import Window

        found = exchanged(self.store, "machine", self._rank, len(self.ranks), _machine())
        names = list(dict.fromkeys(found))
        if len(names) == 1:
            return Window(self.store, self.ranks, self._rank, self.timeout, self.group_name)
        from flambeau.distributed import mpi
        from flambeau.distributed.bridge import Bridge

        if GroupMember.WORLD is None:  # this is the group of all ranks
            places = "; ".join(f"ranks {', '.join(str(r) for r, n in enumerate(found) if n == name)} on {name.split()[0]}" for name in names)
            mpi.start(self.store, self._rank, len(found), f"the ranks are on several machines ({places})")
        return Bridge(self.store, mpi.world(), self.ranks, self._rank, found, self.timeout, self.group_name)

    @property
    def mail(self) -> Mail:
        """Messages from member to member."""
        if self._mail is None and self.own_backend is not None:
            from flambeau.distributed.own_backends import OwnMail

            self._mail = cast("Mail", OwnMail(self))
        if self._mail is None:
            from flambeau.distributed.fake import FakeMail
            from flambeau.distributed.p2p import Mail

            self._mail = cast("Mail", FakeMail(self.ranks)) if self.is_fake else Mail(self)
        return self._mail

    def missing(self) -> str:
        """The ranks that the last meeting in this machine's memory waited for, for messages."""
        from flambeau.distributed.window import Window

        window = self.window if isinstance(self.window, Window) else self.window.window
        late = window.missing()
        return ("Rank " if len(late) == 1 else "Ranks ") + ", ".join(str(window.ranks[r]) for r in late) if late else "Some rank of another machine"

    def rank(self) -> int:
        """The place of this process in the group."""
        return self._rank

    def size(self) -> int:
        """How many processes the group has."""
        return len(self.ranks)

    def name(self) -> str:
        """The backend's name; of what is not PyTorch's own, "custom", or what its getBackendName says."""
        if self.own_backend is not None:
            return str(self.own_backend.getBackendName()) if hasattr(self.own_backend, "getBackendName") else "custom"
        return "custom" if self._backend == Backend.FAKE else str(self._backend)

    _get_backend_name = name

    # -- what PyTorch asks a backend -------------------------------------------------------------------------------------------------
    def _get_backend(self, device: Any) -> ProcessGroup:
        """This group, as what works for a device: under the class of gloo's groups, with the same insides."""
        from flambeau.distributed.gloo import ProcessGroupGloo

        if str(device).partition(":")[0] != "cpu":
            raise RuntimeError(f"No backend type associated with device type {str(device).partition(':')[0]}")
        seen = object.__new__(ProcessGroupGloo)
        seen.__dict__ = self.__dict__
        return seen

    @property
    def _device_types(self) -> list[Any]:
        from flambeau.device import device

        return [device("cpu")]

    def get_group_store(self) -> Store:
        """The store by which the members have found each other."""
        return self.store

    @property
    def options(self) -> BackendOptions:
        """The group's timeout, and its ranks."""
        from flambeau.distributed.options import BackendOptions

        found = BackendOptions(str(self._backend), self.timeout)
        found.global_ranks_in_group, found.group_name = list(self.ranks), self.group_name
        return found

    def set_timeout(self, timeout: timedelta) -> None:
        """How long is waited for the others from now on."""
        self.timeout = timeout
        if self._window is not None:
            self._window.timeout = seconds(timeout)
            if hasattr(self._window, "window"):
                self._window.window.timeout = seconds(timeout)

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Nothing to do: ranks count from the start."""

    def _get_sequence_number_for_group(self) -> int:
        """How many collectives there have been."""
        inner = getattr(self.window, "window", self.window)
        return int(getattr(inner, "_times", 0))

    def close(self) -> None:
        """Leave."""
        if self.own_backend not in (None, self) and hasattr(self.own_backend, "shutdown"):
            self.own_backend.shutdown()
        if self._window is not None:
            self._window.close()

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name!r}: rank {self._rank} of {self.ranks}>"


def _machine() -> str:
    """What is the same for processes that can share memory and see each other: host name, boot, process and file namespaces; FLAMBEAU_MACHINE, for tests."""
    parts = [os.environ.get("FLAMBEAU_MACHINE") or platform.node() or "?"]
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
        parts += [str(os.stat(f"/proc/self/ns/{kind}").st_ino) for kind in ("pid", "mnt")]
    except OSError:
        parts.append("unknown")
    return " ".join(parts)


class GroupMember:
    """What groups are called that this process is in, or not in."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


class group:
    """`group.WORLD`: the group of all processes, or None."""

    WORLD: ProcessGroup | None = None


_groups: list[ProcessGroup] = []
_made = [0]  # groups so far, on all ranks the same


def is_initialized() -> bool:
    """Whether init_process_group has made a group."""
    return GroupMember.WORLD is not None


def default_group() -> ProcessGroup:
    """The group of all; ValueError without one, as in PyTorch."""
    if GroupMember.WORLD is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return GroupMember.WORLD


def member(given: Any) -> ProcessGroup | None:
    """The group that a collective was given (None: of all), or None if this process is not in it."""
    if given is None:
        return default_group()
    if isinstance(given, ProcessGroup):
        return given
    default_group()
    if given == GroupMember.NON_GROUP_MEMBER:
        return None
    raise TypeError(f"torch.distributed: group must be a ProcessGroup, got {type(given).__name__}")


def group_named(name: str) -> ProcessGroup:
    """The group of this name (`group.group_name`), of which this process is one; LookupError if there is none."""
    for found in _groups:
        if found.group_name == name:
            return found
    raise LookupError(f"Could not resolve the process group registered under the name {name}: the groups of this process are {[g.group_name for g in _groups]}")


def group_of_ranks(ranks: Sequence[int]) -> ProcessGroup | None:
    """The first group of just these ranks, if this process is in one."""
    return next((found for found in _groups if found.ranks == list(ranks)), None)


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process is not in a group (None: that of all, in which it is)."""
    return group is not None and group == GroupMember.NON_GROUP_MEMBER


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1, rank: int = -1, store: Any = None,
    group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Make the group of all ranks.

    `init_method`: env:// (the default: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, or what mpiexec and srun say), tcp://host:port, file:///path; or a
    `store`, with `rank` and `world_size`. Without any of these and without WORLD_SIZE it is a group of this process alone.
    `backend`: gloo, mpi (the same here), fake (this process alone goes through the motions of `rank`); other devices' are refused.
    """
    from flambeau.distributed import job
    from flambeau.distributed.rendezvous import find

    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    names = [part.rpartition(":")[2] for part in Backend(backend or "gloo").split(",")]
    limit = default_pg_timeout if timeout is None else timeout
    if not isinstance(limit, timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    if store is not None:
        if world_size < 1 or rank < 0:
            raise AssertionError(f"world_size must be positive and rank non-negative if using store, got world_size {world_size} and rank {rank}")
        found, place, size = store, rank, world_size
    elif init_method in (None, "env://") and world_size < 0 and rank < 0 and (by := job.found()) is not None and by.size > 1:
        found, place, size = job.meet(by, limit), by.rank, by.size
        found.set_timeout(limit)
    elif init_method in (None, "env://") and world_size <= 1 and rank <= 0 and int(os.environ.get("WORLD_SIZE", "1")) == 1:
        found, place, size = HashStore(), 0, 1
    else:
        found, place, size = find(init_method or "env://", rank, world_size, limit)
        found.set_timeout(limit)
    if not 0 <= place < size:
        raise ValueError(f"init_process_group: rank must be between 0 and world_size - 1, got rank {place} and world_size {size}")
    _check_backend(backend, names, size)
    _begin(backend or "gloo", size, place, PrefixStore("default_pg", found), limit, group_name or "0", pg_options, "default_pg")
    atexit.unregister(_end)
    atexit.register(_end)


def _begin(backend: str, size: int, rank: int, store: Store, timeout: Any, name: str, pg_options: Any, desc: str) -> None:
    """Make the group of all ranks."""
    _made[0] = 0
    made = _made_of(backend, range(size), rank, store, timeout, name, pg_options)
    made.group_desc = desc
    GroupMember.WORLD = group.WORLD = made
    _groups.append(made)


def _made_of(backend: str, ranks: Sequence[int], rank: int, store: Store, timeout: Any, name: str, pg_options: Any) -> ProcessGroup:
    """A group, whose collectives are those of a backend of one's own where there is one of this name."""
    plugin = _plugin(backend)
    if plugin is None:
        return ProcessGroup(backend, ranks, rank, store, timeout, name)
    from flambeau.distributed import own_backends

    return ProcessGroup(backend, ranks, rank, store, timeout, name, own_backends.make(plugin, store, rank, ranks, timeout, name, pg_options))


def _plugin(backend: str) -> BackendPlugin | None:
    """The backend of one's own that works for the CPU, if it is one."""
    if not Backend._plugins:
        return None
    return Backend._plugins.get(str(BackendConfig(backend).get_device_backend_map().get("cpu", "")).upper())


def _check_backend(backend: str | None, names: Sequence[str], size: int) -> None:
    if backend is not None and _plugin(backend) is None and size > 1 and not any(name in ("gloo", "mpi", "fake") for name in names):
        wanted = ", ".join(names)
        if all(name in ("nccl", "xccl", "ucc") for name in names):
            warn_here(f"torch.distributed: there is no backend {wanted} here, as flambeau runs on the CPU so far: shared memory is used ('gloo')")
        elif all(name not in ("nccl", "xccl", "ucc", "undefined") for name in names):
            raise ValueError(f"Invalid backend: '{backend}'. flambeau has 'gloo', 'mpi' and 'fake', and what Backend.register_backend was given")


def _leave() -> None:
    for made in _groups:
        made.close()


def _end() -> None:
    """The process ends."""
    well = all(made._window is None or made._window.broken is None for made in _groups) and not hasattr(sys, "last_value")
    _leave()
    if "flambeau.distributed.mpi" in sys.modules:
        sys.modules["flambeau.distributed.mpi"].leave(well)


def destroy_process_group(group: Any = None) -> None:
    """Leave a group, or all of them; ValueError without one. Nothing happens where this process is not in the group."""
    whole = default_group()
    found = member(group)
    if found is not whole:
        if found is not None:
            found.close()
            if found in _groups:
                _groups.remove(found)
        return
    _leave()
    _groups.clear()
    GroupMember.WORLD = globals()["group"].WORLD = None


def new_group(
    ranks: list[int] | None = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None, use_local_synchronization: bool = False,
    group_desc: str | None = None, device_id: Any = None, *, _name: str | None = None,
) -> Any:  # fmt: skip
    """A group of some ranks. All ranks call this in the same order (with `use_local_synchronization` the members alone)."""
    whole = default_group()
    chosen = sorted(whole.ranks if ranks is None else ranks)
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"new_group: ranks must be different, got {ranks}")
    if len(chosen) > whole.size():
        raise ValueError("the new group's world size should be less or equal to the world size set by init_process_group")
    if any(not 0 <= r < whole.size() for r in chosen):
        raise ValueError(f"The new group's rank should be within the world_size set by init_process_group: {ranks} of {whole.size()}")
    if _name is not None:  # of groups with tags, of which ranks may not make the same ones
        name = _name
    elif use_local_synchronization:
        name = f"ranks-{'-'.join(map(str, chosen))}-{sum(g.ranks == chosen for g in _groups)}"
    else:
        _made[0] += 1
        name = str(_made[0])
    if whole.rank() not in chosen:
        return None if use_local_synchronization else GroupMember.NON_GROUP_MEMBER
    store = PrefixStore(f"group/{name}", whole.store)
    made = _made_of(backend or str(whole._backend), chosen, chosen.index(whole.rank()), store, timeout or whole.timeout, name, pg_options)
    made.group_desc = group_desc or "undefined"
    _groups.append(made)
    return made


def new_subgroups(
    group_size: int | None = None, group: Any = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None, group_desc: str | None = None
) -> tuple[Any, list[Any]]:
    """Groups of `group_size` neighbouring ranks each: (the one that this process is in, all)."""
    size = get_world_size()
    each = group_size or size
    if each <= 0 or size % each:
        raise ValueError(f"The world size ({size}) must be divisible by group_size={each}")
    return new_subgroups_by_enumeration([list(range(i, i + each)) for i in range(0, size, each)], timeout, backend)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: list[list[int]], timeout: Any = None, backend: str | None = None, pg_options: Any = None, group_desc: str | None = None
) -> tuple[Any, list[Any]]:
    """A group of each list of ranks: (the one that this process is in, all)."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    made, own = [], None
    for ranks in ranks_per_subgroup_list:
        new = new_group(ranks, timeout, backend)
        made.append(new)
        if get_rank() in ranks:
            own = new
    return own, made


def get_rank(group: Any = None) -> int:
    """The place of this process in a group, -1 if it is not in it; ValueError without a group."""
    found = member(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many processes a group has, -1 if this one is not in it; ValueError without a group."""
    found = member(group)
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> Backend:
    """The name that init_process_group was given; ValueError where this process is not in the group."""
    found = member(group)
    if found is None:
        raise ValueError("Invalid process group specified: this process is not in it")
    return found._backend


def get_backend_config(group: Any = None) -> str:
    """Which backend works for which device, as text; ValueError where this process is not in the group."""
    return str(BackendConfig(get_backend(group)))


def get_pg_count() -> int:
    """How many groups have been made."""
    return _made[0] + 1 if is_initialized() else 0


def get_global_rank(group: Any, group_rank: int) -> int:
    """The rank among all of a group's rank."""
    found = member(group)
    if found is None or not 0 <= group_rank < found.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return found.ranks[group_rank]


def get_group_rank(group: Any, global_rank: int) -> int:
    """The rank in a group of a rank among all."""
    found = member(group)
    if found is None or global_rank not in found.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return found.ranks.index(global_rank)


def get_process_group_ranks(group: Any) -> list[int]:
    """The ranks of a group."""
    found = member(group)
    return [] if found is None else list(found.ranks)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The environment's LOCAL_RANK, or what mpiexec or srun says, or the fallback; RuntimeError without any."""
    from flambeau.distributed import job

    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    by = job.found()
    if by is not None and by.local_rank is not None:
        return by.local_rank
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work.")


def rank_and_size(group: Any = None) -> tuple[int, int]:
    """Of this process in a group, and how many there are; (0, 1) without a process group."""
    return (get_rank(group), get_world_size(group)) if is_initialized() else (0, 1)
