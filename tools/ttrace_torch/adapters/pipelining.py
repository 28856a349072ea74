"""torch.distributed.pipelining: before the first step, a stage that was not told the shapes of its inputs and outputs
runs its module on made-up values, forward and (from torch 2.13 on, in grad mode) backward."""

import sys

MODULE = "torch.distributed.pipelining.stage"


def is_rehearsal() -> bool:
    """Of the module call that the collector was just told of."""
    stage = getattr(sys.modules.get(MODULE), "PipelineStage", None)
    rehearse = getattr(stage, "_forward_metadata_inference", None)
    caller = sys._getframe() if rehearse is not None else None
    while caller is not None and caller.f_code is not rehearse.__code__:
        caller = caller.f_back
    return caller is not None
