"""../../megatron/train.py; with --mended, learnable softmax offsets are marked as split over the ranks of tp."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "frameworks" / "megatron"))

import cuda_stand_in  # noqa: F401 - before megatron, whose modules take functions from what it replaces
import train
from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes


def mend(make_chunks: object) -> object:
    def made(*arguments: object) -> list:
        chunks = make_chunks(*arguments)
        for chunk in chunks:
            for name, parameter in chunk.named_parameters():
                if name.endswith("softmax_offset"):
                    set_tensor_model_parallel_attributes(parameter, True, 0, 1)
        return chunks

    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("--mended", action="store_true")
    arguments, rest = parser.parse_known_args()
    sys.argv = [sys.argv[0], "--softmax", "learnable", *rest]
    if arguments.mended:
        train.make_chunks = mend(train.make_chunks)
    train.main()


if __name__ == "__main__":
    main()
