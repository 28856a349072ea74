"""Trains as train.py does, with a mistake put into the package: `mistakes.py --wrong NAME`, and options of train.py.

attention-scale  the scores are divided by the root of a rank's part of a head's size, not of all of it: a program
                 that divides a number by tp which tp does not divide
gradient-sum     gradients are summed over the data-parallel ranks, where the step takes their mean
norm-gradients   under sequence parallelism, the gradients of norms are never summed over the tensor-parallel ranks"""

import argparse
import sys

import train
from megatron.core.distributed import finalize_model_grads

WRONG = ["attention-scale", "gradient-sum", "norm-gradients"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--wrong", choices=WRONG, required=True)
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], *rest]
    make_trainable = train.make_trainable

    def make_wrong(options: argparse.Namespace, config: object, chunks: list) -> tuple[list, object]:
        chunks, optimizer = make_trainable(options, config, chunks)
        for chunk in chunks:
            spoil(arguments.wrong, chunk, options)
        return chunks, optimizer

    train.make_trainable = make_wrong
    train.main()


def spoil(wrong: str, chunk: object, options: argparse.Namespace) -> None:
    if wrong == "attention-scale":
        for module in chunk.modules():
            if hasattr(module, "softmax_scale") and module.softmax_scale is not None:
                module.softmax_scale *= options.tp**0.5
    if wrong == "gradient-sum":
        for group in chunk.bucket_groups:
            for bucket in group.buckets:
                bucket.gradient_scaling_factor = 1.0
    if wrong == "norm-gradients":
        sys.modules[finalize_model_grads.__module__]._allreduce_non_tensor_model_parallel_grads = lambda *_, **__: None


if __name__ == "__main__":
    main()
