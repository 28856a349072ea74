"""../../megatron/train.py with a layer of multi-token prediction and losses summed over tokens, where every second
micro-batch counts few of them; with --mended, the tokens of all micro-batches weigh alike in the layer's loss."""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, whose modules take functions from what it replaces
import options as command_line
import torch
import train
from megatron.core import parallel_state
from megatron.core.models.gpt import gpt_model

ASKED = ["--model", "llama", "--layers", "2", "--untied", "--mtp", "1", "--per-token-loss"]
FEW = 3  # tokens of a sequence, in every second micro-batch


def counted(options: argparse.Namespace) -> torch.Tensor:
    """Which tokens count: [micro-batch, sample, position]."""
    counts = torch.ones(options.micro_batches, options.micro_batch_size, options.sequence, dtype=torch.bool)
    counts[1::2, :, FEW:] = False
    return counts


def batches_of(drawn: Callable) -> Callable:
    def batches(options: argparse.Namespace, step: int) -> Iterator[train.Batch]:
        rank, ranks = parallel_state.get_data_parallel_rank(), parallel_state.get_data_parallel_world_size()
        own = counted(options)[rank::ranks]
        return ((tokens, counts) for (tokens, _), counts in zip(drawn(options, step), own, strict=True))

    return batches


def mended(process_mtp_loss: Callable, options: argparse.Namespace) -> Callable:
    """The package weighs the loss of a further token by how many tokens its micro-batch counts, and how many of these
    are followed by one that counts: here by those of all micro-batches."""

    def weight(counts: torch.Tensor) -> float:
        return float(counts.sum() / counts[..., 1:].sum())

    whole = weight(counted(options))

    def process(*positional: Any, **named: Any) -> torch.Tensor:
        config, factor = named["config"], named["config"].mtp_loss_scaling_factor
        config.mtp_loss_scaling_factor = factor * whole / weight(named["loss_mask"])
        try:
            return process_mtp_loss(*positional, **named)
        finally:
            config.mtp_loss_scaling_factor = factor

    return process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--mended", action="store_true")
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *ASKED, *rest]
    train.batches = batches_of(train.batches)
    if arguments.mended:
        gpt_model.process_mtp_loss = mended(gpt_model.process_mtp_loss, command_line.parse())
    train.main()


if __name__ == "__main__":
    main()
