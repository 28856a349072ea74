"""What follows from averaging gradients over ranks.

Where gradients are averaged over ranks that run different micro-batches, each rank's own gradients are so many times
those of a program that runs all of the micro-batches and divides the loss by their number: `loss_scale` of annotations.
That holds for ranks that share a micro-batch, too, each with the loss of its part."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from ..mesh_position import MeshPosition

# A loss scale that nobody can tell: a check notes that.
UNKNOWN = "unknown"
# Axes whose ranks work on one micro-batch together, though gradients are averaged over them.
_SHARE_MICROBATCHES = ("cp", "sp", "tp")


class Averaging(NamedTuple):
    """What a wrapper does to the gradients of the modules in it."""

    groups: list[tuple[int, ...]]  # ranks; several: sharded in the one, replicated over the other
    divisor: float | None  # of the sum over the groups; None: the program does what nobody can know
    summed: tuple[int, ...] = ()  # those of the ranks over which gradients are summed and not averaged


def words_of(averagings: Iterable[Averaging], position: MeshPosition) -> dict[str, Any]:
    """As an adapter's `words`; `averagings` are those of all parts of the model, the outer ones first."""
    found = list(averagings)
    axes = [_axes(averaging, position) for averaging in found]
    if not any(axes) or None in axes:
        return {}
    said: dict[str, Any] = {}
    # The outermost part says it: the loss is one, and experts, to which the tokens of several ranks come, are averaged
    # over other ranks than all else.
    first = next(index for index, names in enumerate(axes) if names)
    said["loss_scale"] = _loss_scale(found[first], axes[first], position)
    different = [name for name, _ in max(axes, key=len) if name not in _SHARE_MICROBATCHES]
    if different and different != [position.axis_named("dp")]:
        said["microbatches"] = {"axis": different[0] if len(different) == 1 else different}
    return {key: word for key, word in said.items() if word}


def product(one: str, other: str) -> str:
    """Of two loss scales."""
    return UNKNOWN if UNKNOWN in (one, other) else f"{one}*{other}"


def _axes(averaging: Averaging, position: MeshPosition) -> list[tuple[str, int]] | None:
    """Names and sizes of the axes that the gradients are averaged over, outermost first; None where one is unknown."""
    if position.coordinates:
        return None
    axes = [position.axes_joining(list(ranks)) for ranks in reversed(averaging.groups) if len(ranks) > 1]
    return sum(axes, []) if all(axes) else None


def _loss_scale(averaging: Averaging, axes: list[tuple[str, int]], position: MeshPosition) -> str:
    summed = position.axes_joining(list(averaging.summed)) if len(averaging.summed) > 1 else []
    averaged = [axis for axis in axes if axis not in summed]
    if averaging.divisor == math.prod(size for _, size in averaged):
        return "*".join(name for name, _ in averaged)
    return "" if averaging.divisor == 1 else UNKNOWN
