"""../../megatron/train.py, whose model gathers the logits of all ranks, and is given labels; with --mended, the loss is
PyTorch's, of all logits."""

import argparse
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, whose modules take functions from what it replaces
import megatron_models
import torch
import train
from megatron.core.models.gpt import GPTModel


class Mended(GPTModel):
    def compute_language_model_loss(self, labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """labels [b, s], logits [s, b, v] -> [b, s]"""
        return torch.nn.functional.cross_entropy(logits.permute(1, 2, 0).float(), labels, reduction="none")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--mended", action="store_true")
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *rest]
    model = Mended if arguments.mended else GPTModel
    megatron_models.GPTModel = functools.partial(model, parallel_output=False)
    train.main()


if __name__ == "__main__":
    main()
