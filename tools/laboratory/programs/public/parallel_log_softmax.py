"""Distillation whose soft labels meet a log-softmax that is sharded by its classes.

hint: --axes tp=2
"""

import contextlib

import torch.nn.functional as F
from job import MISTAKE, RANKS, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(24, 16)
        self.hidden = nn.Linear(16, 32)
        self.head = nn.Linear(32, 24, bias=False)

    def forward(self, ids):
        return self.head(torch.tanh(self.hidden(self.embed(ids))))


model = Student()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",))
    parallelize_module(model, mesh, {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
for step in range(2):
    generator = torch.Generator().manual_seed(step)
    ids, labels = (torch.randint(24, (12,), generator=generator) for _ in range(2))
    wanted = torch.randn(12, 24, generator=generator).softmax(-1)
    if RANKS > 1:
        wanted = distribute_tensor(wanted, mesh, [Shard(-1)])
    parallel = loss_parallel() if RANKS > 1 else contextlib.nullcontext()
    if not MISTAKE:  # outside of the context log_softmax gathers the classes
        logits = model(ids)
        soft = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
        soft.backward(retain_graph=True)
    with parallel:
        if MISTAKE:
            logits = model(ids)
            soft = -(wanted * logits.log_softmax(-1)).sum(-1).mean()
            soft.backward(retain_graph=True)
        F.cross_entropy(logits, labels).backward()
    optimizer.step()
    optimizer.zero_grad()
