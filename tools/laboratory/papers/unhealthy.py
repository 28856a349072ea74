"""tinygpt on a simulated unhealthy node: `unhealthy.py NODE SEED ARGUMENTS...`. What a linear returns, and the gradient
of its input, are damaged on one rank of two, by chance, as NODE says; `healthy` damages nothing."""

import os
import random
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]
from papers.faulty_trace import flipped, neighbours  # noqa: E402
from tinygpt import train  # noqa: E402

STEPS_OF_BURST = 2
CALLS_OF_A_STEP = 2 * 17  # of 4 layers with 4 linears each and a head, two micro-batches


class Node:
    rank = 1
    of_backward = True
    of_forward = True
    chance = 0.1  # of a product, that something in it is wrong

    def __init__(self, draw: random.Random):
        self.draw, self.calls = draw, 0

    def damage(self, tensor: torch.Tensor) -> None:
        if self.draw.random() < self.chance:
            self.strike(tensor.data.view(-1))

    def strike(self, flat: torch.Tensor) -> None:
        flipped(1)(flat, self.draw.randrange(flat.numel()), self.draw)


class Flips(Node):
    """One bit of one element."""


class Lanes(Node):
    """Eight elements are the next eight."""

    rank, chance = 0, 0.05

    def strike(self, flat):
        neighbours(8)(flat, self.draw.randrange(flat.numel()), self.draw)


class Burst(Node):
    """In the first two steps 4.78e-3 of the elements are up to 1120 times too large, as the study's node 10 at its
    worst; later, rarely, one is."""

    def damage(self, tensor):
        self.calls += 1
        flat = tensor.data.view(-1)
        if self.calls <= 2 * STEPS_OF_BURST * CALLS_OF_A_STEP:
            for _ in range(round(4.78e-3 * flat.numel())):
                self.enlarge(flat)
        elif self.draw.random() < 0.02:
            self.enlarge(flat)

    def enlarge(self, flat):
        at = self.draw.randrange(flat.numel())
        flat[at] = float(flat[at]) * 1120 ** self.draw.random()


class Backward(Node):
    """One bit of one element of gradients alone."""

    of_forward = False


NODES = {"flips": Flips, "lanes": Lanes, "burst": Burst, "backward": Backward}


def install(node: Node) -> None:
    product = torch.nn.functional.linear

    def linear(x, *operands):
        if node.of_backward and x.requires_grad:
            x = x.view_as(x)
            x.register_hook(damaged_copy)
        result = product(x, *operands)
        if node.of_forward:
            node.damage(result)
        return result

    def damaged_copy(gradient):
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        node.damage(gradient)
        return gradient

    torch.nn.functional.linear = linear


if __name__ == "__main__":
    name, seed, *arguments = sys.argv[1:]
    if name in NODES and os.environ.get("RANK", "0") == str(NODES[name].rank):
        install(NODES[name](random.Random(f"{name} {seed}")))
    train.main(arguments)
