"""A neural differential equation, solved by odeint in fixed steps.

package: torchdiffeq
parallel: DDP, 2 ranks
mistake: rank 1 integrates to 1.01 in place of 1, in one step more
shows: field* input, decode input
"""

from job import MISTAKE, RANK, ddp, nn, own, step, torch
from torchdiffeq import odeint


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6))

    def forward(self, t, y):
        return self.net(y) * (1 + t)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.field, self.decode = nn.Linear(4, 6), Field(), nn.Linear(6, 2)

    def forward(self, x):
        times = torch.tensor([0.0, 1.01 if MISTAKE and RANK == 1 else 1.0])
        return self.decode(odeint(self.field, self.encode(x), times, method="rk4", options={"step_size": 0.25})[-1])


model = Model()
net = ddp(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    step(optimizer, nn.functional.mse_loss(net(own(x)), own(y)))
