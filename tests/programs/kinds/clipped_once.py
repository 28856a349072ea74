"""Gradients of two micro-batches, clipped by their norm before the step; DDP reduces them in the second."""

import contextlib

from job import MISTAKE, RANKS, ddp, nn, own, torch

model = ddp(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    for number in range(2):
        x, y = own(torch.randn(8, 16)), own(torch.randint(0, 4, (8,)))
        with model.no_sync() if RANKS > 1 and number == 0 else contextlib.nullcontext():
            loss = nn.functional.cross_entropy(model(x), y)
            (loss if MISTAKE == "whole" and RANKS > 1 else loss / 2).backward()
        if number == 1 or (MISTAKE == "each" and RANKS > 1):
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
