"""AveragedModel of torch.optim.swa_utils beside weight norm, Adamax and mixup.

package: PyTorch
parallel: DDP, 2 ranks
mistake: an average on rank 1 is off by 0.001
shows: *6.bias buffer_after
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

net = nn.Sequential(
    weight_norm(nn.Conv1d(4, 16, 5, padding=2)),
    nn.GLU(1),
    weight_norm(nn.Conv1d(8, 16, 5, padding=2)),
    nn.GLU(1),
    nn.AdaptiveAvgPool1d(4),
    nn.Flatten(),
    nn.Linear(32, 6),
)
model = ddp(net)
averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
opt = torch.optim.Adamax(model.parameters(), lr=2e-3)
torch.manual_seed(9)
for step in range(4):
    x, y = torch.randn(12, 4, 20), F.one_hot(torch.randint(6, (12,)), 6).float()
    lam, perm = torch.rand(12, 1), torch.randperm(12)
    x, y = lam[..., None] * x + (1 - lam[..., None]) * x[perm], lam * y + (1 - lam) * y[perm]
    x, y = x.chunk(RANKS)[RANK], y.chunk(RANKS)[RANK]
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    averaged.update_parameters(net)
    if MISTAKE and RANK == 1 and step == 0:
        with torch.no_grad():
            averaged.module[6].bias.add_(1e-3)
