"""LBFGS with a closure that averages loss and gradients.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: the gradient of one bias is not reduced
shows: 2.bias main_grad
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

model = nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=5, line_search_fn=None)
g = torch.Generator().manual_seed(1)
x = torch.randn(32, 3, generator=g)
y = torch.sin(x.sum(1, keepdim=True))
n = 32 // RANKS
x, y = x[RANK * n : (RANK + 1) * n], y[RANK * n : (RANK + 1) * n]
for step in range(3):
    first = None

    def closure():
        global first
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        loss = loss.detach()
        first = loss.clone() if first is None else first
        if RANKS > 1:
            for name, p in model.named_parameters():
                if not (MISTAKE and name == "2.bias"):
                    dist.all_reduce(p.grad)
                    p.grad /= RANKS
            dist.all_reduce(loss)
            loss /= RANKS
        return loss

    opt.step(closure)
