"""What is swept: models, each with a reference on one process, and the ways to run them in parallel."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ANNOTATIONS = ROOT / "annotations"


@dataclass(frozen=True)
class Model:
    """Arguments that reference and candidate share, and the annotations that fit them."""

    name: str
    arguments: str
    annotations: Path = ANNOTATIONS / "megatron_gpt.yaml"
    parameters: dict[str, int | str] = field(default_factory=dict, hash=False)  # of the annotations: its own numbers
    program: str = "tinygpt"
    iterations: str = "0"  # to record; the arguments need --steps for more than the first
    reference: dict[str, int] = field(default_factory=dict, hash=False)  # sizes by axis, where it is no single process


GPT = Model("gpt", "")
PER_TOKEN_GRADIENTS = {"loss_scale": 1}
GPT_PER_TOKEN = Model("gpt-per-token", "--per-token-loss", parameters=PER_TOKEN_GRADIENTS)
GPT_TIED = Model("gpt-tied", "--tied", parameters={"tied_to": "embedding.word_embeddings.weight"})
GPT_PADDED = Model("gpt-padded", "--vocab 100")
GPT_PACKED = Model("gpt-packed", "--packed", Path(__file__).with_name("gpt_packed.yaml"))


def _llama(heads: int, kv_heads: int) -> Model:
    return Model(
        f"llama-{heads}-{kv_heads}",
        f"--arch llama --heads {heads} --kv-heads {kv_heads} --hidden {heads * 16}",
        ROOT / "tools" / "tinygpt" / "llama.yaml",
        {"query_heads": heads, "kv_heads": kv_heads},
    )


LLAMA = _llama(4, 2)
LLAMA_UNEVEN = _llama(6, 3)
MOE = Model("moe", "--experts 4 --topk 2", ANNOTATIONS / "megatron_moe.yaml")
# The reference of a model that no single process holds: a pipeline (TTrace, section 6.4).
GPT_PIPELINED = Model("gpt-pipelined", "", reference=dict(pp=2))
# Says itself where its tensors lie.
TORCH = Model("torch", "", ANNOTATIONS / "torch_fsdp2_tp.yaml", program="torchgpt")


def dtype_arguments(dtype: str) -> list[str]:
    """Of --dtype, or "fp8": the linears' operands in FP8, all else in bf16."""
    return ["--dtype", "bf16", "--fp8"] if dtype == "fp8" else ["--dtype", dtype]


@dataclass(frozen=True)
class Configuration:
    model: Model
    dtype: str  # as for `dtype_arguments`
    sizes: dict[str, int] = field(hash=False)  # by axis: tp, cp, dp, pp, ep, etp
    flags: str = ""

    @property
    def world_size(self) -> int:
        product = 1
        for axis in ("tp", "cp", "dp", "pp", "fsdp"):
            product *= self.sizes.get(axis, 1)
        return product

    @property
    def name(self) -> str:
        sizes = [f"{axis}{size}" for axis, size in self.sizes.items()]
        return " ".join([self.model.name, self.dtype, *sizes, *self.flags.split()])

    @property
    def axes(self) -> str:
        """For `ttrace collect --axes`; nothing where the program's device mesh says it. Experts lie on the same ranks
        in another order."""
        if self.model.program == "torchgpt":
            return ""
        text = ",".join(f"{axis}={self.sizes.get(axis, 1)}" for axis in ("tp", "cp", "dp", "pp"))
        if "--sp" in self.flags:
            text += ",sp=tp"
        if "--experts" in self.model.arguments:
            etp, ep, pp = (self.sizes.get(axis, 1) for axis in ("etp", "ep", "pp"))
            text += f"/etp={etp},ep={ep},edp={self.world_size // (etp * ep * pp)},pp={pp}"
        return text

    @property
    def parameters(self) -> dict[str, int | str]:
        """Of the annotations: the model's, and what the flags say."""
        parameters = dict(self.model.parameters)
        words = self.flags.split()
        if "--cp-layout" in words:
            parameters["cp_layout"] = words[words.index("--cp-layout") + 1]
        if "--first-stage-layers" in words:
            parameters["first_stage_layers"] = int(words[words.index("--first-stage-layers") + 1])
        if "--cp-gradients average" in self.flags:
            parameters.setdefault("loss_scale", "dp*cp")  # of a model whose gradients are not sums over tokens
        return parameters

    @property
    def arguments(self) -> list[str]:
        sizes = [word for axis, size in self.sizes.items() for word in (f"--{axis}", str(size))]
        return [*self.model.arguments.split(), *dtype_arguments(self.dtype), *sizes, *self.flags.split()]


_ONE_DTYPE = {"gpt-pipelined": "bf16", "gpt-padded": "bf16", "gpt-per-token": "fp32", "llama-6-3": "bf16"}

