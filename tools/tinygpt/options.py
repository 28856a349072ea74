"""The command line: what can be asked for, and which combinations make no sense."""

import argparse
import os
import sys
from dataclasses import dataclass

import torch

from tinygpt.bugs import BUGS

RANK_ORDER = "rank = tp + TP * (dp + DP * pp): tensor parallel fastest, then data parallel, then pipeline"
EXPERT_RANK_ORDER = "rank = etp + ETP * (ep + EP * (edp + EDP * pp))"

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Options:
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    seq: int = 32
    vocab: int = 128
    micro_batch_size: int = 2
    micro_batches: int = 4  # of the whole run, per step
    steps: int = 1
    dtype: str = "bf16"
    optimizer: str = "adam"
    lr: float = 1e-3
    clip_grad: float = 1.0  # 0: no clipping
    seed: int = 1234
    recompute: str = "none"
    tp: int = 1
    sp: bool = False
    dp: int = 1
    pp: int = 1
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
        return self.tp * self.dp * self.pp


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
    if options.sp and options.tp == 1:
        raise OptionsError("--sp needs --tp 2 or more: it shards the sequence over the tensor parallel ranks")
    _check_experts(options)
    if options.bug and not BUGS[options.bug].can_show(options):
        raise OptionsError(f"--bug {options.bug} needs {BUGS[options.bug].needs}")
    if started != options.world_size:
        layout = f"--tp {options.tp} --dp {options.dp} --pp {options.pp}"
        raise OptionsError(
            f"{layout} needs {options.world_size} processes, {started} started "
            f"(torchrun --nproc-per-node {options.world_size})"
        )


def _check_sizes(options):
    names = "layers hidden heads seq vocab micro_batch_size micro_batches steps tp dp pp topk ep etp".split()
    for name in names:
        if getattr(options, name) < 1:
            raise OptionsError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be 1 or more")
    for name, least in (("experts", "0 (none)"), ("lr", "0"), ("clip_grad", "0 (off)"), ("seed", "0")):
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


def _check_experts(options):
    if options.experts == 0 and (options.ep, options.etp) != (1, 1):
        raise OptionsError(f"--ep {options.ep} --etp {options.etp} need --experts: they place experts on ranks")
    if 0 < options.experts < options.topk:
        raise OptionsError(f"--topk {options.topk}: must be --experts, {options.experts}, or less")


def _divisions(options):
    """What is divided into equal parts: (words for the error, total, parts)."""
    yield "--hidden over --heads", options.hidden, options.heads
    yield "--heads over --tp", options.heads, options.tp
    yield "--vocab over --tp", options.vocab, options.tp
    yield "--layers over --pp", options.layers, options.pp
    yield "--micro-batches over --dp", options.micro_batches, options.dp
    if options.sp:
        yield "--seq over --tp with --sp", options.seq, options.tp
    if options.experts:
        yield "--experts over --ep", options.experts, options.ep
        yield "4 * --hidden over --etp", 4 * options.hidden, options.etp
        stage = options.world_size // options.pp
        yield "the ranks of a pipeline stage over --ep times --etp", stage, options.ep * options.etp
        if not options.sp:
            yield "--seq times --micro-batch-size over --tp", options.seq * options.micro_batch_size, options.tp


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
        description="Trains a small GPT on synthetic tokens: on one process with plain PyTorch modules, or under\n"
        "torchrun with tensor, sequence, data, pipeline and expert parallelism. One line per step: loss and\n"
        "gradient norm, with all digits. The same command prints the same line every time.",
        epilog=f"Ranks: {RANK_ORDER}.\n"
        f"For experts the same ranks are counted as {EXPERT_RANK_ORDER}:\n"
        "expert tensor parallel fastest, then expert parallel, then expert data parallel, whose size follows.\n"
        "Local expert i of rank ep is the global one ep * E/EP + i. Each rank dispatches the tokens that it has alone;\n"
        "where tp ranks have the same (no --sp), each of them an equal part.\n"
        "Micro-batches: local micro-batch m of data parallel rank r is the global one m * dp + r.\n\n"
        f"Bugs:\n{bugs}\n\n"
        "Examples:\n  python train.py\n  torchrun --nproc-per-node 4 train.py --tp 2 --sp --dp 2",
    )
    add = parser.add_argument
    defaults = Options()

    def add_number(name, text, kind=int):
        default = getattr(defaults, name.lstrip("-").replace("-", "_"))
        add(name, type=kind, default=default, metavar="X" if kind is float else "N", help=f"{text} ({default})")

    add_number("--layers", "transformer layers")
    add_number("--hidden", "width")
    add_number("--heads", "attention heads")
    add_number("--seq", "tokens in a sequence")
    add_number("--vocab", "vocabulary size")
    add_number("--micro-batch-size", "sequences in a micro-batch")
    add_number("--micro-batches", "micro-batches per step, over all data parallel ranks")
    add_number("--steps", "optimizer steps")
    add("--dtype", choices=DTYPES, default=defaults.dtype, help="of parameters and activations (bf16)")
    add("--optimizer", choices=["adam", "sgd"], default=defaults.optimizer, help="on fp32 master parameters (adam)")
    add_number("--lr", "learning rate", float)
    add_number("--clip-grad", "largest global gradient norm, 0 for no clipping", float)
    add_number("--seed", "of parameters and data")
    add("--recompute", choices=["none", "reentrant", "non-reentrant"], default=defaults.recompute,
        help="recompute each layer's activations in backward, with either kind of torch.utils.checkpoint (none)")
    add_number("--tp", "tensor parallel size")
    add("--sp", action="store_true", help="sequence parallelism over the tensor parallel ranks")
    add_number("--dp", "data parallel size")
    add_number("--pp", "pipeline stages (1F1B)")
    add_number("--experts", "experts of each layer, in place of its MLP; 0 for none")
    add_number("--topk", "of --experts, how many each token goes to")
    add_number("--ep", "expert parallel size: the experts are divided among so many ranks")
    add_number("--etp", "expert tensor parallel size: each expert is split over so many ranks")
    add("--bug", choices=BUGS, help="switch a bug on, see below")
    add("--print-digest", action="store_true", help="print a SHA-256 over all parameters of all ranks at the end")
    add("--print-times", action="store_true", help="print the seconds of each step, on a line of its own")
    return parser
