"""Trains as train.py does, with a mistake put into the model: `mistakes.py --wrong NAME`, and options of train.py.

one-token         one token of each micro-batch goes to the expert of its lowest score in place of its second best
weights           the weights of a token's experts are in each other's place
unsummed          under tensor parallelism, the experts' outputs are not summed over the ranks
expert-gradients  under expert parallelism, they are divided by the number of ranks that have the same experts"""

import argparse
import sys

import torch
import train
from torch import nn

WRONG = ["one-token", "weights", "unsummed", "expert-gradients"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--wrong", choices=WRONG, required=True)
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *rest]
    load = train.load

    def load_wrong(options: argparse.Namespace) -> nn.Module:
        model = load(options)
        if arguments.wrong == "unsummed":
            leave_unsummed()
        elif arguments.wrong == "expert-gradients":
            for layer in model.model.layers:
                layer.mlp.experts.set_gradient_divide_factor(options.tp * options.fsdp / options.ep)
        else:
            for module in model.modules():
                if type(module).__name__.endswith("TopKRouter"):
                    spoil(arguments.wrong, module)
        return model

    train.load = load_wrong
    train.main()


def spoil(wrong: str, router: nn.Module) -> None:
    forward = router.forward

    def spoiled(*args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits, weights, experts = forward(*args)
        if wrong == "weights":
            return logits, weights.flip(-1), experts
        experts = experts.clone()
        experts[5, 1] = logits[5].argmin()
        return logits, weights, experts

    router.forward = spoiled


def leave_unsummed() -> None:
    from transformers.distributed import tensor_parallel  # only where its parallelism is used

    tensor_parallel.MoeExpertsParallel.transform_output_post_forward = lambda self, module, output, mesh: output


if __name__ == "__main__":
    main()
