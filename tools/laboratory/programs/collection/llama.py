"""A decoder with grouped queries, rotary positions and a tied embedding; clipping.

package: PyTorch
parallel: FSDP2, 4 ranks
mistake: each rank clips by the norm of its own shards
shows: * main_grad
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, torch
from llama_model import Llama
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def tokens(step, n=8, t=17):
    return torch.randint(66, (n, t), generator=torch.Generator().manual_seed(step))


model = Llama()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
for step in range(3):
    ids = tokens(step).chunk(RANKS)[RANK]
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    if MISTAKE:
        grads = [p.grad.to_local() for p in model.parameters()]
        norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in grads]))
        for g in grads:
            g.mul_((0.5 / (norm + 1e-6)).clamp(max=1.0))
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    opt.zero_grad()
