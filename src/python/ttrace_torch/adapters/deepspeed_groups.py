"""DeepSpeed: the engine that the model is wrapped in, which averages gradients over its data parallel ranks.

With Ulysses, gradients are averaged over the ranks that share a sequence, too (`sp`). A PipelineModule has a grid of
ranks."""

import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..factoring import Group
from ..mesh_position import MeshPosition
from .averaging import Averaging, words_of

MODULE = "deepspeed.runtime.engine"
_GROUPS = "deepspeed.utils.groups"
_GRID = {"pp": "get_pipe_parallel_group", "tp": "get_slice_parallel_group", "dp": "get_data_parallel_group"}


def groups(model: torch.nn.Module | None) -> Iterator[Group]:
    engine = _engine(model)
    if engine is None:
        return
    grid = getattr(engine.module, "_grid", None)
    for name, getter in _GRID.items() if grid is not None else ():
        yield Group(name, _ranks_of(getattr(grid, getter)()))
    known = sys.modules[_GROUPS]
    for name, getter in (("sp", known._get_sequence_parallel_group), ("dp", known._get_data_parallel_group)):
        ranks = _ranks_of(_group_or_none(getter))
        if ranks:
            yield Group(name, ranks)
    yield Group("dp", _ranks_of(engine.seq_data_parallel_group))


def words(model: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
    engine = _engine(model)
    if engine is None:
        return {}
    ranks = _ranks_of(engine.seq_data_parallel_group)
    return words_of([Averaging([ranks], len(ranks) if engine.gradient_average else 1)], position)


def _engine(model: torch.nn.Module | None) -> Any:
    kind = getattr(sys.modules[MODULE], "DeepSpeedEngine", ())
    modules = () if model is None else model.modules()
    return next((module for module in modules if isinstance(module, kind)), None)


def _group_or_none(getter: Any) -> Any:
    """DeepSpeed raises where there is no such group."""
    try:
        return getter()
    except (AssertionError, KeyError):
        return None


def _ranks_of(group: Any) -> tuple[int, ...]:
    return () if group is None else tuple(torch.distributed.get_process_group_ranks(group))
