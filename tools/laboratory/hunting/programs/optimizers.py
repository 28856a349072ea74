"""Trains a small network for two steps by an optimizer of PyTorch, in one of its implementations."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimizer", required=True)
    parser.add_argument("--options", nargs="*", default=[], help="options of it that are to be true")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layout", choices=("contiguous", "transposed"), default="contiguous", help="of gradients")
    parser.add_argument("--foreach", action="store_true")
    parser.add_argument("--fused", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    dtype = getattr(torch, arguments.dtype)
    model = nn.Sequential(nn.Linear(24, 37), nn.Tanh(), nn.Linear(37, 10)).to(dtype)
    options = dict.fromkeys(arguments.options, True)
    # Neither said: the plain implementation.
    chosen = {"fused": True} if arguments.fused else {"foreach": arguments.foreach}
    optimizer = getattr(torch.optim, arguments.optimizer)(model.parameters(), lr=0.01, **options, **chosen)
    for _ in range(2):
        inputs, labels = torch.randn(32, 24).to(dtype), torch.randint(10, (32,))
        F.cross_entropy(model(inputs), labels).backward()
        if arguments.layout == "transposed":
            for parameter in model.parameters():
                parameter.grad = parameter.grad.t().contiguous().t()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
