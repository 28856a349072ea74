"""The command line: what can be asked for, and which combinations make no sense."""

import argparse
import math
import os
import sys
from dataclasses import dataclass

import torch

from tinygpt.bugs import BUGS
from tinygpt.help import ATTENTION
from tinygpt.partition import partition_problem

RANK_ORDER = (
    "rank = tp + TP * (cp + CP * (dp + DP * pp)): tensor parallel fastest, then context parallel, then data parallel,\n"
    "then pipeline"
)
EXPERT_RANK_ORDER = "rank = etp + ETP * (ep + EP * (edp + EDP * pp))"

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Options:
    arch: str = "gpt"
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    kv_heads: int = 0  # 0: as many as heads
    seq: int = 32
    packed: bool = False
    vocab: int = 128
    pad_vocab_to: int = 0  # 0: no padding
    micro_batch_size: int = 2
    micro_batches: int = 4  # of the whole run, per step
    steps: int = 1
    dtype: str = "bf16"
    optimizer: str = "adam"
    lr: float = 1e-3
    clip_grad: float = 1.0  # 0: no clipping
    seed: int = 1234
    per_token_loss: bool = False
    recompute: str = "none"
    tp: int = 1
    sp: bool = False
    cp: int = 1
    cp_comm: str = "ring"
    cp_layout: str = "zigzag"
    dp: int = 1
    pp: int = 1
    vpp: int = 1
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    count_embedding: bool = False
    count_head: bool = False
    tied: bool = False
    zero: int = 0
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


def parse_options(arguments=None):
    """`arguments` (default: the process's own) as checked Options. Exits with 2 and one line if they are wrong."""
    options = Options(**vars(_parser().parse_args(arguments)))
    try:
        check(options, started=int(os.environ.get("WORLD_SIZE", "1")))
    except OptionsError as error:
        _fail(str(error))
    return options


def check(options, started):
    """Throws OptionsError unless `options` describe a run for `started` processes."""
    _check_sizes(options)
    for what, total, parts in _divisions(options):
        if total % parts:
            raise OptionsError(f"{what}: {total} is not divisible by {parts}")
    problem = partition_problem(options)
    if problem:
        raise OptionsError(problem)
    if options.zero and options.dp == 1:
        raise OptionsError("--zero needs --dp 2 or more: it divides the optimizer over the data parallel ranks")
    if options.zero == 2 and options.tied and options.pp > 1:
        raise OptionsError("--zero 2 with --tied needs --pp 1: no rank has the whole gradient that two stages share")
    if options.zero and options.experts:
        raise OptionsError("--zero needs --experts 0: experts have data parallel ranks of their own")
    if options.zero == 2 and options.key_value_heads % options.tp:
        raise OptionsError(
            "--zero 2 needs --kv-heads divisible by --tp: no rank has the whole gradient of heads that several share"
        )
    if options.sp and options.tp == 1:
        raise OptionsError("--sp needs --tp 2 or more: it shards the sequence over the tensor parallel ranks")
    if options.kv_heads and options.arch != "llama":
        raise OptionsError("--kv-heads needs --arch llama: a GPT's heads have a key and a value each")
    _check_experts(options)
    if options.bug and not BUGS[options.bug].can_show(options):
        raise OptionsError(f"--bug {options.bug} needs {BUGS[options.bug].needs}")
    if started != options.world_size:
        layout = f"--tp {options.tp} --cp {options.cp} --dp {options.dp} --pp {options.pp}"
        raise OptionsError(
            f"{layout} needs {options.world_size} processes, {started} started "
            f"(torchrun --nproc-per-node {options.world_size})"
        )


def _check_sizes(options):
    names = "layers hidden heads seq vocab micro_batch_size micro_batches steps tp cp dp pp vpp topk ep etp".split()
    for name in names:
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


