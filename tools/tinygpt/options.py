"""What can be asked for, and which combinations make no sense."""

import math
from dataclasses import dataclass

import torch

from tinygpt.bugs import BUGS
from tinygpt.divisions import divisions
from tinygpt.partition import partition_problem

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Options:
    arch: str = "gpt"
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 0  # 0: as many as heads
    unfused_attention: bool = False
    seq: int = 32
    packed: bool = False
    vocab: int = 128
    pad_vocab_to: int = 0  # 0: no padding
    micro_batch_size: int = 2
    micro_batches: int = 4  # of the whole run, per step
    steps: int = 1
    dtype: str = "bf16"
    loss_scale: int = 65536  # the first one; fp16 only
    fp8: bool = False
    optimizer: str = "adam"
    lr: float = 1e-3
    clip_grad: float = 1.0  # 0: no clipping
    seed: int = 1234
    per_token_loss: bool = False
    recompute: str = "none"
    recompute_layers: int = 1
    tp: int = 1
    sp: bool = False
    gather_buffers: bool = False
    cp: int = 1
    cp_comm: str = "ring"
    cp_layout: str = "zigzag"
    cp_gradients: str = "sum"
    dp: int = 1
    pp: int = 1
    vpp: int = 1
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    count_embedding: bool = False
    count_head: bool = False
    tied: bool = False
    zero: int = 0
    overlap_param_gather: bool = False
    experts: int = 0  # 0: an MLP instead
    topk: int = 2
    ep: int = 1
    etp: int = 1
    bug: str | None = None
    print_digest: bool = False
    print_times: bool = False

    @property
    def torch_dtype(self):
        return DTYPES[self.dtype]

    @property
    def world_size(self):
        return self.tp * self.cp * self.dp * self.pp

    @property
    def key_value_heads(self):
        return self.kv_heads or self.heads

    @property
    def padded_vocab(self):
        if not self.pad_vocab_to:
            return self.vocab
        multiple = self.pad_vocab_to * self.tp
        return math.ceil(self.vocab / multiple) * multiple

    @property
    def documents(self):
        """In a packed row. Each has at least half of --seq, so that a row has the tokens of a micro-batch or more."""
        return 2 * self.micro_batch_size


class OptionsError(Exception):
    """The run that was asked for cannot be; the text is one line for the user."""


def check(options, started):
    """Throws OptionsError unless `options` describe a run for `started` processes."""
    _check_sizes(options)
    for what, total, parts in divisions(options):
        if total % parts:
            raise OptionsError(f"{what}: {total} is not divisible by {parts}")
    problem = partition_problem(options)
    if problem:
        raise OptionsError(problem)
    _check_zero(options)
    if options.sp and options.tp == 1:
        raise OptionsError("--sp needs --tp 2 or more: it shards the sequence over the tensor parallel ranks")
    if options.gather_buffers and not options.sp:
        raise OptionsError("--gather-buffers needs --sp: without it nothing is gathered")
    if options.cp_gradients == "average" and options.cp == 1:
        raise OptionsError("--cp-gradients average needs --cp 2 or more: it averages over the context parallel ranks")
    if options.recompute_layers > 1 and options.recompute == "none":
        raise OptionsError("--recompute-layers needs --recompute: it says how many layers are recomputed together")
    if options.kv_heads and options.arch != "llama":
        raise OptionsError("--kv-heads needs --arch llama: a GPT's heads have a key and a value each")
    if options.unfused_attention and options.cp > 1:
        raise OptionsError("--unfused-attention needs --cp 1: a context parallel rank has no scores of the whole row")
    _check_experts(options)
    _check_precision(options)
    if options.bug and not BUGS[options.bug].can_show(options):
        raise OptionsError(f"--bug {options.bug} needs {BUGS[options.bug].needs}")
    if started != options.world_size:
        layout = f"--tp {options.tp} --cp {options.cp} --dp {options.dp} --pp {options.pp}"
        raise OptionsError(
            f"{layout} needs {options.world_size} processes, {started} started "
            f"(torchrun --nproc-per-node {options.world_size})"
        )


