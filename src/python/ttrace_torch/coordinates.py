"""Which rank this is, of how many, and where it stands on the mesh.

Micro-batches are told apart along the axis `dp` (unless annotations, or adapters/data_parallel.py, name another). Where
no axis that frameworks know of is called that and only one of several ranks has a data parallel name (`fsdp`,
`dp_shard`, `batch`, ...), `dp` is an alias of it."""

import itertools
import os

import torch

from . import adapters
from .adapters import Adapter
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
    found = adapters.first(Adapter.find, world_size)
    if found is not None:
        return found
    axes = factoring(itertools.chain.from_iterable(adapters.every(Adapter.groups, model)), world_size)
    if axes is None:
        return None
    position = MeshPosition(0, world_size, axes, "")
    data_parallel = _data_parallel_axis(position.sizes())
    if data_parallel is None or position.axis_named("dp") is not None:
        return axes, ""
    dense, *experts = axes.split("/")
    return "/".join([f"{dense},dp={data_parallel}", *experts]), ""


def _data_parallel_axis(sizes: dict[str, int]) -> str | None:
    """The one axis of several ranks that has a data parallel name."""
    data_parallel = [name for name, size in sizes.items() if size > 1 and _is_data_parallel(name)]
    return data_parallel[0] if len(data_parallel) == 1 else None


def _is_data_parallel(name: str) -> bool:
    is_named = "dp" in name or name.startswith("data") or name in ("replicate", "shard", "batch")
    return is_named and name not in ("edp", "efsdp")
