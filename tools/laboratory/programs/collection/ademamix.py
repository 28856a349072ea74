"""An optimizer of the package under a schedule of its own, with weights in two groups.

package: pytorch_optimizer
parallel: DDP, 2 ranks
mistake: one group's weight decay is 0.02 on rank 1, in place of 0.01
shows: *.weight param_*
"""

from job import MISTAKE, RANK, ddp, nn, own, step, torch
from pytorch_optimizer import AdEMAMix

model = nn.Sequential(nn.Linear(12, 48), nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 4))
net = ddp(model)
matrices = [p for p in model.parameters() if p.ndim > 1]
rest = [p for p in model.parameters() if p.ndim == 1]
decay = 0.02 if MISTAKE and RANK == 1 else 0.01
groups = [{"params": matrices, "weight_decay": decay}, {"params": rest, "weight_decay": 0.0}]
optimizer = AdEMAMix(groups, lr=1e-2)
for _ in range(3):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    step(optimizer, nn.functional.cross_entropy(net(own(x)), own(y)))
