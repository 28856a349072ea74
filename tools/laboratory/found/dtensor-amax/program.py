"""Trains a small network with a penalty on the largest element of each weight: by one process, or under torchrun with
rows of the weights sharded over DTensors."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

FEATURES = 8
LARGEST = {
    "amax": lambda weight: weight.abs().amax(),
    "vector_norm": lambda weight: torch.linalg.vector_norm(weight, float("inf")),
    "correct-amax": lambda weight: weight.abs().amax((0, 1)),
}


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(FEATURES, 16, bias=False)
        self.second = nn.Linear(16, FEATURES, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(inputs)))


def train(largest: str, ranks: int) -> Network:
    """One step; the model holds its gradients then."""
    inputs, targets = torch.randn(2, 6, FEATURES, generator=torch.Generator().manual_seed(1))
    model = Network()
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        for layer in (model.first, model.second):
            layer.weight = nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(0)]))
        inputs, targets = (distribute_tensor(whole, mesh, [Replicate()]) for whole in (inputs, targets))
    loss = (model(inputs) - targets).square().mean()
    penalty = LARGEST[largest](model.first.weight) + LARGEST[largest](model.second.weight)
    (loss + penalty / 10).backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    return model


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", choices=LARGEST, default="amax")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(arguments.largest, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
