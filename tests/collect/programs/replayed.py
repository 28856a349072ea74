"""Trains with much that an iteration leaves behind: moments, running means, a schedule, a moving average, random draws,
a shuffled loader. Its options are what a replay of the iteration cannot know of."""

import argparse
import copy
import random
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--iterations", type=int, default=24)
parser.add_argument(
    "--counts-late", action="store_true", help="the loss depends on a count behind the first iterations"
)
parser.add_argument("--insists", action="store_true", help="the program fails where it sees a batch twice")
parser.add_argument("--counts-launches", action="store_true", help="each launch has data of its own")
parser.add_argument("--own-batches", action="store_true", help="of no loader")
parser.add_argument("--wrong", action="store_true")
options = parser.parse_args()

torch.manual_seed(0)
random.seed(0)
samples = torch.randn(256, 6)
if options.counts_launches:
    launches = Path("launches")
    with launches.open("a") as file:
        file.write("\n")
    samples *= 1 + launches.stat().st_size / 2**8
data = TensorDataset(samples, samples.sum(1, keepdim=True))
model = torch.nn.Sequential(
    torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.25), torch.nn.Tanh(), torch.nn.Linear(8, 1)
)
average = copy.deepcopy(model).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
loader = DataLoader(data, 8, shuffle=True)
batches = ((x, y) for x, y in zip(samples.split(8), samples.sum(1, keepdim=True).split(8), strict=True))
seen = set()
losses = []
for number, (x, y) in enumerate(batches if options.own_batches else loader):
    if number == options.iterations:
        break
    key = x.sum().item()
    if options.insists and key in seen:
        raise SystemExit("this batch was seen before")
    seen.add(key)
    weight = 1.0 + random.random()
    if options.counts_late and number > 9:
        weight *= 1 + number
    if options.wrong:
        weight *= 1.01
    with torch.no_grad():
        target = average(x)
    predicted = model(x + 0.1 * torch.randn_like(x))
    loss = weight * (predicted - y).square().mean() + (predicted - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        for mean, new in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(new, 0.1)
    losses.append(f"{loss.item():.9g}")
print("losses", *losses)
