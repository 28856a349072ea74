"""Which rank this is, of how many, and where it stands on the mesh."""

import os

import torch

from . import adapters
from .factoring import factoring
from .mesh_position import MeshPosition


def rank_and_world_size() -> tuple[int, int]:
    """torch.distributed's, once it is initialised; else what a launcher put into the environment; else one rank."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


def position_of_this_rank(axes: str, model: torch.nn.Module | None) -> MeshPosition:
    """`axes` is what the user said, or "": then the frameworks are asked, which may know it only when a model runs."""
    rank, world_size = rank_and_world_size()
    if axes or world_size == 1:
        return MeshPosition(rank, world_size, axes, "")
    return MeshPosition(rank, world_size, *(_from_frameworks(world_size, model) or ("", "")))


def _from_frameworks(world_size: int, model: torch.nn.Module | None) -> tuple[str, str] | None:
    """Axes and coordinates; None where nobody knows."""
    in_use = adapters.in_use()
    for adapter in in_use:
        found = adapter.find(world_size) if hasattr(adapter, "find") else None
        if found is not None:
            return found
    groups = [group for adapter in in_use if hasattr(adapter, "groups") for group in adapter.groups(model)]
    axes = factoring(groups, world_size)
    if axes is None:
        return None
    found = MeshPosition(0, world_size, axes, "")
    data_parallel = adapters.device_mesh.data_parallel_axis(found.sizes())
    if data_parallel is None or found.axis_named("dp") is not None:
        return axes, ""
    dense, *experts = axes.split("/")
    return "/".join([f"{dense},dp={data_parallel}", *experts]), ""
