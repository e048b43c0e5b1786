"""torch.distributed.device_mesh: processes in a grid; along each dim of it the processes are a group."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy

from flambeau.distributed.group import GroupMember, ProcessGroup, default_group, group_of_ranks, init_process_group, is_initialized, new_group


class DeviceMesh:
    """A grid of processes, `mesh` their ranks; `mesh[name]` is the grid of some of its dims.

    All processes make it, with the same ranks; along each dim the ranks ascend. Groups along the dims are made with it. ValueError for
    ranks that are not there or come twice, RuntimeError for names that are not one a dim.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None, _init_backend: bool = True) -> None:
        self.device_type = device_type
        self._ranks = numpy.array(mesh.tolist() if hasattr(mesh, "tolist") else mesh, dtype=numpy.int64)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self._ranks.ndim:
            raise RuntimeError(f"mesh_dim_names must have one name a dim: {self._ranks.ndim} dims and the names {self.mesh_dim_names}")
        if self.mesh_dim_names is not None and len(set(self.mesh_dim_names)) != len(self.mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {self.mesh_dim_names}")
        if not is_initialized():
            if self._ranks.size == 1 and int(os.environ.get("WORLD_SIZE", "1")) == 1:
                init_process_group("gloo", rank=0, world_size=1)
            else:
                init_process_group("gloo")
        self._root = self
        self._dims_in_root: tuple[tuple[int, ...], ...] = tuple([(d,) for d in range(self._ranks.ndim)])  # of each dim: several where it is flattened
        self._flattened: dict[str, DeviceMesh] = {}
        self._groups: list[ProcessGroup] = []
        self._coordinate: tuple[int, ...] | None = None
        self._check(default_group())
        if _init_backend:
            self._groups = [_groups_along(self._ranks, d) for d in range(self._ranks.ndim)]

    def _check(self, whole: ProcessGroup) -> None:
        ranks = self._ranks
        if ranks.size > whole.size():
            raise RuntimeError(f"Mesh should not be bigger than default world size {whole.size()}, but found {ranks.size} ranks!")
        if ranks.size and (ranks.min() < 0 or ranks.max() >= whole.size()):
            raise ValueError(f"DeviceMesh: the mesh must hold ranks from 0 to {whole.size() - 1}; got ranks {ranks.tolist()}")
        if len(set(ranks.reshape(-1).tolist())) != ranks.size:
            raise ValueError(f"DeviceMesh cannot have duplicate ranks, but found {ranks.tolist()}")
        if any((numpy.diff(ranks, axis=d) < 0).any() for d in range(ranks.ndim)):
            raise ValueError(f"DeviceMesh: along each dim the ranks must ascend; got {ranks.tolist()}")
        place = numpy.argwhere(ranks == whole.rank())
        self._coordinate = tuple([int(i) for i in place[0]]) if len(place) else None

    @staticmethod
    def _part(
        root: DeviceMesh, ranks: Any, names: tuple[str, ...] | None, groups: Sequence[ProcessGroup], dims: tuple[tuple[int, ...], ...]
    ) -> DeviceMesh:  # fmt: skip
        """A mesh over groups that are there already; `dims`: of each dim, those of the root that it goes along."""
        made = DeviceMesh(root.device_type, ranks, mesh_dim_names=names, _init_backend=False)
        made._groups, made._root, made._dims_in_root = list(groups), root, dims
        return made

    @property
    def _root_dims(self) -> tuple[int, ...]:
        """The dims of the root that this mesh goes along, in the order of its own."""
        return tuple([d for dims in self._dims_in_root for d in dims])

    def _at(self, dims: tuple[tuple[int, ...], ...]) -> Any:
        """Of a root: its ranks along some of its dims, from where this process is; a dim for each tuple."""
        flat = [d for several in dims for d in several]
        kept = [d for d in range(self.ndim) if d not in flat]
        place: tuple[Any, ...] = (..., *[(self._coordinate or [0] * self.ndim)[d] for d in kept])
        sizes = [int(numpy.prod([self._ranks.shape[d] for d in several])) for several in dims]
        return self._ranks.transpose(*flat, *kept)[place].reshape(sizes)

    @staticmethod
    def _over_groups(device_type: str, ranks: Any, names: Sequence[str] | None) -> DeviceMesh:
        """The mesh of these ranks over the first groups that go along it; where one is not there, all processes make new ones."""
        made = DeviceMesh(device_type, ranks, mesh_dim_names=names, _init_backend=False)
        if made._coordinate is not None:
            found = [group_of_ranks(made._line(d)) for d in range(made.ndim)]
            if all(found):
                made._groups = [g for g in found if g is not None]
                return made
        return DeviceMesh(device_type, ranks, mesh_dim_names=names)

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
        """The mesh of existing groups: of one group, or of one a dim with `mesh` for the ranks."""
        several = isinstance(group, (list, tuple))
        groups = list(group) if several else [group]
        if not groups:
            raise ValueError("Expects at least one ProcessGroup to be passed")
        if mesh is None:
            if len(groups) > 1:
                raise ValueError("Must pass mesh if passing multiple ProcessGroups")
            mesh = groups[0].ranks
        made = DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)
        if made.ndim != len(groups):
            raise ValueError(f"Expects mesh with ndim equal to number of ProcessGroups but got mesh {made._ranks.tolist()} and {len(groups)} ProcessGroups")
        for d, each in enumerate(groups):
            if made._coordinate is not None and list(each.ranks) != made._line(d):
                raise ValueError(f"DeviceMesh.from_group: group {d} has the ranks {list(each.ranks)}, and the mesh has {made._line(d)} along dim {d}")
        made._groups = groups
        return made

    def _line(self, dim: int) -> list[int]:
        """The ranks along a dim that this process is among."""
        assert self._coordinate is not None
        index: list[Any] = list(self._coordinate)
        index[dim] = slice(None)
        return [int(r) for r in self._ranks[tuple(index)]]

    @property
    def mesh(self) -> Any:
        """The ranks, as a tensor."""
        import flambeau

        return flambeau.tensor(self._ranks.tolist(), dtype=flambeau.int).reshape(self._ranks.shape)

    @property
    def ndim(self) -> int:
        """How many dims the grid has."""
        return self._ranks.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the grid."""
        return tuple(self._ranks.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many processes the grid has, or one of its dims."""
        return int(self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim])

    def __len__(self) -> int:
        return self.size()

    def _position(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1."
                )
            return 0
        if isinstance(mesh_dim, int):
            return mesh_dim
        if self.mesh_dim_names is None or mesh_dim not in self.mesh_dim_names:
            raise KeyError(f"Invalid mesh_dim_name {mesh_dim!r}; the names are {self.mesh_dim_names}")
        return self.mesh_dim_names.index(mesh_dim)

    _get_mesh_dim_by_name = _position

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of the processes along a dim."""
        if isinstance(mesh_dim, str) and mesh_dim in self._root._flattened and mesh_dim not in (self.mesh_dim_names or ()):
            return self._root._flattened[mesh_dim].get_group()
        place = self._position(mesh_dim)
        if not self._groups:
            raise RuntimeError("DeviceMesh process groups not initialized!")
        return self._groups[place]

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of all dims."""
        return [self.get_group(d) for d in range(self.ndim)]

    def get_rank(self) -> int:
        """This process's rank among all."""
        return default_group().rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The place of this process along a dim."""
        place = self._position(mesh_dim)
        if self._coordinate is None:
            raise RuntimeError(f"DeviceMesh.get_local_rank: rank {self.get_rank()} is not in the mesh {self._ranks.tolist()}")
        return self._coordinate[place]

    def get_coordinate(self) -> tuple[int, ...] | None:
        """The place of this process in the grid; None if it has none."""
        return self._coordinate

    def _is_current_rank_part_of_mesh(self) -> bool:
        return self._coordinate is not None

    def _get_root_mesh(self) -> DeviceMesh:
        return self._root

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        if self.mesh_dim_names is None:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self.mesh_dim_names:
            return self
        if len(names) == 1 and names[0] in self._root._flattened and names[0] not in self.mesh_dim_names:
            return self._root._flattened[names[0]]
        dims, groups = [], []
        for name in names:
            flattened = None if name in self.mesh_dim_names else self._root._flattened.get(name)
            place = 0 if flattened is not None else self._position(name)
            mesh = self if flattened is None else flattened
            dims.append(mesh._dims_in_root[place])
            groups += mesh._groups[place : place + 1]
        flat = [d for several in dims for d in several]
        if sorted(set(flat)) != flat:
            raise KeyError(f"Invalid mesh_dim_names {names}: a slice has some of the mesh's dims in their order, {self.mesh_dim_names}")
        return DeviceMesh._part(self._root, self._root._at(tuple(dims)), names, groups, tuple(dims))

    def _get_all_submeshes(self, mesh_dim_name: str) -> list[DeviceMesh]:
        """The meshes along a dim from each place of the other dims, not from this process's alone."""
        place = self._position(mesh_dim_name)
        lines = numpy.moveaxis(self._ranks, place, -1).reshape(-1, self._ranks.shape[place])
        groups, dims = self._groups[place : place + 1], (self._dims_in_root[place],)
        return [DeviceMesh._part(self._root, line, (mesh_dim_name,), groups if self.get_rank() in line else [], dims) for line in lines]

    def __enter__(self) -> DeviceMesh:
        _mesh_resources.mesh_stack.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _mesh_resources.mesh_stack.pop()

    def _beside(self, other: DeviceMesh, where: str) -> DeviceMesh:
        """The mesh of this one's dims, and then of another's: both parts of one mesh."""
        root, dims = self._root, (*self._dims_in_root, *other._dims_in_root)
        flat = [d for several in dims for d in several]
        if other._root != root or len(set(flat)) != len(flat):
            raise ValueError(f"{where} lies over {other}, which must be another part of the mesh that {self} is a part of: slice both from one DeviceMesh")
        names = None if self.mesh_dim_names is None or other.mesh_dim_names is None else self.mesh_dim_names + other.mesh_dim_names
        return DeviceMesh._part(root, root._at(dims), names, [*self._groups, *other._groups], dims)

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The mesh of one dim with all of this one's ranks. All processes of the mesh that this is a part of call it."""
        root = self._root
        name = mesh_dim_name or "_".join(self.mesh_dim_names or ("flattened",))
        if name in (root.mesh_dim_names or ()) and self.ndim > 1:
            raise RuntimeError(f"{name} already exists for submesh of the {root}. Please specify another valid mesh_dim_name.")
        if self.ndim == 1:
            return self
        known = root._flattened.get(name)
        if known is not None:
            return known
        others = [d for d in range(root.ndim) if d not in self._root_dims]
        lines = root._ranks.transpose(*others, *self._root_dims).reshape(-1, self.size())
        group, own = _groups_of([sorted(int(r) for r in line) for line in lines], root.get_rank())
        made = DeviceMesh._part(root, own if own else lines[0], (name,), [group] if own else [], (self._root_dims,))
        root._flattened[name] = made
        return made

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DeviceMesh) or (self.device_type, self.shape, self.mesh_dim_names) != (other.device_type, other.shape, other.mesh_dim_names):
            return False
        return bool((self._ranks == other._ranks).all())

    def __hash__(self) -> int:
        return hash((self.device_type, self.shape, self.mesh_dim_names, self._ranks.tobytes()))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else ", ".join(f"{n}={s}" for n, s in zip(self.mesh_dim_names, self.shape, strict=True))
        return f"DeviceMesh(({names or ', '.join(map(str, self.shape))}), '{self.device_type}')"


