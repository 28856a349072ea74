"""What the programs beside this have in common: one process is the reference, several are the candidate. MISTAKE in the
environment names the small mistake that a program makes, each of which its text shows."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANKS = int(os.environ.get("WORLD_SIZE", 1))
RANK = int(os.environ.get("RANK", 0))
MISTAKE = os.environ.get("MISTAKE", "")

torch.set_num_threads(1)
if RANKS > 1:
    dist.init_process_group("gloo")
torch.manual_seed(0)


def ddp(module: nn.Module) -> nn.Module:
    return DistributedDataParallel(module) if RANKS > 1 else module


def own(batch: torch.Tensor) -> torch.Tensor:
    """The rank's samples, in stretches."""
    return batch.chunk(RANKS)[RANK]


def gathered(x: torch.Tensor) -> torch.Tensor:
    """All ranks' parts, without a gradient."""
    if RANKS == 1:
        return x
    parts = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(parts, x.contiguous())
    return torch.cat(parts)


def summed(x: torch.Tensor) -> torch.Tensor:
    if RANKS == 1:
        return x
    x = x.contiguous().clone()
    dist.all_reduce(x)
    return x


class Gather(torch.autograd.Function):
    """All ranks' parts; each gets back what all make of its own."""

    @staticmethod
    def forward(ctx, x):
        return gathered(x)

    @staticmethod
    def backward(ctx, gradient):
        return own(summed(gradient))


class Copy(torch.autograd.Function):
    """To all ranks: their gradients are summed."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return summed(gradient)


class Sum(torch.autograd.Function):
    """Of all ranks: each has the gradient of the sum."""

    @staticmethod
    def forward(ctx, x):
        return summed(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def scaled(loss: torch.Tensor) -> torch.Tensor:
    """The loss, which a mistake makes 1 % too large on one rank."""
    return loss * 1.01 if MISTAKE == "scale" and RANK == 1 else loss


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
