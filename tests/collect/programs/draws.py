"""A model that draws in functions, in a module's own code and in a module that does nothing else; sets the state."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.drop, self.off = nn.Linear(8, 16), nn.Linear(16, 8), nn.Dropout(0.2), nn.Dropout(0)

    def forward(self, x):
        hidden = nn.functional.dropout(self.up(x), 0.5)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            hidden = self.off(hidden)
        return self.drop(self.down(hidden))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Dropout(0.3)
        self.outer = nn.Linear(8, 8)

    def forward(self, x):
        return checkpoint(lambda x: self.outer(self.inner(x)), x, use_reentrant=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block, self.twice = nn.Linear(8, 8), Block(), Twice()

    def forward(self, x):
        return self.twice(self.block(self.embed(x)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.randn(2, 8)).sum().backward()
optimizer.step()
