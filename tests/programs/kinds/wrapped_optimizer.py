"""An optimizer that shares its state out over the ranks, and hands a schedule's options on when it steps."""

from job import MISTAKE, RANKS, ddp, nn, own, scaled, step, torch
from torch.distributed.optim import ZeroRedundancyOptimizer

model = ddp(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)))
if RANKS > 1:
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)
else:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda number: (number + 1 + (MISTAKE == "schedule" and RANKS > 1)) / 10
)
x, labels = torch.randn(8, 16), torch.randint(8, (8,))
for _ in range(2):
    step(optimizer, scaled(nn.functional.cross_entropy(model(own(x)), own(labels))))
    schedule.step()
