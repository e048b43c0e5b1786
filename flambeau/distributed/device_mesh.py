"""torch.distributed.device_mesh: processes in a grid; of one process every dim of the grid is 1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.distributed.group import ProcessGroup, default_group, init_process_group, is_initialized


class DeviceMesh:
    """A grid of processes, `mesh` their ranks; `mesh[name]` is the grid of some of its dims.

    ValueError unless all dims are 1 and the rank is 0: there is one process.
    """

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None, _init_backend: bool = True) -> None:
        import flambeau

        self.device_type = device_type
        self.mesh = mesh if isinstance(mesh, flambeau.Tensor) else flambeau.tensor(mesh, dtype=flambeau.int)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh.numel() != 1 or self.mesh.item() != 0:
            raise ValueError(f"DeviceMesh: meshes of several ranks are not there yet, so the mesh holds rank 0 alone; got ranks {self.mesh.tolist()}")
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != self.mesh.ndim:
            raise RuntimeError(f"mesh_dim_names must have one name a dim: {self.mesh.ndim} dims and the names {self.mesh_dim_names}")
        if _init_backend and not is_initialized():
            init_process_group("gloo", rank=0, world_size=1)

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *, mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
        """The mesh of existing groups."""
        several = isinstance(group, (list, tuple))
        return DeviceMesh(device_type, [0] if mesh is None and not several else mesh, mesh_dim_names=mesh_dim_names, _init_backend=False)

    @property
    def ndim(self) -> int:
        """How many dims the grid has."""
        return int(self.mesh.ndim)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the grid."""
        return tuple(self.mesh.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """How many processes the grid has, or one of its dims."""
        return int(self.mesh.numel() if mesh_dim is None else self.mesh.size(mesh_dim))

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

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of the processes along a dim."""
        self._position(mesh_dim)
        return default_group()

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups of all dims."""
        return [default_group() for _ in range(self.ndim)]

    def get_rank(self) -> int:
        """0: this process."""
        return 0

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """0: the place of this process along a dim."""
        self._position(mesh_dim)
        return 0

    def get_coordinate(self) -> list[int]:
        """The place of this process in the grid."""
        return [0] * self.ndim

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        for name in names:
            self._position(name)
        return DeviceMesh(self.device_type, self.mesh.reshape([1] * len(names)), mesh_dim_names=names, _init_backend=False)

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        return DeviceMesh(self.device_type, [0], mesh_dim_names=None if mesh_dim_name is None else (mesh_dim_name,), _init_backend=False)

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, DeviceMesh) and (self.device_type, self.shape) == (other.device_type, other.shape)
        return same and self.mesh_dim_names == other.mesh_dim_names  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.device_type, self.shape, self.mesh_dim_names))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else ", ".join(f"{n}={s}" for n, s in zip(self.mesh_dim_names, self.shape, strict=True))
        return f"DeviceMesh(({names or ', '.join(map(str, self.shape))}), '{self.device_type}')"


def init_device_mesh(device_type: str, mesh_shape: tuple[int, ...], *, mesh_dim_names: tuple[str, ...] | None = None, **_: Any) -> DeviceMesh:
    """A mesh of this shape over all processes; ValueError unless all its sizes are 1."""
    import flambeau

    if any(n != 1 for n in mesh_shape):
        raise ValueError(f"init_device_mesh: meshes of several ranks are not there yet, so all sizes of the mesh are 1; got {tuple(mesh_shape)}")
    return DeviceMesh(device_type, flambeau.zeros(list(mesh_shape), dtype=flambeau.int), mesh_dim_names=mesh_dim_names)
