"""A data set whose transforms are modules, as torchvision's are, and draw from the sample's number; loaded in the
program's own process, or by a worker."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, step, torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Normalize(nn.Module):
    def forward(self, x):
        mean = 0.6 if MISTAKE == "mean" and RANK == 1 else 0.5
        return (x - mean) / 0.25


class Jitter(nn.Module):
    def forward(self, x, number):
        return x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(number))


class Images(Dataset):
    def __init__(self):
        self.images, self.labels = torch.rand(24, 16), torch.randint(4, (24,))
        self.normalize, self.jitter = Normalize(), Jitter()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return self.jitter(self.normalize(self.images[number]), number), self.labels[number]


images = Images()
sampler = DistributedSampler(images, RANKS, RANK) if RANKS > 1 else None
shuffled = None if sampler else torch.randperm(24, generator=torch.Generator().manual_seed(0)).tolist()
loader = DataLoader(images, 8 // RANKS, sampler=sampler or shuffled, num_workers=int(sys.argv[1]))
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))
wrapped = ddp(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for x, labels in loader:
    step(optimizer, scaled(nn.functional.cross_entropy(wrapped(x), labels)))
