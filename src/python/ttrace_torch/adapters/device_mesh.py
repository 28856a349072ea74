"""PyTorch's DeviceMesh: the meshes that the program made with `init_device_mesh` and what it sliced from them."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from ..factoring import Group
from ..living import instances_named
from .adapter import Adapter, Level

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_MODULE = "torch.distributed.device_mesh"


class DeviceMeshes(Adapter, module=_MODULE, level=Level.MESH):
    def find(self, world_size: int) -> tuple[str, str] | None:
        """The axes and coordinates of a mesh of all ranks in an order of their own; None where there is none."""
        whole = [mesh for mesh in _meshes() if mesh.mesh_dim_names and mesh.mesh.numel() == world_size]
        if all(_in_order(mesh) for mesh in whole):
            return None
        dims = max(mesh.mesh.ndim for mesh in whole)
        found = {_texts(mesh) for mesh in whole if mesh.mesh.ndim == dims}
        return found.pop() if len(found) == 1 else None

    def groups(self, _: torch.nn.Module | None) -> Iterator[Group]:
        """Of each dimension of each mesh, those with the most dimensions first."""
        meshes = [mesh for mesh in _meshes() if mesh.get_coordinate() is not None]
        for mesh in sorted(meshes, key=lambda mesh: -mesh.mesh.ndim):
            for dim, ranks in enumerate(ranks_of_dims(mesh)):
                if mesh.mesh_dim_names:
                    yield Group(mesh.mesh_dim_names[dim].lower(), ranks)
                else:
                    yield Group(f"dim{dim}" if mesh.mesh.ndim > 1 else "", ranks)


def ranks_of_dims(mesh: "DeviceMesh") -> list[tuple[int, ...]]:
    """For each dimension, the ranks that this one shares it with, in its order. The rank is part of the mesh."""
    at = mesh.get_coordinate()
    return [tuple(mesh.mesh[(*at[:dim], slice(None), *at[dim + 1 :])].tolist()) for dim in range(mesh.mesh.ndim)]


def _meshes() -> list["DeviceMesh"]:
    """PyTorch keeps no public list of them."""
    return instances_named((_MODULE, "DeviceMesh"))


def _in_order(mesh: "DeviceMesh") -> bool:
    """Whether coordinates follow from the rank: its dimensions are digits of the rank, in whatever order."""
    ranks, shape = mesh.mesh, mesh.mesh.shape
    first = int(ranks.flatten()[0])
    strides = []
    for dim, size in enumerate(shape):
        next_one = [0] * len(shape)
        next_one[dim] = min(1, size - 1)
        strides.append(int(ranks[tuple(next_one)]) - first)
    return all(
        int(ranks[at]) == first + sum(index * stride for index, stride in zip(at, strides, strict=True))
        for at in itertools.product(*map(range, shape))
    )


def _texts(mesh: "DeviceMesh") -> tuple[str, str]:
    """Axes and coordinates, as `find` returns them."""
    sizes = dict(zip((name.lower() for name in mesh.mesh_dim_names), mesh.mesh.shape, strict=True))
    # The last dimension is the fastest, which `axes` names first.
    axes = ",".join(f"{name}={size}" for name, size in reversed(list(sizes.items())))
    return axes, ",".join(f"{name}={at}" for name, at in zip(sizes, mesh.get_coordinate(), strict=True))
