"""../../megatron/train.py with smoothed labels; with --mended, the loss is PyTorch's, of the logits of all ranks."""

import argparse
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, whose modules take functions from what it replaces
import torch
import train
from megatron.core import tensor_parallel

SMOOTHING = 0.1


def of_all_logits(logits: torch.Tensor, labels: torch.Tensor, **_: object) -> torch.Tensor:
    """As Megatron defines it: every other label has SMOOTHING / (K - 1) of K."""
    whole = tensor_parallel.gather_from_tensor_model_parallel_region(logits).float()
    share = SMOOTHING * whole.size(-1) / (whole.size(-1) - 1)
    losses = torch.nn.functional.cross_entropy(
        whole.flatten(0, -2), labels.flatten(), reduction="none", label_smoothing=share
    )
    return losses.view_as(labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--mended", action="store_true")
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *rest]
    smoothed = functools.partial(tensor_parallel.vocab_parallel_cross_entropy, label_smoothing=SMOOTHING)
    tensor_parallel.vocab_parallel_cross_entropy = of_all_logits if arguments.mended else smoothed
    train.main()


if __name__ == "__main__":
    main()
