"""The command line, from which Options come."""

import argparse
import os
import sys

from tinygpt.bugs import BUGS
from tinygpt.help import DESCRIPTION, EXAMPLES, LAYOUTS
from tinygpt.options import DTYPES, Options, OptionsError, check

DEFAULTS = Options()


def parse_options(arguments=None):
    """`arguments` (default: the process's own) as checked Options. Exits with 2 and one line if they are wrong."""
    options = Options(**vars(_parser().parse_args(arguments)))
    try:
        check(options, started=int(os.environ.get("WORLD_SIZE", "1")))
    except OptionsError as error:
        _fail(str(error))
    return options


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
        description=DESCRIPTION,
        epilog=f"{LAYOUTS}\nBugs:\n{bugs}\n\n{EXAMPLES}",
    )
    _add_model(parser.add_argument_group("model"))
    _add_training(parser.add_argument_group("training"))
    _add_ranks(parser.add_argument_group("ranks"))
    _add_pipeline(parser.add_argument_group("pipeline"))
    add = parser.add_argument
    add("--bug", choices=BUGS, help="switch a bug on, see below")
    add("--print-digest", action="store_true", help="print a SHA-256 over all parameters of all ranks at the end")
    add("--print-times", action="store_true", help="print the seconds of each step, on a line of its own")
    return parser


def _add_number(group, name, text, kind=int):
    default = getattr(DEFAULTS, name.lstrip("-").replace("-", "_"))
    group.add_argument(
        name, type=kind, default=default, metavar="X" if kind is float else "N", help=f"{text} ({default})"
    )


def _add_model(group):
    add = group.add_argument
    add(
        "--arch",
        choices=["gpt", "llama"],
        default=DEFAULTS.arch,
        help="llama: rotary positions, SwiGLU, RMSNorm, no biases (gpt)",
    )
    _add_number(group, "--layers", "transformer layers")
    _add_number(group, "--hidden", "width")
    _add_number(group, "--heads", "attention heads")
    _add_number(group, "--kv-heads", "key and value heads of a llama, 0 for as many as --heads")
    add(
        "--unfused-attention",
        action="store_true",
        help="the softmax of the scores is a module of its own, inside core_attention, as in Megatron-LM",
    )
    _add_number(group, "--vocab", "vocabulary size")
    _add_number(group, "--pad-vocab-to", "pad the vocabulary to a multiple of N * tp, 0 for no padding")
    add(
        "--tied",
        action="store_true",
        help="the head uses the word embedding's weight; where they are on different "
        "stages each has a copy, and their gradients are summed",
    )
    _add_number(group, "--experts", "experts of each layer, in place of its MLP; 0 for none")
    _add_number(group, "--topk", "of --experts, how many each token goes to")


def _add_training(group):
    add = group.add_argument
    _add_number(group, "--seq", "tokens in a sequence")
    add("--packed", action="store_true", help="a micro-batch is one row of documents of different lengths")
    _add_number(group, "--micro-batch-size", "sequences in a micro-batch")
    _add_number(group, "--micro-batches", "micro-batches per step, over all data parallel ranks")
    _add_number(group, "--steps", "optimizer steps")
    add("--dtype", choices=DTYPES, default=DEFAULTS.dtype, help="of parameters and activations (bf16)")
    _add_number(group, "--loss-scale", "of --dtype fp16, the first loss scale")
    add("--fp8", action="store_true", help="round what the linears of the layers multiply to FP8")
    add("--optimizer", choices=["adam", "sgd"], default=DEFAULTS.optimizer, help="on fp32 master parameters (adam)")
    _add_number(group, "--lr", "learning rate", float)
    _add_number(group, "--clip-grad", "largest global gradient norm, 0 for no clipping", float)
    _add_number(group, "--seed", "of parameters and data")
    add(
        "--per-token-loss",
        action="store_true",
        help="average over all unmasked tokens of the step, not over micro-batches",
    )
    add(
        "--recompute",
        choices=["none", "reentrant", "non-reentrant"],
        default=DEFAULTS.recompute,
        help="recompute each layer's activations in backward, with either kind of torch.utils.checkpoint (none)",
    )
    _add_number(group, "--recompute-layers", "layers that are recomputed together, from the input of the first")


def _add_ranks(group):
    add = group.add_argument
    _add_number(group, "--tp", "tensor parallel size")
    add("--sp", action="store_true", help="sequence parallelism over the tensor parallel ranks")
    add(
        "--gather-buffers",
        action="store_true",
        help="the inputs of linear_qkv and of linear_fc1 are gathered into a "
        "communication buffer each, which all layers share",
    )
    _add_number(group, "--cp", "context parallel size")
    add(
        "--cp-comm",
        choices=["ring", "allgather"],
        default=DEFAULTS.cp_comm,
        help="keys and values go round the ranks, or are gathered (ring)",
    )
    add(
        "--cp-layout",
        choices=["zigzag", "contiguous", "striped"],
        default=DEFAULTS.cp_layout,
        help="which tokens a context parallel rank has (zigzag)",
    )
    add(
        "--cp-gradients",
        choices=["sum", "average"],
        default=DEFAULTS.cp_gradients,
        help="of the losses of the context parallel ranks: summed; or averaged with dp, each loss times cp (sum)",
    )
    _add_number(group, "--dp", "data parallel size")
    add(
        "--zero",
        type=int,
        choices=[0, 1, 2],
        default=DEFAULTS.zero,
        help="divide over the data parallel ranks: 1 the optimizer's state and masters, 2 gradients too (0)",
    )
    add(
        "--overlap-param-gather",
        action="store_true",
        help="with --zero 1, gather the updated parameters in the background, in the buffer of the gradients",
    )
    _add_number(group, "--ep", "expert parallel size: the experts are divided among so many ranks")
    _add_number(group, "--etp", "expert tensor parallel size: each expert is split over so many ranks")


def _add_pipeline(group):
    add = group.add_argument
    _add_number(group, "--pp", "pipeline stages (1F1B)")
    _add_number(
        group,
        "--vpp",
        "model chunks of each stage (interleaved 1F1B): chunk k of stage s is part k * PP + s of the model",
    )
    for end in ("first", "last"):
        add(
            f"--{end}-stage-layers",
            type=int,
            metavar="N",
            help=f"layers of the {end} pipeline stage, in all its chunks; the others share the rest equally",
        )
    add(
        "--count-embedding",
        action="store_true",
        help="the first part of the model has a layer less than the others: the embedding counts as one",
    )
    add("--count-head", action="store_true", help="the last part has a layer less: the head counts as one")
