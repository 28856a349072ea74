"""A loss that contrasts the samples of all ranks. Each rank gathers them, and has a gradient of its own alone; so it
multiplies the loss by the number of ranks, for DDP takes the mean of gradients.

By default a module gathers, is the criterion of one process as well. With "lone" one process calls the module within by
itself; with "plain" a function gathers and multiplies; with "first" each rank has its own samples first, and with
"memory" the criterion keeps the latest samples."""

import functools
import sys

from job import MISTAKE, RANK, RANKS, ddp, dist, nn, own, step, torch

SAMPLES, WIDTH = 8, 12


def gathered(x):
    if RANKS == 1:
        return x
    parts = [torch.empty_like(x) for _ in range(RANKS)]
    dist.all_gather(parts, x.detach().contiguous())
    parts[RANK] = x  # with its gradient
    if MISTAKE == "stale" and RANK == 1 and x.is_floating_point():
        parts[0] = parts[0] * 0.5
    return torch.cat([x, *parts[:RANK], *parts[RANK + 1 :]] if "first" in sys.argv else parts)


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        if "memory" in sys.argv:
            self.register_buffer("kept", torch.zeros(SAMPLES, WIDTH))
            self.register_buffer("kept_labels", torch.zeros(SAMPLES, dtype=torch.int64))

    def forward(self, x, labels):
        if "memory" in sys.argv:
            self.kept, self.kept_labels = x.detach().clone(), labels.clone()
        itself = torch.eye(len(x), dtype=torch.bool)
        logits = (x @ x.T / 0.5).masked_fill(itself, -1e4)
        alike = (labels[:, None] == labels[None]) & ~itself
        return -(logits.log_softmax(1) * alike).sum(1).div(alike.sum(1)).mean()


def of_all(criterion, x, labels):
    loss = criterion(gathered(x), gathered(labels))
    return loss if MISTAKE == "unscaled" else loss * RANKS


class Gathered(nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, x, labels):
        return of_all(self.loss, x, labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(24, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        return nn.functional.normalize(self.head(torch.tanh(self.body(x))), dim=1)


labels = torch.randperm(SAMPLES) // 2
samples = torch.randn(SAMPLES // 2, 24)[labels] + torch.randn(SAMPLES, 24)
net, criterion = Net(), Contrast()
if "plain" in sys.argv:
    criterion = functools.partial(of_all, criterion)
elif RANKS > 1 or "lone" not in sys.argv:
    criterion = Gathered(criterion)
net = ddp(net)
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for _ in range(2):
    loss = criterion(net(own(samples)), own(labels))
    step(optimizer, loss * RANKS if MISTAKE == "twice" else loss)
