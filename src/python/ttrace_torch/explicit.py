"""`ttrace_torch.record`: a tensor that the program itself names and places."""

import json
from collections.abc import Sequence

import torch

from . import library
from .collector import Collector
from .coordinates import Place
from .modules import Modules
from .problems import CollectError

_KINDS = {
    "output": library.OUTPUT,
    "input": library.INPUT,
    "grad_output": library.GRAD_OUTPUT,
    "grad_input": library.GRAD_INPUT,
    "scalar": library.SCALAR,
}
# Axes that a mesh may lack, and then has with size 1 (annotations/README.md).
_WELL_KNOWN = ("tp", "sp", "cp", "dp", "ep", "etp", "pp", "edp")

Slice = tuple[Sequence[int], Sequence[int], Sequence[int]]


class Explicit:
    def __init__(self, collector: Collector, modules: Modules):
        self._collector, self._modules = collector, modules

    def record(
        self,
        name: str,
        tensor: torch.Tensor,
        kind: str,
        axes: dict[str, int | str] | None,
        shape: Sequence[int] | None,
        slices: Sequence[Slice] | None,
    ) -> None:
        self._collector.safely(self._record, name, tensor, kind, axes, shape, slices)

    def _record(self, name, tensor, kind, axes, shape, slices) -> None:
        if kind not in _KINDS:
            raise CollectError(f"record('{name}'): kind '{kind}'; expected one of {', '.join(_KINDS)}")
        at = self._modules.place_of_program()
        if at is None:
            return
        microbatch, pass_, calls = at
        call = calls.get(name, 0)
        calls[name] = call + 1
        mapping = _mapping(name, self._collector.open().place, axes, shape, slices)
        self._collector.record(microbatch, pass_, _KINDS[kind], f"{name}#{call}" if call else name, "", tensor, mapping)


def _mapping(name: str, place: Place, axes, shape, slices) -> str:
    if slices is not None and (axes is not None or shape is None):
        raise CollectError(f"record('{name}'): slices; expected with them the shape that they are parts of, no axes")
    mapping = {}
    if axes is not None:
        mapping["axes"] = [entry for axis, rule in axes.items() for entry in _axis(name, place, axis, rule)]
    if slices is not None:
        mapping["axes"] = []
        parts = [dict(zip(("local", "start", "size"), map(list, part))) for part in slices]
        mapping["fragment"] = {"whole": list(shape), "slices": parts}
    if shape is not None:
        mapping["shape"] = list(shape)
    return json.dumps(mapping) if mapping else ""


def _axis(name: str, place: Place, axis: str, rule: int | str) -> list:
    found = place.axis_named(axis)
    if found is None and (place.world_size == 1 or axis in _WELL_KNOWN):
        return []
    if found is None:
        raise CollectError(f"record('{name}'): '{axis}' is not an axis of the trace; expected one of {place.axes}")
    if isinstance(rule, int):
        words = {"placement": "shard", "dim": rule}
    elif rule in ("replicate", "partial"):
        words = {"placement": rule}
    else:
        raise CollectError(f"record('{name}'): axis {axis} is '{rule}'; expected a dimension, replicate or partial")
    return [{"axis": axis, "size": place.size(found), **words}]
