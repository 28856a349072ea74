"""Trains a small network to give pairs of inputs directions that are alike or not: by one process, or under torchrun
with the features sharded over DTensors."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

PAIRS, FEATURES = 8, 12


class Direction(nn.Module):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, FEATURES) / FEATURES**0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.weight)


class Distance(nn.Module):
    """Of the directions of alike pairs."""

    def __init__(self, composed: bool) -> None:
        super().__init__()
        self.composed = composed

    def forward(self, first: Tensor, second: Tensor, alike: Tensor) -> Tensor:
        if self.composed:
            return (1 - F.cosine_similarity(first, second)).mean()
        return F.cosine_embedding_loss(first, second, alike)


class Network(nn.Module):
    def __init__(self, composed: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = Direction(), Direction()
        self.distance = Distance(composed)

    def forward(self, first: Tensor, second: Tensor, alike: Tensor) -> Tensor:
        return self.distance(self.first(first), self.second(second), alike)


def train(composed: bool, ranks: int) -> float:
    """One step; returns the loss."""
    inputs = list(torch.randn(2, PAIRS, FEATURES, generator=torch.Generator().manual_seed(1)))
    inputs.append(torch.ones(PAIRS))
    model = Network(composed)
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in (model.first, model.second):  # column-wise
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(0)]))
        inputs = [distribute_tensor(whole, mesh, [Replicate()]) for whole in inputs]
    loss = model(*inputs)
    loss.backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    return float(loss.detach().full_tensor() if isinstance(loss, DTensor) else loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--composed", action="store_true", help="of cosine_similarity: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(arguments.composed, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
