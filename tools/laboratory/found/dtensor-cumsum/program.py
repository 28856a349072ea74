"""Trains a small network that averages over all tokens so far: by one process, or under torchrun with the tokens
sharded over DTensors."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_module, distribute_tensor

TOKENS, FEATURES = 12, 8


class CumulativeMean(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, hidden: Tensor, counts: Tensor) -> Tensor:
        """`hidden`: [tokens, features]; `counts`: how many tokens there are so far, [tokens, 1]."""
        return torch.cumsum(hidden, dim=self.dim) / counts


class Network(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(FEATURES, 16)
        self.mean = CumulativeMean(dim)
        self.second = nn.Linear(16, FEATURES)

    def forward(self, tokens: Tensor, counts: Tensor) -> Tensor:
        return self.second(torch.tanh(self.mean(self.first(tokens), counts)))


def train(dim: int, ranks: int) -> Network:
    """One step; the model holds its gradients then."""
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(2, TOKENS, FEATURES, generator=generator)
    counts = torch.arange(1.0, TOKENS + 1).unsqueeze(1)
    model = Network(dim)
    if ranks > 1:
        mesh = init_device_mesh("cpu", (ranks,))
        model = distribute_module(model, mesh)
        inputs, targets, counts = (distribute_tensor(whole, mesh, [Shard(0)]) for whole in (inputs, targets, counts))
    (model(inputs, counts) - targets).square().mean().backward()
    torch.optim.AdamW(model.parameters(), lr=1e-3).step()
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--positive-dim", action="store_true", help="dim=0 for dim=-2: the correct twin")
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    train(0 if arguments.positive_dim else -2, ranks)
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
