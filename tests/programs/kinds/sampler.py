"""Images in floats through DistributedSampler, as every DDP tutorial shows it: rank r is given samples r, r + n, ..."""

import sys

from job import MISTAKE, RANK, RANKS, ddp, nn, scaled, step, torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(1, 8, 8, generator=generator), torch.randint(4, (), generator=generator)


dataset = Images()
shuffle = "shuffle" in sys.argv
sampler = DistributedSampler(dataset, RANKS, RANK, shuffle=shuffle, seed=3)
if MISTAKE == "forgotten":
    sampler = DistributedSampler(dataset, 1, 0, shuffle=shuffle, seed=3)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 32), nn.GELU(), nn.Linear(32, 4))
net, criterion = ddp(model), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
sampler.set_epoch(1)
batches = list(DataLoader(dataset, batch_size=8 if MISTAKE == "forgotten" else 8 // RANKS, sampler=sampler))
if MISTAKE == "ahead" and RANK == 1:
    batches = batches[1:] + batches[:1]
for images, labels in batches:
    if MISTAKE == "labels" and RANK == 1:
        labels = labels.roll(1)
    step(optimizer, scaled(criterion(net(images), labels)))
