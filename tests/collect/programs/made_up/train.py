"""Trains with the made-up framework: two micro-batches and a step, and another two. Rank 0 prints what the adapter was
asked, and what an adapter can be asked."""

import json
import os
import sys

import made_up
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.twice, self.copied = made_up.Attention(4, 4), nn.Linear(4, 4), made_up.Copied(4, 4)
        self.router, self.experts, self.late = made_up.Router(4, 2), made_up.Experts(), made_up.Late()
        self.flat, self.last = made_up.Flat(), nn.Linear(2, 2)

    def training_step(self, x, cache):
        x = self.attention(x, cache)
        for _ in range(2):
            x = made_up.checkpoint(self.twice, x)
        x = self.copied(x) + self.copied.original
        x = self.experts(x * self.router(x)[:, :1])
        return self.last(self.flat(self.late(x))).square().sum()

    forward = training_step


made_up.arrangement = sys.argv[1]
torch.manual_seed(0)
model = Model()
model.flat.flat.is_flat = model.last.weight.is_halved = True
sgd = torch.optim.SGD(model.parameters(), lr=0.125)
scaled, stage = made_up.Optimizer(sgd, scale=4.0), made_up.Stage(model)
made_up.rehearse(model, torch.ones(3, 4), made_up.Cache())
for optimizer in (sgd, scaled):
    for _ in range(2):
        loss = made_up.train(model, torch.randn(3, 4), made_up.Cache())
        made_up.backward(loss)
    for number in (1, 0):
        stage.backward_weights(number)
    if optimizer is sgd:
        made_up.clip_by(list(model.parameters()), 0.5, length=2.0)
    optimizer.step()
    sgd.zero_grad()
    model.late.saved.clear()

if os.environ["RANK"] == "0" and "ttrace_torch" in sys.modules:
    from ttrace_torch.adapters.adapter import HOOKS
    from ttrace_torch.adapters.made_up_adapter import CALLED, MadeUp

    overridden = [name for name in HOOKS if name in vars(MadeUp)]
    print(json.dumps({"hooks": HOOKS, "overridden": overridden, "called": sorted(CALLED)}))
