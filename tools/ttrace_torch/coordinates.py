"""Which rank this is, of how many, and where it stands on the mesh."""

import os
import sys
from dataclasses import dataclass
from typing import Dict, Tuple

import torch

from . import adapters
from .problems import CollectError


@dataclass(frozen=True)
class Place:
    rank: int
    world_size: int
    axes: str  # as in `--axes`: "tp=2,dp=2,sp=tp", fastest first; "/" begins another factoring of the ranks
    coordinates: str  # "tp=1,dp=0", or "" where they follow from the rank

    def coordinate(self, axis: str) -> int:
        """On `axis`; 0 for one that the mesh lacks."""
        if self.coordinates:
            return _numbers(self.coordinates).get(axis, 0)
        for factoring in self.axes.split("/"):
            rest = self.rank
            for name, size in _numbers(factoring).items():
                if name == axis:
                    return rest % size
                rest //= size
        return 0


def rank_and_world_size() -> Tuple[int, int]:
    """torch.distributed's, once it is initialised; else what a launcher put into the environment; else one rank."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    try:
        return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1


def place_of_this_rank(axes: str) -> Place:
    """`axes` is what the user said, or "". Raises CollectError where nobody says how several ranks are arranged."""
    rank, world_size = rank_and_world_size()
    if axes:
        return Place(rank, world_size, axes, "")
    if world_size == 1:
        return Place(rank, world_size, "", "")
    for adapter in adapters.ALL:
        found = adapter.find(world_size) if adapter.MODULE in sys.modules else None
        if found:
            return Place(rank, world_size, *found)
    raise CollectError(
        f"the run has {world_size} ranks and nothing says how they are arranged; "
        f"expected --axes, as in --axes tp={world_size}"
    )


def _numbers(text: str) -> Dict[str, int]:
    """Names with a number, in order; aliases (`sp=tp`) are left out."""
    pairs = (item.split("=", 1) for item in text.split(",") if "=" in item)
    return {name: int(value) for name, value in pairs if value.isdigit()}
