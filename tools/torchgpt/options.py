"""The command line: what can be asked for, and which combinations make no sense."""

import argparse
import os
import sys
from dataclasses import dataclass

import torch

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Options:
    layers: int = 4
    hidden: int = 40
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 54  # not divisible by 4
    seq: int = 24
    vocab: int = 101  # not divisible by anything
    micro_batch_size: int = 2
    micro_batches: int = 4  # of the whole run, per step
    steps: int = 1
    dtype: str = "bf16"
    lr: float = 1e-3
    clip_grad: float = 0.5
    seed: int = 1234
    tp: int = 1
    loss_parallel: bool = False
    fsdp: int = 1
    dp: int = 1
    pp: int = 1
    schedule: str = "1f1b"

    @property
    def torch_dtype(self):
        return DTYPES[self.dtype]

    @property
    def world_size(self):
        return self.tp * self.fsdp * self.dp * self.pp


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
    for name in [
        "layers",
        "hidden",
        "heads",
        "kv_heads",
        "ffn",
        "seq",
        "vocab",
        "micro_batch_size",
        "micro_batches",
        "steps",
        "tp",
        "fsdp",
        "dp",
        "pp",
    ]:
        if getattr(options, name) < 1:
            raise OptionsError(f"--{name.replace('_', '-')} {getattr(options, name)}: must be 1 or more")
    for what, total, parts in (
        ("--hidden over two halves of each of --heads", options.hidden, 2 * options.heads),
        ("--heads over --kv-heads", options.heads, options.kv_heads),
        ("--kv-heads over --tp", options.kv_heads, options.tp),
        ("--micro-batches over --dp times --fsdp", options.micro_batches, options.dp * options.fsdp),
    ):
        if total % parts:
            raise OptionsError(f"{what}: {total} is not divisible by {parts}")
    if options.layers < options.pp:
        raise OptionsError(f"--pp {options.pp}: only {options.layers} layers")
    if options.loss_parallel and options.tp == 1:
        raise OptionsError("--loss-parallel needs --tp 2 or more: the logits are sharded over the vocabulary")
    if started != options.world_size:
        layout = f"--tp {options.tp} --fsdp {options.fsdp} --dp {options.dp} --pp {options.pp}"
        raise OptionsError(
            f"{layout} needs {options.world_size} processes, {started} started "
            f"(torchrun --nproc-per-node {options.world_size})"
        )


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        _fail(message)


def _fail(message):
    # Every rank finds the same mistake; one line is enough.
    if os.environ.get("RANK", "0") == "0":
        print(f"torchgpt: error: {message}", file=sys.stderr)
    sys.exit(2)


def _parser():
    parser = _Parser(
        prog="train.py",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Trains a small Llama on synthetic tokens: on one process with plain PyTorch modules, or under\n"
        "torchrun with PyTorch's DTensor tensor parallelism, fully_shard and pipelining. One line per step: loss\n"
        "and gradient norm, with all digits.",
        epilog="Ranks: rank = tp + TP * (fsdp + FSDP * (dp + DP * pp)).\n"
        "Micro-batches: local micro-batch m of data parallel rank r = fsdp + FSDP * dp is the global one m * n + r.\n\n"
        "Examples:\n  python train.py\n  torchrun --nproc-per-node 4 train.py --tp 2 --fsdp 2",
    )
    add = parser.add_argument
    defaults = Options()

    def add_number(name, text, kind=int):
        default = getattr(defaults, name.lstrip("-").replace("-", "_"))
        add(name, type=kind, default=default, metavar="X" if kind is float else "N", help=f"{text} ({default})")

    add_number("--layers", "transformer layers")
    add_number("--hidden", "width")
    add_number("--heads", "attention heads")
    add_number("--kv-heads", "heads of key and value")
    add_number("--ffn", "width inside the feed-forward part")
    add_number("--seq", "tokens in a sequence")
    add_number("--vocab", "vocabulary size")
    add_number("--micro-batch-size", "sequences in a micro-batch")
    add_number("--micro-batches", "micro-batches per step, over all data parallel ranks")
    add_number("--steps", "optimizer steps")
    add("--dtype", choices=DTYPES, default=defaults.dtype, help="of parameters and activations (bf16)")
    add_number("--lr", "learning rate", float)
    add_number("--clip-grad", "largest global gradient norm", float)
    add_number("--seed", "of parameters and data")
    add_number("--tp", "tensor parallel size (DTensor, with sequence parallelism)")
    add("--loss-parallel", action="store_true", help="keep the logits sharded over the vocabulary in the loss")
    add_number("--fsdp", "ranks that fully_shard shards parameters over")
    add_number("--dp", "data parallel replicas; with --fsdp hybrid sharding")
    add_number("--pp", "pipeline stages")
    add("--schedule", choices=["1f1b", "gpipe"], default=defaults.schedule, help="of the pipeline (1f1b)")
    return parser
