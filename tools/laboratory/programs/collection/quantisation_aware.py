"""Quantisation-aware training by hand: observers whose ranges the ranks agree on.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank observes its own samples
shows: 0.observer* output, 0.observer.* buffer*
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lo, hi):
        scale = (hi - lo) / 255
        zero = (-lo / scale).round()
        q = (x / scale + zero).round()
        ctx.save_for_backward((q >= 0) & (q <= 255))
        return (q.clamp(0, 255) - zero) * scale

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0], None, None


class Observer(nn.Module):
    """Moving average of the batch's range; the ranks agree on it."""

    def __init__(self):
        super().__init__()
        self.register_buffer("lo", torch.tensor(-1.0))
        self.register_buffer("hi", torch.tensor(1.0))

    def forward(self, x):
        if self.training:
            with torch.no_grad():
                r = torch.stack([-x.min(), x.max()])
                if RANKS > 1 and not MISTAKE:
                    dist.all_reduce(r, dist.ReduceOp.MAX)
                self.lo.mul_(0.9).sub_(0.1 * r[0])
                self.hi.mul_(0.9).add_(0.1 * r[1])
        return FakeQuant.apply(x, self.lo, self.hi)


class QLinear(nn.Linear):
    def __init__(self, i, o):
        super().__init__(i, o)
        self.observer = Observer()

    def forward(self, x):
        w = self.weight
        s = w.detach().abs().amax(1, keepdim=True)
        return F.linear(self.observer(x), FakeQuant.apply(w, -s, s), self.bias)


model = nn.Sequential(QLinear(12, 48), nn.ReLU(), QLinear(48, 48), nn.ReLU(), QLinear(48, 4))
if RANKS > 1:
    model = DDP(model, broadcast_buffers=False)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(32, 12, generator=g), torch.randint(4, (32,), generator=g)
    n = 32 // RANKS
    loss = F.cross_entropy(model(x[RANK * n : (RANK + 1) * n]), y[RANK * n : (RANK + 1) * n])
    opt.zero_grad()
    loss.backward()
    opt.step()
