"""The package's EMA around a model, which is updated after each step.

package: ema-pytorch
parallel: DDP, 2 ranks
mistake: rank 1 forgets by 0.8 in place of 0.9
shows: *ema_model.* buffer_after, EMA* buffer_after, Sequential* buffer_after
iterations: 0-2
"""

from ema_pytorch import EMA
from job import MISTAKE, RANK, ddp, nn, own, step, torch

model = nn.Sequential(nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 3))
net = ddp(model)
beta = 0.8 if MISTAKE and RANK == 1 else 0.9
average = EMA(model, beta=beta, update_after_step=0, update_every=1, inv_gamma=0.1, power=10.0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(4):
    x, y = torch.randn(16, 10), torch.randint(3, (16,))
    step(optimizer, nn.functional.cross_entropy(net(own(x)), own(y)))
    average.update()
