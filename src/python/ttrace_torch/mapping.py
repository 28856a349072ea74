"""What a program says of where a tensor lies in the logical one, as a trace holds it (src/base/mapping.h)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .mesh_position import MeshPosition
from .problems import CollectError

# Axes that a mesh may lack, and then has with size 1 (annotations/README.md).
_WELL_KNOWN_AXES = ("tp", "sp", "cp", "dp", "ep", "etp", "pp", "edp")

Axes = Mapping[str, int | str]  # axis -> the dimension that it splits, "partial" or "replicate"; outermost first
Slice = tuple[Sequence[int], Sequence[int], Sequence[int]]  # local start, start, size


def mapping_of(
    name: str, position: MeshPosition, axes: Axes | None, shape: Sequence[int] | None, slices: Sequence[Slice] | None
) -> str:
    """JSON; "" where nothing is said. Raises CollectError."""
    if slices is not None and (axes is not None or shape is None):
        raise CollectError(f"record('{name}'): slices; expected with them the shape that they are parts of, no axes")
    mapping: dict[str, Any] = {}
    if axes is not None:
        mapping["axes"] = [entry for axis, rule in axes.items() for entry in _axis(name, position, axis, rule)]
    if slices is not None:
        mapping["axes"] = []
        parts = [dict(zip(("local", "start", "size"), map(list, part), strict=False)) for part in slices]
        mapping["fragment"] = {"whole": list(shape), "slices": parts}
    if shape is not None:
        mapping["shape"] = list(shape)
    return json.dumps(mapping) if mapping else ""


def _axis(name: str, position: MeshPosition, axis: str, rule: int | str) -> list[dict[str, Any]]:
    """Entries of the mapping; none for an axis that the mesh need not have."""
    found = position.axis_named(axis)
    if found is None and (position.world_size == 1 or axis in _WELL_KNOWN_AXES):
        return []
    if found is None:
        raise CollectError(f"record('{name}'): '{axis}' is not an axis of the trace; expected one of {position.axes}")
    if isinstance(rule, int):
        words = {"placement": "shard", "dim": rule}
    elif rule in ("replicate", "partial"):
        words = {"placement": rule}
    else:
        raise CollectError(f"record('{name}'): axis {axis} is '{rule}'; expected a dimension, replicate or partial")
    return [{"axis": axis, "size": position.size(found), **words}]
