"""The bugs that `--bug NAME` switches on, each a real one, at the place where it was made.

Here are only the names. The mechanism sits where the bug would be: search for the name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinygpt.partition import layer_counts


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
    "stale-recompute-input": Bug(
        summary="each layer of a recomputed group gets the group's input, not the output of the layer before "
        "(Megatron-LM pull request 290)",
        needs="--recompute, and --recompute-layers 2 or more that a stage has",
        can_show=lambda options: (
            options.recompute != "none" and min(options.recompute_layers, max(layer_counts(options))) > 1
        ),
    ),
    "cp-loss-scale": Bug(
        summary="the loss is multiplied by cp also where its sum over tokens is divided at the end, and nothing by cp "
        "(Megatron-LM issue 673)",
        needs="--cp 2 or more, --cp-gradients average and --per-token-loss",
        can_show=lambda options: options.cp_gradients == "average" and options.per_token_loss,
    ),
    "cp-gradient-scale": Bug(
        summary="gradients are averaged over the data parallel group without its context parallel ranks "
        "(Megatron-LM issue 906)",
        needs="--cp 2 or more and --cp-gradients average, without --per-token-loss",
        can_show=lambda options: options.cp_gradients == "average" and not options.per_token_loss,
    ),
    "zero-tied-embedding": Bug(
        summary="the gradients of the tied weight are summed over first and last stage after ZeRO has reduced them, "
        "though other ranks own them on either stage (Megatron-LM issues 656 and 844)",
        needs="--tied, --zero 1 and --pp 2 or more",
        can_show=lambda options: options.tied and options.zero == 1 and options.pp > 1,
    ),
    "router-gradient": Bug(
        summary="the router's weight is not marked as sequence parallel: its gradient is not summed over tensor "
        "parallel ranks (Megatron-LM issue 599)",
        needs="--experts, --tp 2 or more and --sp",
        can_show=lambda options: options.experts > 0 and options.sp,
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
        can_show=lambda options: (
            options.fp8 and options.recompute == "reentrant" and options.pp > 1 and options.micro_batches > options.dp
        ),
    ),
    "skipped-step": Bug(
        summary="after a skipped step no parameters are gathered, and the gradient buffer, zeroed only when they have "
        "been copied out of it, keeps what overflowed (Megatron-LM issue 663)",
        needs="--dtype fp16, --zero 1, --overlap-param-gather and --steps 2 or more",
        can_show=lambda options: options.dtype == "fp16" and options.overlap_param_gather and options.steps > 1,
    ),
    "stage-division": Bug(
        summary="layers that do not divide into the chunks of the stages are not refused: rounding down drops some "
        "(Megatron-LM issue 468)",
        needs="--pp and --vpp 2 or more, and --layers that do not divide into their product",
        can_show=lambda options: options.vpp > 1 and sum(layer_counts(options)) < options.layers,
    ),
    "overwritten-buffer": Bug(
        summary="backward keeps the communication buffer with a linear's input instead of a copy: the next layer's "
        "linear overwrites it (Transformer Engine issue 1616)",
        needs="--gather-buffers, two layers on a stage and no --recompute",
        can_show=lambda options: (
            options.gather_buffers and options.recompute == "none" and max(layer_counts(options)) > 1
        ),
    ),
    "norm-gradient": Bug(
        summary="the final norm's parameters are not marked as sequence parallel: their gradients are not summed over "
        "tensor parallel ranks (Megatron-LM issue 1446)",
        needs="--tp 2 or more and --sp",
        can_show=lambda options: options.sp,
    ),
    "strided-gradient": Bug(
        summary="ring attention's backward reads the memory of an output gradient that is not contiguous as if it "
        "were (Transformer Engine issue 1557)",
        needs="--cp 2 or more with --cp-comm ring, --micro-batch-size 2 or more and no --packed",
        can_show=lambda options: (
            options.cp > 1 and options.cp_comm == "ring" and options.micro_batch_size > 1 and not options.packed
        ),
    ),
    "norm-gradient-tp": Bug(
        summary="with tensor and context parallelism, gradients of the norms before FP8 linears are summed over the "
        "tensor parallel ranks once too often (TransformerEngine issue 1677)",
        needs="--fp8, --tp 2 or more and --cp 2 or more",
        can_show=lambda options: options.fp8 and options.tp > 1 and options.cp > 1,
    ),
}
