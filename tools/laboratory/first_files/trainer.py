"""A trainer that each launcher below starts: tensor parallel or data parallel by hand, as the caller says."""

import os

import torch
import torch.distributed as dist
from torch import nn

# Of torchrun, Open MPI, Slurm, or none.
RANKS = int(next((os.environ[n] for n in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS") if n in os.environ), 1))
RANK = int(next((os.environ[n] for n in ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID") if n in os.environ), 0))


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.contiguous()
        dist.all_reduce(gradient)
        return gradient


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        x = x.contiguous().clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient


class Mlp(nn.Module):
    def __init__(self, width, tp):
        super().__init__()
        self.tp = tp
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        if tp > 1:
            self.up.weight = nn.Parameter(self.up.weight.detach().chunk(tp, 0)[RANK].clone())
            self.down.weight = nn.Parameter(self.down.weight.detach().chunk(tp, 1)[RANK].clone())

    def forward(self, x):
        if self.tp == 1:
            return x + self.down(self.up(x).relu())
        return x + Sum.apply(self.down(self.up(Copy.apply(x)).relu()))


def train(tp=1, steps=2, batch=8, width=16, wrap=None):
    """`wrap(model, optimizer)` prepares both, as accelerate does. Raises ValueError where tp is no number of ranks."""
    torch.manual_seed(0)
    if RANKS > 1 and not dist.is_initialized():
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29731")
        dist.init_process_group("gloo", rank=RANK, world_size=RANKS)
    if tp not in (1, RANKS):
        raise ValueError(f"tp is {tp}, and there are {RANKS} ranks")
    dp = RANKS // tp
    model = nn.Sequential(Mlp(width, tp), Mlp(width, tp), nn.Linear(width, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    by_hand = dp > 1 and wrap is None
    if wrap:
        model, optimizer = wrap(model, optimizer)
    for _ in range(steps):
        x, y = torch.randn(batch, width), torch.randn(batch, 1)
        if dp > 1:
            x, y = x.chunk(dp)[RANK], y.chunk(dp)[RANK]
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if by_hand:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dp
        optimizer.step()
        print(f"loss {loss.item():.5f}")
    if dist.is_initialized():
        dist.destroy_process_group()
