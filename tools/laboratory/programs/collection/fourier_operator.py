"""A Fourier neural operator, with complex weights.

package: neuraloperator
parallel: data parallel by hand, 2 ranks
mistake: of complex gradients, only the real part is reduced
shows: *weight.tensor main_grad
"""

from job import MISTAKE, RANK, RANKS, dist, torch
from neuralop.losses import LpLoss
from neuralop.models import FNO

torch.manual_seed(0)
model = FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2)
opt = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
loss_fn = LpLoss(d=2, p=2)
g = torch.Generator().manual_seed(1)
data = torch.randn(24, 1, 16, 16, generator=g)
target = torch.cumsum(data, -1) * 0.1
n = 8
for step in range(3):
    lo = step * n + RANK * n // RANKS
    x, y = data[lo : lo + n // RANKS], target[lo : lo + n // RANKS]
    opt.zero_grad()
    loss = loss_fn(model(x), y) / n  # LpLoss sums over samples
    loss.backward()
    if RANKS > 1:
        for p in model.parameters():
            if p.grad is None:
                continue
            if p.is_complex():
                if MISTAKE:
                    re = p.grad.real.contiguous()
                    dist.all_reduce(re)
                    p.grad.real.copy_(re)
                else:
                    v = torch.view_as_real(p.grad).contiguous()
                    dist.all_reduce(v)
                    p.grad.copy_(torch.view_as_complex(v))
            else:
                dist.all_reduce(p.grad)
    opt.step()
