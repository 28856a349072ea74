"""The bugs that `--bug NAME` switches on, each a real one, at the place where it was made.

Here are only the names. The mechanism sits where the bug would be: search for the name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Bug:
    summary: str
    needs: str  # what the run must have for the bug to show
    can_show: Callable[[Any], bool]  # of the Options


BUGS = {
    "embedding-mask": Bug(
        summary="the mask of foreign token ids is rebuilt from ids that were already shifted to the rank's "
        "own vocabulary range (slapo pull request 80)",
        needs="--tp 2 or more",
        can_show=lambda options: options.tp > 1,
    ),
    "fp8-amax-group": Bug(
        summary="the largest magnitudes from which FP8 scales follow are reduced over the data parallel ranks only, so "
        "that tensor parallel ranks exchange codes of different scales (Megatron-LM pull request 442)",
        needs="--fp8, --tp 2 or more, --sp and --steps 2 or more",
        can_show=lambda options: options.fp8 and options.sp and options.steps > 1,
    ),
    "fp8-weight-cache": Bug(
        summary="the pass without gradients of recomputation does not write the FP8 weights that later micro-batches "
        "read (TransformerEngine issue 539)",
        needs="--fp8, --recompute reentrant, --pp 2 or more and two micro-batches on each rank",
        can_show=lambda options: options.fp8 and options.recompute == "reentrant" and options.pp > 1
        and options.micro_batches > options.dp,
    ),
    "skipped-step": Bug(
        summary="after a skipped step no parameters are gathered, and the gradient buffer, zeroed only when they have "
        "been copied out of it, keeps what overflowed (Megatron-LM issue 663)",
        needs="--dtype fp16, --zero 1, --overlap-param-gather and --steps 2 or more",
        can_show=lambda options: options.dtype == "fp16" and options.overlap_param_gather and options.steps > 1,
    ),
    "norm-gradient-tp": Bug(
        summary="with tensor and context parallelism, gradients of the norms before FP8 linears are summed over the "
        "tensor parallel ranks once too often (TransformerEngine issue 1677)",
        needs="--fp8, --tp 2 or more and --cp 2 or more",
        can_show=lambda options: options.fp8 and options.tp > 1 and options.cp > 1,
    ),
}
