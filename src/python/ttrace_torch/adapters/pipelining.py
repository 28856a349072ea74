"""torch.distributed.pipelining: the stages of a pipeline, which its schedules run.

Before the first step, a stage that was not told the shapes of its inputs and outputs runs its module and its loss on
made-up values. From torch 2.13 on it does so in grad mode.

A program deletes from its model what other stages hold. Where that leaves the numbers of the layers, the names of
modules are those of the whole model: a stage behind the first whose layers do not begin at 0 says so.

Unless it is told otherwise, a schedule divides the gradients by the number of micro-batches once it has run them all;
until then they are those of undivided losses."""

import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..factoring import Group
from ..living import instances_named
from ..mesh_position import MeshPosition
from .adapter import Adapter, Function
from .averaging import UNKNOWN

_MODULE = "torch.distributed.pipelining.stage"
_SCHEDULES = "torch.distributed.pipelining.schedules"
_REHEARSALS = ("_forward_metadata_inference", "_backward_metadata_inference")


class Pipelining(Adapter, module=_MODULE):
    # Zero-bubble schedules have gradients of activations and of parameters computed apart.
    backward = (Function(_MODULE, "stage_backward_input"),)
    weight_backward = (Function(_MODULE, "_PipelineStageBase.backward_weight_one_chunk"),)

    def is_rehearsal(self) -> bool:
        """Whether one is going on, which called what calls this."""
        stage = getattr(sys.modules.get(_MODULE), "PipelineStage", None)
        codes = [getattr(stage, name).__code__ for name in _REHEARSALS if hasattr(stage, name)]
        caller = sys._getframe() if codes else None
        while caller is not None and caller.f_code not in codes:
            caller = caller.f_back
        return caller is not None

    def groups(self, _: torch.nn.Module | None) -> Iterator[Group]:
        for stage in instances_named((_MODULE, "_PipelineStageBase")):
            ranks = torch.distributed.get_process_group_ranks(stage.group or torch.distributed.group.WORLD)
            yield Group("pp", tuple(ranks))

    def words(self, _: torch.nn.Module, position: MeshPosition) -> dict[str, Any]:
        said: dict[str, Any] = {}
        stages = instances_named((_MODULE, "_PipelineStageBase"))
        keeps_numbers = any(stage.stage_index > 0 and _keeps_numbers(stage.submod) for stage in stages)
        if position.axis_named("pp") and keeps_numbers:
            said["pipeline"] = {"names": "global"}
            if any(_lies_in_a_v(stage) for stage in stages):
                said["pipeline"]["chunks"] = "v"
        # Of one run of a schedule; an iteration may have several.
        schedules = instances_named((_SCHEDULES, "_PipelineSchedule"))
        # Those that cannot be told (before torch 2.6) never divide.
        divisors = {each._n_microbatches if getattr(each, "scale_grads", False) else 1 for each in schedules}
        if len(divisors) == 1 and divisors != {1}:
            said["loss_scale"] = str(divisors.pop())
        elif len(divisors) > 1:
            said["loss_scale"] = UNKNOWN
        return said


def _lies_in_a_v(stage: Any) -> bool:
    """Whether the last stage is on the rank of the first one, as in zero-bubble's V schedules."""
    ranks = stage.stage_index_to_group_rank
    return stage.num_stages > stage.group_size > 1 and ranks[stage.num_stages - 1] == ranks[0]


def _keeps_numbers(stage: torch.nn.Module) -> bool:
    """Whether the numbered children of some module do not begin at 0."""
    return any(
        names and all(name.isdigit() for name in names) and "0" not in names
        for names in (list(module._modules) for module in stage.modules())
    )
