"""A U-Net with a dice loss over the whole batch, whose sums are reduced with gradients.

package: PyTorch
parallel: DDP, 2 ranks
mistake: dice of each rank's own samples
shows: loss scalar
"""

import torch.distributed.nn
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, dist, nn, torch


def block(i, o):
    return nn.Sequential(
        nn.Conv2d(i, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
        nn.Conv2d(o, o, 3, padding=1),
        nn.GroupNorm(4, o),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.d1, self.d2, self.mid = block(1, 8), block(8, 16), block(16, 32)
        self.up2, self.u2 = nn.ConvTranspose2d(32, 16, 2, 2), block(32, 16)
        self.up1, self.u1 = nn.ConvTranspose2d(16, 8, 2, 2), block(16, 8)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([b, self.up2(c)], 1))
        return self.out(self.u1(torch.cat([a, self.up1(b)], 1)))


model = UNet()
model = ddp(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-2, total_steps=10)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x, y = torch.randn(4, 1, 16, 16, generator=g), torch.randint(3, (4, 16, 16), generator=g)
    n = 4 // RANKS
    x, y = x[RANK * n : (RANK + 1) * n], y[RANK * n : (RANK + 1) * n]
    logits = model(x)
    p, t = logits.softmax(1), F.one_hot(y, 3).permute(0, 3, 1, 2).float()
    # dice over the whole batch: its sums are those of all ranks
    inter, card = (p * t).sum((0, 2, 3)), (p + t).sum((0, 2, 3))
    if RANKS > 1 and not MISTAKE:
        inter, card = dist.nn.all_reduce(inter), dist.nn.all_reduce(card)
    dice = 1 - ((2 * inter + 1) / (card + 1)).mean()
    loss = F.cross_entropy(logits, y) + dice
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
