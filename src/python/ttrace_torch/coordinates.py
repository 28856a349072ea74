"""Which rank this is, of how many, and where it stands on the mesh."""

import itertools
import os
from dataclasses import dataclass

import torch

from . import adapters
from .problems import CollectError


@dataclass(frozen=True)
class MeshPosition:
    rank: int
    world_size: int
    axes: str  # as in `--axes`: "tp=2,dp=2,sp=tp", fastest first; "/" begins another factoring of the ranks
    coordinates: str  # "tp=1,dp=0", or "" where they follow from the rank

    def coordinate(self, axis: str) -> int:
        """On `axis`; 0 for one that the mesh lacks."""
        coordinates = _numbers(self.coordinates) if self.coordinates else self._coordinates_of(self.rank)
        return coordinates.get(axis, 0)

    def size(self, axis: str) -> int:
        return _numbers(self.axes)[axis]

    def axis_named(self, name: str) -> str | None:
        """The axis that `name` or the alias `name` stands for; None where there is neither."""
        return name if name in _numbers(self.axes) else _aliases(self.axes).get(name)

    def axes_joining(self, ranks: list[int]) -> list[tuple[str, int]]:
        """Name and size of the axis, or of the nested axes, outermost first, along which `ranks`, this one among
        them, follow each other; empty where there is none. For coordinates that follow from the rank."""
        coordinates = [self._coordinates_of(rank) for rank in ranks]
        first_change = {}  # axis -> index of the first of `ranks` with another coordinate
        for axis in _numbers(self.axes.split("/")[0]):
            changed = [index for index, other in enumerate(coordinates) if other[axis] != coordinates[0][axis]]
            if changed:
                first_change[axis] = changed[0]
        nested = sorted(first_change, key=lambda axis: -first_change[axis])  # the slowest is the outermost
        sizes = {axis: self.size(axis) for axis in nested}
        in_order = list(itertools.product(*(range(size) for size in sizes.values())))
        return list(sizes.items()) if in_order == [tuple(at[axis] for axis in nested) for at in coordinates] else []

    def _coordinates_of(self, rank: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for factoring in self.axes.split("/"):
            rest = rank
            for name, size in _numbers(factoring).items():
                found[name], rest = rest % size, rest // size
        return found


def rank_and_world_size() -> tuple[int, int]:
    """torch.distributed's, once it is initialised; else what a launcher put into the environment; else one rank."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


def position_of_this_rank(axes: str) -> MeshPosition:
    """`axes` is what the user said, or "". Raises CollectError where nobody says how several ranks are arranged."""
    rank, world_size = rank_and_world_size()
    if axes:
        return MeshPosition(rank, world_size, axes, "")
    if world_size == 1:
        return MeshPosition(rank, world_size, "", "")
    for adapter in adapters.in_use():
        found = adapter.find(world_size) if hasattr(adapter, "find") else None
        if found is not None:
            return MeshPosition(rank, world_size, *found)
    raise CollectError(
        f"the run has {world_size} ranks and nothing says how they are arranged; "
        f"expected --axes, as in --axes tp={world_size}"
    )


def _numbers(text: str) -> dict[str, int]:
    """Names with a number, in order; aliases (`sp=tp`) are left out."""
    pairs = (item.split("=", 1) for item in text.split(",") if "=" in item)
    return {name: int(value) for name, value in pairs if value.isdigit()}


def _aliases(text: str) -> dict[str, str]:
    pairs = (item.split("=", 1) for item in text.split(",") if "=" in item)
    return {name: value for name, value in pairs if not value.isdigit()}
