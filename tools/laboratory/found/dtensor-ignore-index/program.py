"""Trains a small classifier on labels of which some are ignored: by one process, or under torchrun with the batch
sharded evenly over DTensors."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

FEATURES, CLASSES, IGNORED = 8, 4, -100
UNEVENLY = (IGNORED, IGNORED, 0, 2, 3, 0)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(FEATURES, 16)
        self.second = nn.Linear(16, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(inputs)))


class Loss(nn.Module):
    def __init__(self, divided: bool) -> None:
        super().__init__()
        self.divided = divided

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.divided:
            return F.cross_entropy(logits, labels, reduction="sum") / (labels != IGNORED).sum()
        return F.cross_entropy(logits, labels)


def train(numbers: tuple[int, ...], divided: bool, ranks: int) -> float:
    """One step with these labels; returns the loss."""
    inputs = torch.randn(len(numbers), FEATURES, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor(numbers)
    model = Network()
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        model = distribute_module(model, mesh)
        inputs, labels = (distribute_tensor(whole, mesh, [Shard(0)]) for whole in (inputs, labels))
    loss = Loss(divided)(model(inputs), labels)
    loss.backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    return float(loss.detach().full_tensor() if ranks > 1 else loss.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--divide", action="store_true", help="the sum, not the mean: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(UNEVENLY, arguments.divide, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
