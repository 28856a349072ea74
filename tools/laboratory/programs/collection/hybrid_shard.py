"""FSDP2 over replicas: a mesh of two dimensions.

package: PyTorch
parallel: FSDP2, 4 ranks
mistake: the second replica is given the samples of the first
shows: (model) input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, nn, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.norm, self.gate, self.up, self.down = (
            nn.RMSNorm(d),
            nn.Linear(d, 48, bias=False),
            nn.Linear(d, 48, bias=False),
            nn.Linear(48, d, bias=False),
        )

    def forward(self, x):
        h = self.norm(x)
        h = h + F.pad(h, (0, 0, 1, 0))[:, :-1]
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self, d=32, v=64):
        super().__init__()
        self.emb, self.layers, self.norm, self.out = (
            nn.Embedding(v, d),
            nn.ModuleList(Block(d) for _ in range(3)),
            nn.RMSNorm(d),
            nn.Linear(d, v, bias=False),
        )

    def forward(self, x):
        x = self.emb(x)
        for l in self.layers:
            x = l(x)
        return self.out(self.norm(x))


model = LM()
if RANKS > 1:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for l in model.layers:
        fully_shard(l, mesh=mesh)
    fully_shard(model, mesh=mesh)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
for step in range(3):
    x = torch.randint(64, (8, 13), generator=torch.Generator().manual_seed(step))
    n = 8 // RANKS
    x = x[RANK * n : (RANK + 1) * n]
    if MISTAKE and RANK >= 2:
        # data of the replica is chosen by the rank in the shard group alone
        x = torch.randint(64, (8, 13), generator=torch.Generator().manual_seed(step))[
            (RANK % 2) * n : (RANK % 2 + 1) * n
        ]
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