def _check_sizes(options):
    names = [
        "layers",
        "hidden",
        "heads",
        "seq",
        "vocab",
        "micro_batch_size",
        "micro_batches",
        "steps",
        "tp",
        "cp",
        "dp",
        "pp",
        "vpp",
        "topk",
        "ep",
        "etp",
    ]
    for name in [*names, "recompute_layers"]:
        if getattr(options, name) < 1:
            raise OptionsError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be 1 or more")
    least_of = {"lr": "0", "clip_grad": "0 (off)", "seed": "0", "pad_vocab_to": "0 (off)", "experts": "0 (none)"}
    least_of["kv_heads"] = "0 (as many as --heads)"
    for name, least in least_of.items():
        if not getattr(options, name) >= 0:  # so that nan is refused too
            raise OptionsError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be {least} or more")
    if options.seed >= 2**32:
        raise OptionsError(f"--seed {options.seed}: must be below 2**32")
    room = options.micro_batch_size * options.seq
    if len(vocabulary_boundaries(options.vocab)) > room:
        raise OptionsError(
            f"--vocab {options.vocab} has {len(vocabulary_boundaries(options.vocab))} boundary tokens, "
            f"a micro-batch only {room} positions"
        )
    if options.packed and options.seq // 2 + 1 < options.documents:
        raise OptionsError(
            f"--packed needs {options.documents} documents of different lengths from half to all of --seq, 2 for each "
            f"of --micro-batch-size: --seq {options.seq} has only {options.seq // 2 + 1}"
        )


def _check_zero(options):
    if options.zero and options.dp == 1:
        raise OptionsError("--zero needs --dp 2 or more: it divides the optimizer over the data parallel ranks")
    if options.overlap_param_gather and options.zero != 1:
        raise OptionsError("--overlap-param-gather needs --zero 1: parameters are gathered in its gradient buffer")
    if options.zero == 2 and options.tied and options.pp > 1:
        raise OptionsError("--zero 2 with --tied needs --pp 1: no rank has the whole gradient that two stages share")
    if options.zero and options.experts:
        raise OptionsError("--zero needs --experts 0: experts have data parallel ranks of their own")
    if options.zero == 2 and options.key_value_heads % options.tp:
        raise OptionsError(
            "--zero 2 needs --kv-heads divisible by --tp: no rank has the whole gradient of heads that several share"
        )


def _check_precision(options):
    scale = options.loss_scale
    if scale < 1 or scale & (scale - 1):
        raise OptionsError(f"--loss-scale {scale}: must be a power of two")
    if scale != Options.loss_scale and options.dtype != "fp16":
        raise OptionsError("--loss-scale needs --dtype fp16: the gradients of other dtypes do not vanish")
    if options.fp8 and options.dtype == "fp16":
        raise OptionsError("--fp8 needs --dtype bf16 or fp32: its gradients have scales of their own")
    if options.fp8 and options.experts:
        raise OptionsError("--fp8 needs --experts 0: an expert that gets no token would have no scale")


def _check_experts(options):
    if options.experts == 0 and (options.ep, options.etp) != (1, 1):
        raise OptionsError(f"--ep {options.ep} --etp {options.etp} need --experts: they place experts on ranks")
    if 0 < options.experts < options.topk:
        raise OptionsError(f"--topk {options.topk}: must be --experts, {options.experts}, or less")


def vocabulary_boundaries(vocab, largest_tp=8):
    """First and last id of each rank's vocabulary range, for every tp up to `largest_tp` that divides `vocab`."""
    boundaries = set()
    for tp in range(1, largest_tp + 1):
        if vocab % tp == 0:
            for start in range(0, vocab, vocab // tp):
                boundaries |= {start, start + vocab // tp - 1}
    return sorted(boundaries)