def _check_experts(options):
    if options.experts == 0 and (options.ep, options.etp) != (1, 1):
        raise OptionsError(f"--ep {options.ep} --etp {options.etp} need --experts: they place experts on ranks")
    if 0 < options.experts < options.topk:
        raise OptionsError(f"--topk {options.topk}: must be --experts, {options.experts}, or less")


def _divisions(options):
    """What is divided into equal parts: (words for the error, total, parts)."""
    yield "--hidden over --heads", options.hidden, options.heads
    yield "--heads over --tp", options.heads, options.tp
    yield "--vocab over --tp", options.padded_vocab, options.tp
    yield "--micro-batches over --dp", options.micro_batches, options.dp
    if options.vpp > 1:
        local = options.micro_batches // options.dp
        yield "--micro-batches of a data parallel rank over --pp with --vpp", local, options.pp
    if options.arch == "llama":
        yield "--hidden over 2 * --heads with --arch llama", options.hidden, 2 * options.heads
        yield "--heads over --kv-heads", options.heads, options.key_value_heads
    if not options.packed:  # documents are padded as needed
        yield from _sequence_divisions(options)
    if options.experts:
        yield from _expert_divisions(options)


def _sequence_divisions(options):
    if options.cp > 1 and options.cp_layout == "zigzag":
        yield "--seq over 2 * --cp with --cp-layout zigzag", options.seq, 2 * options.cp
    elif options.cp > 1:
        yield "--seq over --cp", options.seq, options.cp
    if options.sp and options.cp > 1:
        yield "--seq over --cp * --tp with --sp", options.seq, options.cp * options.tp
    elif options.sp:
        yield "--seq over --tp with --sp", options.seq, options.tp


def _expert_divisions(options):
    yield "--experts over --ep", options.experts, options.ep
    yield "4 * --hidden over --etp", 4 * options.hidden, options.etp
    stage = options.world_size // options.pp
    yield "the ranks of a pipeline stage over --ep times --etp", stage, options.ep * options.etp
    if not options.sp and not options.packed:
        ranks = "--tp" if options.cp == 1 else "--cp * --tp"
        tokens = options.seq * options.micro_batch_size
        yield f"--seq times --micro-batch-size over {ranks}", tokens, options.cp * options.tp


