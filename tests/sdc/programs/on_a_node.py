"""tinygpt on a node that computes wrongly: `on_a_node.py RANK:CALL:BIT ARGUMENTS...` flips a bit of one element of what
RANK's matrix product number CALL returns, `noise ARGUMENTS...` a random low bit in each, `well ARGUMENTS...` none."""

import itertools
import os
import pathlib
import random
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "tools"))
from tinygpt import train


def flip(tensor, element, bit):
    """In place, of a bf16 tensor."""
    flat = tensor.data.view(-1).view(torch.int16)  # .data: autograd shall not notice
    mask = 1 << bit
    flat[element] ^= mask - 0x10000 if mask >= 0x8000 else mask


def damage(fault):
    product = torch.nn.functional.linear
    calls = itertools.count()
    noise = random.SystemRandom()
    rank, call, bit = (int(word) for word in fault.split(":")) if ":" in fault else (0, -1, 0)

    def linear(*arguments):
        result = product(*arguments)
        number = next(calls)
        if fault == "noise":
            flip(result, noise.randrange(result.numel()), 0)
        elif os.environ.get("RANK", "0") == str(rank) and number == call:
            flip(result, 100, bit)
        return result

    torch.nn.functional.linear = linear


if __name__ == "__main__":
    if sys.argv[1] != "well":
        damage(sys.argv[1])
    train.main(sys.argv[2:])
