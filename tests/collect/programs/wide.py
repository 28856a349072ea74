"""wide.py [wrong] [other]: a model whose tensors are large enough to be sketched; with a wrong activation, or other
data."""

import sys

import torch
from torch import nn


class Activation(nn.GELU):
    def forward(self, x):
        return super().forward(x) * (1.01 if "wrong" in sys.argv else 1)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), Activation(), nn.Linear(1024, 512), nn.LayerNorm(512))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(256, 512)
if "other" in sys.argv:
    x[0, 0] += 1
model(x).square().mean().backward()
optimizer.step()
