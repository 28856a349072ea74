"""torch.distributed.pipelining: before the first step, a stage that was not told the shapes of its inputs and outputs
runs its module and its loss on made-up values. From torch 2.13 on it does so in grad mode."""

import sys

MODULE = "torch.distributed.pipelining.stage"
_REHEARSALS = ("_forward_metadata_inference", "_backward_metadata_inference")


def is_rehearsal() -> bool:
    """Whether one of them is going on, which called what calls this."""
    stage = getattr(sys.modules.get(MODULE), "PipelineStage", None)
    codes = [getattr(stage, name).__code__ for name in _REHEARSALS if hasattr(stage, name)]
    caller = sys._getframe() if codes else None
    while caller is not None and caller.f_code not in codes:
        caller = caller.f_back
    return caller is not None
