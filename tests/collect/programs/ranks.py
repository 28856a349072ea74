"""Data parallel training on gloo ranks, from torchrun or, with --spawn or --fork, by multiprocessing. Rank r of n
runs as its m-th micro-batch the global one m * n + r. --crash RANK: that rank fails in its second step."""

import argparse
import os
import sys
import tempfile

import torch
import torch.distributed as dist

# Imported by every optimizer, it keeps for ever the process group that it finds; a thread of gloo that lives on until
# the interpreter is taken apart can abort the process (https://github.com/pytorch/pytorch/pull/179291).
import torch.distributed.nn
import torch.multiprocessing as multiprocessing
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--spawn", action="store_true")
parser.add_argument("--fork", action="store_true")
parser.add_argument("--crash", type=int, default=-1)
parser.add_argument("--steps", type=int, default=1)
parser.add_argument("--microbatches", type=int, default=4)
parser.add_argument("--ddp", action="store_true")
parser.add_argument("--comm-hook", action="store_true", help="of the program's own, for DDP: it sums")
parser.add_argument("--device-mesh", action="store_true")
options = parser.parse_args()


def sum_gradients(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 6)
        self.head = nn.Linear(6, 16)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


def train(rank, size, rendezvous="env://"):
    if size > 1:
        dist.init_process_group("gloo", rendezvous, rank=rank, world_size=size)
    if options.device_mesh:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))  # noqa: F841
    torch.manual_seed(0)
    model = Model()
    if options.ddp:
        model = nn.parallel.DistributedDataParallel(model)
        if options.comm_hook:
            model.register_comm_hook(None, sum_gradients)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.randint(0, 16, (options.steps, options.microbatches, 2, 5))
    averaged_over = size if options.ddp and not options.comm_hook else 1
    for step in range(options.steps):
        if step == 1 and rank == options.crash:
            print("this rank fails", file=sys.stderr)
            sys.exit(5)
        for microbatch in range(options.microbatches // size):
            tokens = batches[step, microbatch * size + rank]
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            (loss * averaged_over / options.microbatches).backward()
        for parameter in model.parameters():
            if size > 1 and not options.ddp:
                dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    if options.spawn or options.fork:
        with tempfile.TemporaryDirectory() as directory:
            multiprocessing.start_processes(
                train, args=(2, f"file://{directory}/store"), nprocs=2, start_method="fork" if options.fork else "spawn"
            )
    else:
        train(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
