"""Trains an MLP on small integers, whose sums are exact in any order, so that a right parallel run has every bit of the
single process. --ddp: DistributedDataParallel, each rank with its slice of every micro-batch; --turns: the samples are
dealt out one by one. --tp: layers split by code of its own. --bug: gradients that nobody sums up."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.distributed.nn  # its threads end with the group only where it is imported before
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--ddp", action="store_true")
parser.add_argument("--turns", action="store_true")
parser.add_argument("--tp", action="store_true")
parser.add_argument("--bug", action="store_true")
options = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("gloo")
rank, size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)

MICROBATCHES, SAMPLES, TOKENS, WIDTH, HIDDEN = 2, 8, 16, 4, 6


class SumOfGradients(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        if not options.bug:
            dist.all_reduce(gradient)
        return gradient


class SumOfValues(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(context, gradient):
        return gradient


class ColumnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(SumOfGradients.apply(x))


class RowLinear(nn.Linear):
    def forward(self, x):
        return SumOfValues.apply(nn.functional.linear(x, self.weight)) + self.bias


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.fc1 = nn.Linear(WIDTH, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, WIDTH)

    def forward(self, ids):
        return self.fc2(self.fc1(self.embedding(ids)).relu())


class Loss(nn.Module):
    def forward(self, y, target):
        return (y - target).square().sum(-1).mean() / MICROBATCHES


def integers(seed, *shape):
    return torch.randint(-2, 3, shape, generator=torch.Generator().manual_seed(seed)).float()


def split_layers(model):
    share = slice(rank * HIDDEN // size, (rank + 1) * HIDDEN // size)
    fc1, fc2 = ColumnLinear(WIDTH, HIDDEN // size), RowLinear(HIDDEN // size, WIDTH)
    fc1.weight.data, fc1.bias.data = model.fc1.weight.data[share].clone(), model.fc1.bias.data[share].clone()
    fc2.weight.data, fc2.bias.data = model.fc2.weight.data[:, share].clone(), model.fc2.bias.data
    model.fc1, model.fc2 = fc1, fc2


model = Model()
for seed, parameter in enumerate(model.parameters()):
    parameter.data = integers(seed, *parameter.shape)
if options.tp:
    split_layers(model)
if options.ddp:
    model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.125)

ids = torch.randint(0, TOKENS, (MICROBATCHES, SAMPLES), generator=torch.Generator().manual_seed(9))
targets = integers(10, MICROBATCHES, SAMPLES, WIDTH)
mine = slice(rank, None, size) if options.turns else slice(rank * SAMPLES // size, (rank + 1) * SAMPLES // size)
for batch, target in zip(ids, targets, strict=True):
    if options.ddp and options.bug:
        with model.no_sync():
            Loss()(model(batch[mine]), target[mine]).backward()
    else:
        chosen = mine if options.ddp else slice(None)
        Loss()(model(batch[chosen]), target[chosen]).backward()
optimizer.step()
if dist.is_initialized():
    dist.destroy_process_group()
