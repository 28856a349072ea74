"""An optimizer for each parameter, stepped in a hook as soon as its gradient is there.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: the gradient of one bias is not reduced
shows: 3.bias main_grad
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

model = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 5))
opts = {p: torch.optim.Adam([p], lr=1e-3) for p in model.parameters()}
names = {p: n for n, p in model.named_parameters()}


def hook(p):
    if RANKS > 1 and not (MISTAKE and names[p] == "3.bias"):
        dist.all_reduce(p.grad)
        p.grad /= RANKS
    opts[p].step()
    opts[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(16, 20, generator=g), torch.randint(5, (16,), generator=g)
    n = 16 // RANKS
    loss = F.cross_entropy(model(x[RANK * n : (RANK + 1) * n]), y[RANK * n : (RANK + 1) * n])
    loss.backward()
