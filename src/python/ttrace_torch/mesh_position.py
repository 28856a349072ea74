"""Where a rank stands on the mesh of all ranks."""

import itertools
from dataclasses import dataclass


@dataclass(frozen=True)
class MeshPosition:
    rank: int
    world_size: int
    axes: str  # as in `--axes`: "tp=2,dp=2,sp=tp", fastest first; "/" begins another factoring; "" one rank, or unknown
    coordinates: str  # "tp=1,dp=0", or "" where they follow from the rank

    @property
    def is_known(self) -> bool:
        return self.world_size == 1 or self.axes != ""

    def sizes(self) -> dict[str, int]:
        """Of the axes, in order, without aliases."""
        return _numbers(self.axes)

    def coordinate(self, axis: str) -> int:
        """On `axis`; 0 for one that the mesh lacks."""
        coordinates = _numbers(self.coordinates) if self.coordinates else self._coordinates_of(self.rank)
        return coordinates.get(axis, 0)

    def size(self, axis: str) -> int:
        return _numbers(self.axes)[axis]

    def axis_named(self, name: str) -> str | None:
        """The axis that `name` or the alias `name` stands for; None where there is neither."""
        return name if name in _numbers(self.axes) else _aliases(self.axes).get(name)

    def axes_joining(self, ranks: list[int], called: str | None = None) -> list[tuple[str, int]]:
        """Name and size of the axis, or of the nested axes, outermost first, along which `ranks`, this one among
        them, follow each other; empty where there is none. Where several factorings have such axes, it is the first of
        them, or the axis `called`. For coordinates that follow from the rank."""
        found = [self._axes_joining(ranks, _numbers(factoring)) for factoring in self.axes.split("/")]
        named = [(called, len(ranks))]
        return named if named in found else next(filter(None, found), [])

    def _axes_joining(self, ranks: list[int], factoring: dict[str, int]) -> list[tuple[str, int]]:
        coordinates = [self._coordinates_of(rank) for rank in ranks]
        first_change = {}  # axis -> index of the first of `ranks` with another coordinate
        for axis in factoring:
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


def _numbers(text: str) -> dict[str, int]:
    """Names with a number, of all factorings, in order; aliases (`sp=tp`) are left out."""
    pairs = (item.split("=", 1) for item in text.replace("/", ",").split(",") if "=" in item)
    return {name: int(value) for name, value in pairs if value.isdigit()}


def _aliases(text: str) -> dict[str, str]:
    pairs = (item.split("=", 1) for item in text.replace("/", ",").split(",") if "=" in item)
    return {name: value for name, value in pairs if not value.isdigit()}
