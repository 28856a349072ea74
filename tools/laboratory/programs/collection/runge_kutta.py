"""A neural differential equation, solved by Runge and Kutta's method: one module is called 16 times.

package: PyTorch
parallel: DDP, 2 ranks
mistake: in one of the steps rank 1 takes another time
shows: field*input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Field(nn.Module):
    def __init__(self, d=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d + 1, 32), nn.Tanh(), nn.Linear(32, d))

    def forward(self, t, y):
        return self.net(torch.cat([y, t.expand(len(y), 1)], -1))


def rk4(f, y, t0, t1, steps):
    h = (t1 - t0) / steps
    for i in range(steps):
        t = torch.tensor(t0 + i * h)
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + (h / 2 if MISTAKE and RANK == 1 and i == 2 else h), y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.field, self.dec = nn.Linear(4, 6), Field(), nn.Linear(6, 2)

    def forward(self, x):
        return self.dec(rk4(self.field, self.enc(x), 0.0, 1.0, 4))


model = Model()
model = ddp(model)
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randn(16, 4, generator=g)
    y = torch.stack([x.sum(-1).sin(), x.prod(-1)], -1)
    n = 16 // RANKS
    loss = F.mse_loss(model(x[RANK * n : (RANK + 1) * n]), y[RANK * n : (RANK + 1) * n])
    opt.zero_grad()
    loss.backward()
    opt.step()
