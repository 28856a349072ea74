import runpy

import torch
from torch import nn

right = nn.Linear.forward


def forward(self, x):
    y = right(self, x)
    if self.out_features == 48:
        y.data.view(torch.int32)[0, 3, 17] ^= 1 << 20
    return y


nn.Linear.forward = forward
runpy.run_path("original.py")