# (model, sizes, flags), run in both dtypes unless the model has one.
_TABLE: list[tuple[Model, dict[str, int], str]] = [
    # One axis.
    (GPT, dict(tp=2), ""),
    (GPT, dict(tp=4), "--sp"),
    (GPT, dict(cp=2), ""),
    (GPT, dict(cp=4), "--cp-comm allgather"),
    (GPT, dict(cp=2), "--cp-layout contiguous"),
    (GPT, dict(cp=2), "--cp-layout striped"),
    (GPT, dict(dp=4), ""),
    (GPT, dict(dp=2), "--zero 1"),
    (GPT, dict(dp=2), "--zero 2"),
    (GPT, dict(pp=2), ""),
    (GPT, dict(pp=4), ""),
    (GPT, dict(pp=2), "--first-stage-layers 1"),
    (GPT, dict(pp=2, vpp=2), ""),
    # Pairs.
    (GPT, dict(tp=2, cp=2), "--sp"),
    (GPT, dict(tp=2, dp=2), "--sp"),
    (GPT, dict(tp=2, pp=2), "--sp --recompute non-reentrant"),
    (GPT, dict(cp=2, dp=2), ""),
    (GPT, dict(cp=2, pp=2), ""),
    (GPT, dict(dp=2, pp=2), "--zero 1"),
    (GPT, dict(dp=2, pp=2, vpp=2), ""),
    (GPT, dict(tp=2, dp=2), "--zero 1"),
    # Three and four.
    (GPT, dict(tp=2, cp=2, dp=2), "--sp"),
    (GPT, dict(tp=2, cp=2, pp=2), "--sp"),
    (GPT, dict(tp=2, dp=2, pp=2), "--sp --zero 1"),
    (GPT, dict(tp=2, dp=2, pp=2, vpp=2), "--sp"),
    (GPT, dict(cp=2, dp=2, pp=2), "--cp-layout striped"),
    # Models.
    (GPT_TIED, dict(pp=2), ""),
    (GPT_TIED, dict(tp=2, pp=2), "--sp"),
    (GPT_TIED, dict(dp=2, pp=2), "--zero 1"),
    (GPT_PIPELINED, dict(tp=2), "--sp"),
    (GPT_PIPELINED, dict(dp=2, pp=2), "--first-stage-layers 1"),
    (GPT_PADDED, dict(tp=2), "--pad-vocab-to 16"),
    (GPT_PADDED, dict(tp=4), "--pad-vocab-to 8 --sp"),
    (GPT_PER_TOKEN, dict(dp=2), ""),
    (GPT_PER_TOKEN, dict(tp=2, cp=2), "--sp"),
    (GPT_PACKED, dict(cp=2), ""),
    (GPT_PACKED, dict(tp=2, cp=2), "--sp"),
    (LLAMA, dict(tp=2), "--sp"),
    (LLAMA, dict(tp=4), ""),
    (LLAMA, dict(tp=2, cp=2), "--sp"),
    (LLAMA, dict(tp=2, cp=2, pp=2), "--sp"),
    (LLAMA_UNEVEN, dict(tp=2), ""),
    (TORCH, dict(tp=2), ""),
    (TORCH, dict(fsdp=4), ""),
    (TORCH, dict(pp=2), ""),
    (TORCH, dict(tp=2, fsdp=2), ""),
    (MOE, dict(dp=2, ep=2), ""),
    (MOE, dict(dp=4, ep=2), ""),
    (MOE, dict(tp=2, dp=2, ep=2, etp=2), "--sp"),
    (MOE, dict(dp=2, pp=2, ep=2), ""),
]

# FP8 rounds with the scales that iteration 0 left only in iteration 1.
GPT_STEPS = Model("gpt-steps", "--steps 2", iterations="0-1")
_LOW_PRECISION: list[tuple[Model, str, dict[str, int], str]] = [
    (GPT, "fp16", dict(tp=2), "--sp"),
    (GPT, "fp16", dict(dp=2), ""),
    (GPT, "fp16", dict(pp=2), ""),
    (GPT_STEPS, "fp8", dict(tp=2), "--sp"),
    (GPT_STEPS, "fp8", dict(cp=2), ""),
    (GPT, "fp8", dict(tp=2, cp=2), "--sp"),
    (GPT, "fp8", dict(dp=2), ""),
    (GPT, "fp8", dict(pp=2), "--recompute reentrant"),
    (LLAMA, "fp8", dict(tp=2), "--sp"),
]

# One of each kind, for the tests.
_QUICK = {
    "gpt bf16 tp4 --sp",
    "gpt bf16 tp2 cp2 --sp",
    "gpt fp32 cp2 --cp-layout striped",
    "gpt bf16 dp2 --zero 1",
    "gpt bf16 dp2 --zero 2",
    "gpt-pipelined bf16 tp2 --sp",
    "gpt bf16 dp2 pp2 vpp2",
    "gpt fp32 pp2 --first-stage-layers 1",
    "gpt-tied bf16 pp2",
    "gpt fp16 tp2 --sp",
    "gpt-padded bf16 tp2 --pad-vocab-to 16",
    "gpt-packed fp32 cp2",
    "llama-4-2 bf16 tp4",
    "llama-6-3 bf16 tp2",
    "moe fp32 dp2 ep2",
    "torch bf16 tp2 fsdp2",
    "torch fp32 pp2",
}


def configurations(quick: bool) -> Iterator[Configuration]:
    return (each for each in _all() if not quick or each.name in _QUICK)


def _all() -> Iterator[Configuration]:
    for model, sizes, flags in _TABLE:
        for dtype in [_ONE_DTYPE[model.name]] if model.name in _ONE_DTYPE else ["bf16", "fp32"]:
            yield Configuration(model, dtype, sizes, flags)
    for model, dtype, sizes, flags in _LOW_PRECISION:
        yield Configuration(model, dtype, sizes, flags)