def vocabulary_boundaries(vocab, largest_tp=8):
    """First and last id of each rank's vocabulary range, for every tp up to `largest_tp` that divides `vocab`."""
    boundaries = set()
    for tp in range(1, largest_tp + 1):
        if vocab % tp == 0:
            for start in range(0, vocab, vocab // tp):
                boundaries |= {start, start + vocab // tp - 1}
    return sorted(boundaries)


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        _fail(message)


def _fail(message):
    # Every rank finds the same mistake; one line is enough.
    if os.environ.get("RANK", "0") == "0":
        print(f"tinygpt: error: {message}", file=sys.stderr)
    sys.exit(2)


def _parser():
    bugs = "\n".join(f"  {name}: {bug.summary}; needs {bug.needs}" for name, bug in BUGS.items())
    parser = _Parser(
        prog="train.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Trains a small GPT or Llama on synthetic tokens: on one process with plain PyTorch modules, or\n"
        "under torchrun with tensor, sequence, context, data, pipeline and expert parallelism. One line per step: loss\n"
        "and gradient norm, with all digits. The same command prints the same line every time.",
        epilog=f"Ranks: {RANK_ORDER}.\n"
        f"For experts the same ranks are counted as {EXPERT_RANK_ORDER}:\n"
        "expert tensor parallel fastest, then expert parallel, then expert data parallel, whose size follows.\n"
        "Local expert i of rank ep is the global one ep * E/EP + i. Each rank dispatches the tokens that it has alone;\n"
        "where tp ranks have the same (no --sp), each of them an equal part.\n"
        "Micro-batches: local micro-batch m of data parallel rank r is the global one m * dp + r.\n\n"
        f"{ATTENTION}\n"
        f"Bugs:\n{bugs}\n\n"
        "Examples:\n  python train.py\n  torchrun --nproc-per-node 4 train.py --tp 2 --sp --dp 2",
    )
    add = parser.add_argument
    defaults = Options()

    def add_number(name, text, kind=int):
        default = getattr(defaults, name.lstrip("-").replace("-", "_"))
        add(name, type=kind, default=default, metavar="X" if kind is float else "N", help=f"{text} ({default})")

    add("--arch", choices=["gpt", "llama"], default=defaults.arch,
        help="llama: rotary positions, SwiGLU, RMSNorm, no biases (gpt)")
    add_number("--layers", "transformer layers")
    add_number("--hidden", "width")
    add_number("--heads", "attention heads")
    add_number("--kv-heads", "key and value heads of a llama, 0 for as many as --heads")
    add_number("--seq", "tokens in a sequence")
    add("--packed", action="store_true", help="a micro-batch is one row of documents of different lengths")
    add_number("--vocab", "vocabulary size")
    add_number("--pad-vocab-to", "pad the vocabulary to a multiple of N * tp, 0 for no padding")
    add_number("--micro-batch-size", "sequences in a micro-batch")
    add_number("--micro-batches", "micro-batches per step, over all data parallel ranks")
    add_number("--steps", "optimizer steps")
    add("--dtype", choices=DTYPES, default=defaults.dtype, help="of parameters and activations (bf16)")
    add("--optimizer", choices=["adam", "sgd"], default=defaults.optimizer, help="on fp32 master parameters (adam)")
    add_number("--lr", "learning rate", float)
    add_number("--clip-grad", "largest global gradient norm, 0 for no clipping", float)
    add_number("--seed", "of parameters and data")
    add("--per-token-loss", action="store_true",
        help="average over all unmasked tokens of the step, not over micro-batches")
    add("--recompute", choices=["none", "reentrant", "non-reentrant"], default=defaults.recompute,
        help="recompute each layer's activations in backward, with either kind of torch.utils.checkpoint (none)")
    add_number("--tp", "tensor parallel size")
    add("--sp", action="store_true", help="sequence parallelism over the tensor parallel ranks")
    add_number("--cp", "context parallel size")
    add("--cp-comm", choices=["ring", "allgather"], default=defaults.cp_comm,
        help="keys and values go round the ranks, or are gathered (ring)")
    add("--cp-layout", choices=["zigzag", "contiguous", "striped"], default=defaults.cp_layout,
        help="which tokens a context parallel rank has (zigzag)")
    add_number("--dp", "data parallel size")
    add_number("--pp", "pipeline stages (1F1B)")
    add_number("--vpp",
        "model chunks of each stage (interleaved 1F1B): chunk k of stage s is part k * PP + s of the model")
    for end in ("first", "last"):
        add(f"--{end}-stage-layers", type=int, metavar="N",
            help=f"layers of the {end} pipeline stage, in all its chunks; the others share the rest equally")
    add("--count-embedding", action="store_true", help="the first part of the model has a layer less than the others: "
        "the embedding counts as one")
    add("--count-head", action="store_true", help="the last part has a layer less: the head counts as one")
    add("--tied", action="store_true", help="the head uses the word embedding's weight; where they are on different "
        "stages each has a copy, and their gradients are summed")
    add("--zero", type=int, choices=[0, 1, 2], default=defaults.zero,
        help="divide over the data parallel ranks: 1 the optimizer's state and masters, 2 gradients too (0)")
    add_number("--experts", "experts of each layer, in place of its MLP; 0 for none")
    add_number("--topk", "of --experts, how many each token goes to")
    add_number("--ep", "expert parallel size: the experts are divided among so many ranks")
    add_number("--etp", "expert tensor parallel size: each expert is split over so many ranks")
    add("--bug", choices=BUGS, help="switch a bug on, see below")
    add("--print-digest", action="store_true", help="print a SHA-256 over all parameters of all ranks at the end")
    add("--print-times", action="store_true", help="print the seconds of each step, on a line of its own")
    return parser
