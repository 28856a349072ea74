"""parallel_mlp.py DIRECTORY DTYPE: records an MLP on one rank, and cut over two of gloo's: as it should be, and without
the sum of the gradient of its input."""

import pathlib
import sys

import torch
from torch import distributed, nn

import ttrace

WIDTH = 64


class SumInBackward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        gradient = gradient.clone()
        distributed.all_reduce(gradient)
        return gradient


class SumInForward(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        x = x.clone()
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient


class Mlp(nn.Module):
    def __init__(self, dtype, rank=0, ranks=1, bug=False):
        super().__init__()
        self.sums_forward, self.sums_backward = ranks > 1, ranks > 1 and not bug
        generator = torch.Generator().manual_seed(0)
        self.fc1 = nn.Linear(WIDTH, 4 * WIDTH // ranks, bias=False, dtype=dtype)
        self.fc2 = nn.Linear(4 * WIDTH // ranks, WIDTH, bias=False, dtype=dtype)
        for linear, dim in ((self.fc1, 0), (self.fc2, 1)):
            shape = list(linear.weight.shape)
            shape[dim] *= ranks
            whole = torch.randn(shape, generator=generator) / shape[1] ** 0.5
            linear.weight.data = whole.to(dtype).chunk(ranks, dim)[rank].contiguous()

    def forward(self, x):
        x = SumInBackward.apply(x) if self.sums_backward else x
        y = self.fc2(nn.functional.gelu(self.fc1(x)))
        return SumInForward.apply(y) if self.sums_forward else y


def step(mlp, dtype):
    x = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    mlp(x).float().square().mean().backward()


def run_rank(rank, directory, dtype):
    torch.set_num_threads(1)
    store = f"file://{directory}/store"
    distributed.init_process_group("gloo", rank=rank, world_size=2, init_method=store)
    for name, bug in (("correct", False), ("wrong", True)):
        with ttrace.record(directory / name, axes="tp=2"):
            step(Mlp(dtype, rank, 2, bug), dtype)
    distributed.destroy_process_group()


def main(directory, dtype):
    ttrace.testing.record_reference(directory / "reference", lambda: step(Mlp(dtype), dtype))
    torch.multiprocessing.spawn(run_rank, (directory, dtype), nprocs=2)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), getattr(torch, sys.argv[2]))
