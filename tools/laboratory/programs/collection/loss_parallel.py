"""FSDP2 over tensor parallelism, with loss_parallel.

package: PyTorch
parallel: FSDP2 and tensor parallel by DTensor, 4 ranks
mistake: the second data parallel rank takes other samples
shows: (model) input
"""

import contextlib

import torch.nn.functional as F
from gpt_model import GPT
from job import MISTAKE, RANKS, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

model = GPT()
dp_rank, dp = 0, 1
if RANKS > 1:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    dp_rank, dp = mesh["dp"].get_local_rank(), 2
    parallelize_module(model, mesh["tp"], {"head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)})
    for b in model.blocks:
        plan = {f"attention.{n}": ColwiseParallel() for n in "qkv"}
        plan |= {"attention.o": RowwiseParallel(), "fc1": ColwiseParallel(), "fc2": RowwiseParallel()}
        parallelize_module(b, mesh["tp"], plan)
        fully_shard(b, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(step))
    if MISTAKE and dp_rank == 1 and step == 0:
        ids = ids.flip(0)
    ids = ids.chunk(dp)[dp_rank]
    with loss_parallel() if RANKS > 1 else contextlib.nullcontext():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
    opt.step()
    opt.zero_grad()