class _Meshes(threading.local):
    """The meshes that `with mesh:` has made current in a thread, and older names of what meshes know of themselves."""

    def __init__(self) -> None:
        self.mesh_stack: list[DeviceMesh] = []

    def get_current_mesh(self) -> DeviceMesh:
        """The innermost `with mesh:`; RuntimeError outside of all."""
        if not self.mesh_stack:
            raise RuntimeError("No device mesh is currently active!")
        return self.mesh_stack[-1]

    def get_root_mesh(self, device_mesh: DeviceMesh) -> DeviceMesh:
        """The mesh that this one was sliced from; itself where it was not."""
        return device_mesh._get_root_mesh()

    def _get_all_submeshes(self, device_mesh: DeviceMesh, mesh_dim_name: str) -> list[DeviceMesh]:
        return device_mesh._get_all_submeshes(mesh_dim_name)


_mesh_resources = _Meshes()


def _groups_of(lines: list[list[int]], rank: int) -> tuple[Any, list[int]]:
    """A group for each list of ranks, made by all processes in this order: (the own one, its ranks)."""
    whole = default_group()
    if lines == [list(whole.ranks)]:
        return whole, lines[0]
    found: tuple[Any, list[int]] = GroupMember.NON_GROUP_MEMBER, []  # None would be all processes
    for line in lines:
        made = new_group(line)
        if rank in line:
            found = made, line
    return found


def _groups_along(ranks: Any, dim: int) -> Any:
    lines = numpy.moveaxis(ranks, dim, -1).reshape(-1, ranks.shape[dim])
    return _groups_of([[int(r) for r in line] for line in lines], default_group().rank())[0]


def init_device_mesh(
    device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None, backend_override: Any = None
) -> DeviceMesh:
    """A mesh of this shape over ranks 0, 1, ... in order. RuntimeError where shape and names do not fit, or there are too few ranks."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(f"Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}")
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_shape): {len(mesh_shape)}, len(mesh_dim_names): {len(mesh_dim_names)}"
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(f"Device type with index is not supported but got {device_type}.")
    shape = tuple(mesh_shape)
    return DeviceMesh(device_type, numpy.arange(int(numpy.prod(shape, dtype=numpy.int64))).reshape(shape), mesh_dim_names=mesh_dim_names)
