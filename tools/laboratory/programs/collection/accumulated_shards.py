"""Accumulation without synchronisation, with weights by tokens.

package: PyTorch
parallel: FSDP2, 2 ranks
mistake: the loss of the first micro-batch is 1 % larger on rank 1
shows: loss scalar
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from llama_model import Llama
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

model = Llama()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(3):
    micro, total = [], 0
    for i in range(2):
        g = torch.Generator().manual_seed(10 * step + i)
        ids, length = torch.randint(66, (8, 17), generator=g), torch.randint(6, 17, (8,), generator=g)
        labels = ids[:, 1:].clone()
        labels[torch.arange(16)[None] >= length[:, None]] = -100
        total += (labels != -100).sum().item()
        micro.append((ids[:, :-1].chunk(RANKS)[RANK], labels.chunk(RANKS)[RANK]))
    for i, (ids, labels) in enumerate(micro):
        if RANKS > 1:
            model.set_requires_gradient_sync(i == 1)
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") * RANKS / total
        if MISTAKE and RANK == 1 and i == 0:
            loss = loss * 1.01
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
