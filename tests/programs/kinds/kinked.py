"""A ReLU that rounding moves over its kink in iteration 1."""

import os

from job import MISTAKE, RANK, RANKS, ddp, nn, own, step, torch


class Kinked(nn.Module):
    """In iteration 1 one element, of the first rank's samples, is as near to zero as two orders of a sum are."""

    def __init__(self):
        super().__init__()
        self.iteration = 0

    def forward(self, x):
        x = x.clone()
        if self.iteration == 1 and RANK == 0:
            x[0, 5] -= x[0, 5].detach() - (3e-8 if RANKS == 1 else -3e-8)
        if self.iteration == 1 and RANK == 1:
            self.mistake(x)
        self.iteration += 1
        return x

    def mistake(self, x):
        if MISTAKE == "scaled":
            x[0] *= 1.1
        if MISTAKE == "dropped":
            kept = torch.ones_like(x)
            kept[0, 5] = 0
            x.register_hook(lambda gradient: gradient * kept)
        if MISTAKE == "new-each-time":
            x *= 1 + 1e-7 * torch.rand(x.shape, generator=torch.Generator().manual_seed(os.getpid()))


model = ddp(nn.Sequential(nn.Linear(8, 32), Kinked(), nn.ReLU(), nn.Linear(32, 4)))
optimizer = torch.optim.SGD(model.parameters(), 0.05)
for _ in range(3):
    samples, targets = torch.randn(512, 8), torch.randn(512, 4)
    step(optimizer, nn.functional.mse_loss(model(own(samples)), own(targets)))
