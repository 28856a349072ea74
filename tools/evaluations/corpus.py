"""The bug corpus: the 14 silent bugs of TTrace's Table 1, each in the configuration that triggers it, with the tensor at
which it must be found. The mechanisms are in tinygpt, under the names of `--bug`."""

from dataclasses import dataclass
from typing import Dict, Optional

from sweeps.configurations import GPT, GPT_STEPS, PER_TOKEN_GRADIENTS, Configuration, Model

# The first step overflows, and the second, with half the scale, does not. Gradients of a sum over tokens are the same
# numbers however micro-batches are dealt out to ranks, and so is what overflows.
SKIPPED_STEP = Model("gpt-skipped", "--steps 2 --per-token-loss --loss-scale 16384 --seed 8", iterations="0-1",
                     edits=PER_TOKEN_GRADIENTS)  # fmt: skip


@dataclass(frozen=True)
class First:
    """The first wrong tensor, as the report's `root_cause` has it."""

    name: str
    kind: str
    microbatch: Optional[int]  # None: a tensor of the whole step
    iteration: int = 0


@dataclass(frozen=True)
class Case:
    number: int  # in Table 1
    bug: str  # tinygpt's --bug
    configuration: Configuration  # of the wrong run; without --bug it is the correct twin
    first: First


def _case(number: int, bug: str, model: Model, dtype: str, sizes: Dict[str, int], flags: str, first: First) -> Case:
    return Case(number, bug, Configuration(model, dtype, sizes, flags), first)


CASES = [
    _case(1, "embedding-mask", GPT, "bf16", dict(tp=2), "--sp", First("embedding.word_embeddings", "output", 0)),
    _case(7, "fp8-amax-group", GPT_STEPS, "fp8", dict(tp=2), "--sp",
          First("decoder.layers.0.self_attention.linear_qkv", "output", 0, iteration=1)),
    _case(8, "fp8-weight-cache", GPT, "fp8", dict(pp=2), "--recompute reentrant",
          First("decoder.layers.0.self_attention.linear_qkv", "output", 1)),
    _case(9, "skipped-step", SKIPPED_STEP, "fp16", dict(dp=2), "--zero 1 --overlap-param-gather",
          First("embedding.word_embeddings.weight", "main_grad", None, iteration=1)),
    _case(14, "norm-gradient-tp", GPT, "fp8", dict(tp=2, cp=2), "--sp",
          First("decoder.layers.3.pre_mlp_layernorm.weight", "param_grad", 0)),
]
