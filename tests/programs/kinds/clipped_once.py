"""Gradients of two micro-batches, clipped by their norm before the step; DDP reduces them in the second. With `by-hand`
the program averages them itself. With `warmup` the first step has a rate of zero."""

import contextlib
import sys

import torch.distributed as dist
from job import MISTAKE, RANKS, ddp, nn, own, torch

BY_HAND = "by-hand" in sys.argv and RANKS > 1
net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
model = net if BY_HAND else ddp(net)
optimizer = torch.optim.SGD(model.parameters(), 0 if "warmup" in sys.argv else 0.1)
for _ in range(2):
    optimizer.zero_grad()
    for number in range(2):
        x, y = own(torch.randn(8, 16)), own(torch.randint(0, 4, (8,)))
        skips = RANKS > 1 and number == 0 and not BY_HAND
        with model.no_sync() if skips else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(x), y)
            (loss if MISTAKE == "whole" and RANKS > 1 else loss / 2).backward()
        if number == 1 and MISTAKE == "by-rank":
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        for parameter in model.parameters() if BY_HAND and number == 1 else ():
            if MISTAKE == "bias" and parameter is net[2].bias:
                continue
            dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
        if (number == 1 and MISTAKE != "by-rank") or (MISTAKE == "each" and RANKS > 1):
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
