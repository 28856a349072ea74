"""`many_modules.py N`: two training steps of a model with N modules."""

import sys

import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.weight


class Model(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.layers = nn.ModuleList(Scale() for _ in range(count))

    def forward(self, x):
        return torch.stack([layer(x) for layer in self.layers]).sum()


torch.manual_seed(0)
model = Model(int(sys.argv[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
for _ in range(2):
    optimizer.zero_grad()
    loss = model(torch.ones(1))
    loss.backward()
    optimizer.step()
    print(loss.item().hex())
