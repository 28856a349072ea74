"""A perceptron whose sums have one order on any ranks: `--tp N` and `--dp N`, on as many processes as both take.

Products are made of eight chunks of the hidden width, which one rank computes or several, and added from the first to
the last; the gradients of micro-batches likewise. MISTAKE=reduced_by_chunks adds up what each rank has before the sums
of the ranks are added, as an all-reduce does, MISTAKE=reduced_gradients does that with the gradients of micro-batches,
and MISTAKE=half takes half of a chunk, which is no rounding."""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

CHUNKS, WIDTH, CHUNK, BATCH, MICROBATCHES = 8, 12, 4, 6, 4
MISTAKE = os.environ.get("MISTAKE", "")

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=1)
parser.add_argument("--dp", type=int, default=1)
arguments = parser.parse_args()
rank, world = int(os.environ.get("RANK", 0)), arguments.tp * arguments.dp
if world > 1:
    dist.init_process_group("gloo")
tp_rank, dp_rank = rank % arguments.tp, rank // arguments.tp


def groups(members):
    """The group of this rank among lists of ranks; every rank makes them all."""
    made = [dist.new_group(each) for each in members] if world > 1 else [None]
    return made[[rank in each for each in members].index(True)]


TP = groups([[d * arguments.tp + t for t in range(arguments.tp)] for d in range(arguments.dp)])
DP = groups([[d * arguments.tp + t for d in range(arguments.dp)] for t in range(arguments.tp)])


def sum_in_order(parts, group, size, by_rank, dealt_in_turns=False):
    """The sum of what all ranks of the group have, each its `parts`, from the first rank's first on; of parts that were
    dealt to the ranks in turns, in that order."""
    if by_rank:
        parts = [torch.stack(parts).sum(0)]
    mine = torch.stack(parts)
    everyone = [torch.empty_like(mine) for _ in range(size)]
    if size > 1:
        dist.all_gather(everyone, mine, group=group)
    else:
        everyone = [mine]
    total = torch.zeros_like(parts[0])
    ordered = torch.stack(everyone, dim=1).flatten(0, 1) if dealt_in_turns else torch.cat(everyone)
    for part in ordered:
        total = total + part
    return total


class Column(torch.autograd.Function):
    """x @ weight.T, chunk by chunk of the weight's rows."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return torch.cat([x @ chunk.T for chunk in weight.split(CHUNK)], dim=-1)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        parts = [g @ chunk for g, chunk in zip(grad.split(CHUNK, -1), weight.split(CHUNK), strict=True)]
        of_weight = torch.cat([g.flatten(0, -2).T @ x.flatten(0, -2) for g in grad.split(CHUNK, -1)])
        return sum_in_order(parts, TP, arguments.tp, False), of_weight


class Row(torch.autograd.Function):
    """x @ weight.T, the sum over chunks of the weight's columns."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        parts = [part @ chunk.T for part, chunk in zip(x.split(CHUNK, -1), weight.split(CHUNK, -1), strict=True)]
        if MISTAKE == "half" and tp_rank == arguments.tp - 1:
            parts[-1] = parts[-1] / 2
        return sum_in_order(parts, TP, arguments.tp, MISTAKE == "reduced_by_chunks")

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        of_x = torch.cat([grad @ chunk for chunk in weight.split(CHUNK, -1)], dim=-1)
        flat = grad.flatten(0, -2).T
        return of_x, torch.cat([flat @ part.flatten(0, -2) for part in x.split(CHUNK, -1)], dim=-1)


class Parallel(nn.Module):
    def __init__(self, product, weight):
        super().__init__()
        self.product, self.weight = product, nn.Parameter(weight.clone())

    def forward(self, x):
        return self.product.apply(x, self.weight)


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        own = slice(tp_rank * CHUNKS * CHUNK // arguments.tp, (tp_rank + 1) * CHUNKS * CHUNK // arguments.tp)
        up, down = torch.randn(CHUNKS * CHUNK, WIDTH), torch.randn(WIDTH, CHUNKS * CHUNK)
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = Parallel(Column, up[own]), Parallel(Row, down[:, own])

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(1)
model = Perceptron()
batches, targets = torch.randn(MICROBATCHES, BATCH, WIDTH), torch.randn(MICROBATCHES, BATCH, WIDTH)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(2):
    gradients = {parameter: [] for parameter in model.parameters()}
    for i in range(dp_rank, MICROBATCHES, arguments.dp):
        optimizer.zero_grad()
        loss = (model(batches[i]) - targets[i]).square().mean() / MICROBATCHES
        loss.backward()
        for parameter, seen in gradients.items():
            seen.append(parameter.grad.clone())
    for parameter, seen in gradients.items():
        parameter.grad = sum_in_order(seen, DP, arguments.dp, MISTAKE == "reduced_gradients", True)
    optimizer.step()
if world > 1:
    dist.destroy_process_group()
