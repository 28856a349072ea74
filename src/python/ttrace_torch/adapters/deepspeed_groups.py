"""DeepSpeed: the engine that the model is wrapped in, which averages gradients over its data parallel ranks.

With Ulysses, gradients are reduced over the ranks that share a sequence, too (`sp`): there they are summed. A
PipelineModule has a grid of ranks."""

import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..factoring import Group
from ..living import instances_of
from ..mesh_position import MeshPosition
from .adapter import Adapter, Level
from .averaging import Averaging, words_of

_MODULE = "deepspeed.runtime.engine"
_GROUPS = "deepspeed.utils.groups"
_GRID = {"pp": "get_pipe_parallel_group", "tp": "get_slice_parallel_group", "dp": "get_data_parallel_group"}


class DeepSpeedGroups(Adapter, module=_MODULE, level=Level.ENGINE):
    def groups(self, model: torch.nn.Module | None) -> Iterator[Group]:
        engine = _engine(model)
        if engine is None:
            return
        grid = getattr(engine.module, "_grid", None)
        for name, getter in _GRID.items() if grid is not None else ():
            yield Group(name, _ranks_of(getattr(grid, getter)()))
        sequence = _ranks_of_sequence()
        if sequence:
            yield Group("sp", sequence)
        data = _ranks_of(_group_or_none(sys.modules[_GROUPS]._get_data_parallel_group))
        if data:
            yield Group("dp", data)
        together = _ranks_of(engine.seq_data_parallel_group)
        yield Group("dp" if together != sequence else "", together)

    def words(self, model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
        engine = _engine(model)
        if engine is None:
            return {}
        ranks = _ranks_of(engine.seq_data_parallel_group)
        divisor = len(ranks) / engine.sequence_parallel_size if engine.gradient_average else 1
        return words_of([Averaging([ranks], divisor, _ranks_of_sequence())], position)


def _ranks_of_sequence() -> tuple[int, ...]:
    """Those that share a sequence; none without Ulysses."""
    return _ranks_of(_group_or_none(sys.modules[_GROUPS]._get_sequence_parallel_group))


def _engine(model: torch.nn.Module | None) -> Any:
    """The one that `model` holds, or that holds it: a pipeline's engine calls the layers of its module one by one."""
    kind = getattr(sys.modules[_MODULE], "DeepSpeedEngine", None)
    if model is None or kind is None:
        return None
    inside = next((module for module in model.modules() if isinstance(module, kind)), None)
    return inside or next((found for found in instances_of(kind) if model in found.modules()), None)


def _group_or_none(getter: Any) -> Any:
    """DeepSpeed raises where there is no such group."""
    try:
        return getter()
    except (AssertionError, KeyError):
        return None


def _ranks_of(group: Any) -> tuple[int, ...]:
    return () if group is None else tuple(torch.distributed.get_process_group_ranks(group))
