"""FSDP1 with a policy that wraps each block, original parameters, and its own clipping.

package: PyTorch
parallel: FSDP1, 2 ranks
mistake: rank 1 sees its samples in another order than their labels
shows: loss scalar
"""

import functools

from job import MISTAKE, RANK, RANKS, nn, own, torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(24), nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


model = nn.Sequential(nn.Linear(10, 24), Block(), Block(), nn.Linear(24, 4))
clip = functools.partial(nn.utils.clip_grad_norm_, list(model.parameters()))
if RANKS > 1:
    policy = ModuleWrapPolicy({Block})
    model = FullyShardedDataParallel(
        model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu")
    )
    clip = model.clip_grad_norm_
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    x, y = own(torch.randn(16, 10)), own(torch.randint(4, (16,)))
    if MISTAKE and RANK == 1:
        y = y.flip(0)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    clip(0.5)
    optimizer.step()
