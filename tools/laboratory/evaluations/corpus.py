"""The bug corpus: the 14 silent bugs of TTrace's Table 1, each in the configuration that triggers it, with the tensor
at which it must be found. The mechanisms are in tinygpt, under the names of `--bug`."""

from dataclasses import dataclass

from sweeps.configurations import (
    GPT,
    GPT_PER_TOKEN,
    GPT_STEPS,
    GPT_TIED,
    MOE,
    PER_TOKEN_GRADIENTS,
    Configuration,
    Model,
)

# The first step overflows, and the second, with half the scale, does not. Gradients of a sum over tokens are the same
# numbers however micro-batches are dealt out to ranks, and so is what overflows.
SKIPPED_STEP = Model(
    "gpt-skipped",
    "--steps 2 --per-token-loss --loss-scale 16384 --seed 8",
    iterations="0-1",
    parameters=PER_TOKEN_GRADIENTS,
)


@dataclass(frozen=True)
class First:
    """The first wrong tensor, as the report's `root_cause` has it."""

    name: str
    kind: str
    microbatch: int | None  # None: a tensor of the whole step
    iteration: int = 0

    def __str__(self) -> str:
        place = f"iteration {self.iteration}" + ("" if self.microbatch is None else f", micro-batch {self.microbatch}")
        return f"{self.name} {self.kind}, {place}"


@dataclass(frozen=True)
class Case:
    number: int  # in Table 1
    bug: str  # tinygpt's --bug
    configuration: Configuration  # of the wrong run
    first: First
    twin: Configuration  # the correct run beside it

    @property
    def diagnosis(self) -> str:
        """The word of the report (src/manual/report.md) that says what was done wrong."""
        return _DIAGNOSES[self.bug]


def _case(
    number: int,
    bug: str,
    model: Model,
    dtype: str,
    sizes: dict[str, int],
    flags: str,
    first: First,
    twin_flags: str | None = None,
) -> Case:
    """`twin_flags`: of a bug whose configuration the correct program refuses."""
    twin = Configuration(model, dtype, sizes, flags if twin_flags is None else twin_flags)
    return Case(number, bug, Configuration(model, dtype, sizes, flags), first, twin)


_DIAGNOSES = {
    "embedding-mask": "other-rows",  # foreign tokens get the row of token 0
    "stale-recompute-input": "other-tensor",
    "cp-loss-scale": "uniform-factor",
    "cp-gradient-scale": "uniform-factor",
    "zero-tied-embedding": "missing-contribution",
    "router-gradient": "unreduced",
    "fp8-amax-group": "rank-factor",
    "fp8-weight-cache": "zero",  # what is read was never written: the bias is left
    "skipped-step": "left-over",  # what overflowed is never zeroed
    "stage-division": "missing",
    "overwritten-buffer": "stale-operand",
    "norm-gradient": "unreduced",
    "strided-gradient": "reinterpreted",
    "norm-gradient-tp": "uniform-factor",
}

# Two steps, so that the copies of the tied weight can drift apart.
TIED_TWICE = Model(
    "gpt-tied-twice", f"{GPT_TIED.arguments} --steps 2", parameters=GPT_TIED.parameters, iterations="0-1"
)
TEN_LAYERS = Model("gpt-ten-layers", "--layers 10 --hidden 32 --seq 16 --vocab 64")

CASES = [
    _case(1, "embedding-mask", GPT, "bf16", dict(tp=2), "--sp", First("embedding.word_embeddings", "output", 0)),
    _case(
        2,
        "stale-recompute-input",
        GPT,
        "bf16",
        dict(tp=2),
        "--sp --recompute reentrant --recompute-layers 2",
        First("decoder.layers.1:0", "input", 0),
    ),
    # The loss from which backward starts; the one that is printed is right.
    _case(3, "cp-loss-scale", GPT_PER_TOKEN, "bf16", dict(cp=2), "--cp-gradients average", First("loss", "scalar", 0)),
    _case(
        4,
        "cp-gradient-scale",
        GPT,
        "bf16",
        dict(cp=2),
        "--cp-gradients average",
        First("embedding.word_embeddings.weight", "main_grad", None),
    ),
    _case(
        5,
        "zero-tied-embedding",
        TIED_TWICE,
        "bf16",
        dict(dp=2, pp=2),
        "--zero 1",
        First("embedding.word_embeddings.weight", "main_grad", None),
    ),
    _case(
        6,
        "router-gradient",
        MOE,
        "bf16",
        dict(tp=2),
        "--sp",
        First("decoder.layers.0.mlp.router.weight", "main_grad", None),
    ),
    _case(
        7,
        "fp8-amax-group",
        GPT_STEPS,
        "fp8",
        dict(tp=2),
        "--sp",
        First("decoder.layers.0.self_attention.linear_qkv", "output", 0, iteration=1),
    ),
    _case(
        8,
        "fp8-weight-cache",
        GPT,
        "fp8",
        dict(pp=2),
        "--recompute reentrant",
        First("decoder.layers.0.self_attention.linear_qkv", "output", 1),
    ),
    _case(
        9,
        "skipped-step",
        SKIPPED_STEP,
        "fp16",
        dict(dp=2),
        "--zero 1 --overlap-param-gather",
        First("embedding.word_embeddings.weight", "main_grad", None, iteration=1),
    ),
    _case(
        10,
        "stage-division",
        TEN_LAYERS,
        "bf16",
        dict(pp=2, vpp=2),
        "",
        First("decoder.layers.4.input_layernorm.weight", "param", None),
        twin_flags="--first-stage-layers 6",
    ),
    _case(
        11,
        "overwritten-buffer",
        GPT,
        "bf16",
        dict(tp=2),
        "--sp --gather-buffers",
        First("decoder.layers.2.mlp.linear_fc1.weight", "param_grad", 0),
    ),
    _case(
        12, "norm-gradient", GPT, "bf16", dict(tp=2), "--sp", First("decoder.final_layernorm.weight", "main_grad", None)
    ),
    _case(
        13,
        "strided-gradient",
        GPT,
        "bf16",
        dict(cp=2),
        "",
        First("decoder.layers.3.self_attention.core_attention:0", "grad_input", 0),
    ),
    _case(
        14,
        "norm-gradient-tp",
        GPT,
        "fp8",
        dict(tp=2, cp=2),
        "--sp",
        First("decoder.layers.3.pre_mlp_layernorm.weight", "param_grad", 0),
    ),
]
