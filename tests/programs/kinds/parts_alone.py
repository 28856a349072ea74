"""A module that one process calls, and of which several call what is inside; `whole`: the other way round. So does a
package's method in place of `forward`, as timm's `forward_head`."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, own, step, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 8)
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 3))

    def forward(self, x):
        x = self.body(x).tanh()
        if (RANKS > 1) == ("whole" in sys.argv):
            norm, last = self.head
            return last(norm(x) * (1.01 if MISTAKE == "scale" and RANK == 1 else 1))
        return self.head(x * (1.01 if MISTAKE == "scale" and RANK == 1 else 1))


net = Net()
model, optimizer = ddp(net), torch.optim.SGD(net.parameters(), 0.1)
for x, wanted in zip(torch.randn(2, 8, 6), torch.randn(2, 8, 3), strict=True):
    step(optimizer, nn.functional.mse_loss(model(own(x)), own(wanted)))
