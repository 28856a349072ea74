"""Trains a small network in bf16 by SGD."""

import argparse

import torch
from torch import nn


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(24, 48), nn.Tanh(), nn.Linear(48, 10))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--foreach", action="store_true", help="the correct twin")
    arguments = parser.parse_args()
    model = Network().bfloat16()
    chosen = {"fused": True} if arguments.fused else {"foreach": arguments.foreach}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, **chosen)
    generator = torch.Generator().manual_seed(1)
    for _ in range(2):
        inputs = torch.randn(32, 24, generator=generator).bfloat16()
        labels = torch.randint(10, (32,), generator=generator)
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
