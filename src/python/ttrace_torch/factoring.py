"""How the ranks of a run are arranged, worked out from groups of ranks that the program uses.

A group that joins the ranks 0, 2, 4, 6 is a digit of the rank: its stride is 2, its size 4. A group may consist of
several digits (0, 1, 4, 5: the strides are 1 and 4). Where strides and ends of all groups divide each other, one after
the other, they cut the ranks into the coarsest axes that each group is made of: the finest factoring that the program
knows of. An axis has the name of the first group that is this axis alone; further names are its aliases."""

from collections.abc import Iterable
from typing import NamedTuple

_EXPERTS = ("ep", "etp", "edp", "efsdp")  # groups that factor the ranks in another way than all else
_OF_BOTH = ("pp", "dp_replicate")  # groups that divide the ranks of the experts as those of all else


class Group(NamedTuple):
    """Ranks that work together, this one among them."""

    name: str  # "" where the program has none: it says only where axes begin and end
    ranks: tuple[int, ...]


def factoring(groups: Iterable[Group], world_size: int) -> str | None:
    """The axes, as in `--axes`; None where the groups do not cover the ranks, or are no digits of them. Groups with one
    rank name an axis of size 1."""
    groups = list(groups)
    dense = _axes([group for group in groups if group.name not in _EXPERTS], world_size)
    if dense is None:
        return None
    experts = [group for group in groups if group.name in _EXPERTS and len(group.ranks) > 1]
    together = _axes(groups, world_size)
    if together is not None and together.sizes == dense.sizes:
        return together.text()
    apart = _axes([*experts, *(group for group in groups if group.name in _OF_BOTH)], world_size)
    return dense.text() if apart is None else f"{dense.text()}/{apart.text()}"


class _Axes:
    def __init__(self, sizes: dict[str, int], aliases: dict[str, str]):
        self.sizes, self.aliases = sizes, aliases  # the fastest first

    def text(self) -> str:
        return ",".join(f"{name}={value}" for name, value in {**self.sizes, **self.aliases}.items())


def _axes(groups: list[Group], world_size: int) -> _Axes | None:
    digits = [(group, _digits(group.ranks)) for group in groups]
    if any(found is None for _, found in digits):
        return None
    edges = sorted({1, world_size}.union(edge for _, found in digits for digit in found for edge in digit))
    if any(upper % lower for lower, upper in zip(edges, edges[1:], strict=False)):
        return None
    spans = list(zip(edges, edges[1:], strict=False))
    names: dict[tuple[int, int], list[str]] = {span: [] for span in spans}
    covered = {group: [span for span in spans if _lies_in(span, found)] for group, found in digits}
    for group, of_group in covered.items():
        if len(of_group) == 1 and group.name and group.name not in sum(names.values(), []):
            names[of_group[0]].append(group.name)
    for group, of_group in covered.items():  # what is left of one whose other axes have names
        unnamed = [span for span in of_group if not names[span]]
        if len(unnamed) == 1 and group.name and group.name not in sum(names.values(), []):
            names[unnamed[0]].append(group.name)
    if not all(names.values()):
        return None
    sizes = {names[span][0]: span[1] // span[0] for span in spans}
    aliases = {alias: of_span[0] for of_span in names.values() for alias in of_span[1:]}
    for group in groups:
        if len(group.ranks) == 1 and group.name and group.name not in {**sizes, **aliases}:
            sizes[group.name] = 1
    return _Axes(sizes, aliases)


def _lies_in(span: tuple[int, int], digits: list[tuple[int, int]]) -> bool:
    return any(begin <= span[0] and span[1] <= end for begin, end in digits)


def _digits(ranks: tuple[int, ...]) -> list[tuple[int, int]] | None:
    """Stride and end (stride times size) of the digits that tell these ranks apart, the fastest first; None where they
    are told apart in another way, or not in order."""
    base, left = ranks[0], [rank - ranks[0] for rank in ranks]
    digits: list[tuple[int, int]] = []
    while len(left) > 1:
        stride = left[1]
        size = next((n for n, offset in enumerate(left) if offset != n * stride), len(left))
        if stride <= 0 or (digits and stride % digits[-1][1]) or len(left) % size or base // stride % size:
            return None
        digits.append((stride, stride * size))
        heads = left[::size]
        if left != [head + n * stride for head in heads for n in range(size)]:
            return None
        left = heads
    return digits
