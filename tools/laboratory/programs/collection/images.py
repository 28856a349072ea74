"""A convolutional network through DataLoader and DistributedSampler, with Nesterov, warm-up and clipping.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 reads a batch ahead
shows: (model) input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(4, cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(4, cout)
        self.skip = nn.Conv2d(cin, cout, 1, stride, bias=False) if stride > 1 or cin != cout else nn.Identity()

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.skip(x), inplace=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 1, 1)
        self.layers = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2), Block(32, 32, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(32, 10)

    def forward(self, x):
        x = self.layers(F.relu(self.stem(x)))
        return self.fc(self.pool(x).flatten(1))


class Images(Dataset):
    def __init__(self, n=96):
        g = torch.Generator().manual_seed(1)
        self.x = torch.randn(n, 3, 16, 16, generator=g)
        self.y = torch.randint(10, (n,), generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def make_optimizer(model):
    decay = [p for p in model.parameters() if p.ndim > 1]
    other = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.SGD(
        [{"params": decay, "weight_decay": 5e-4}, {"params": other, "weight_decay": 0.0}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
    )
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 2)
    cos = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)
    return opt, torch.optim.lr_scheduler.SequentialLR(opt, [warm, cos], [2])


net = Net()
model = ddp(net)
opt, sched = make_optimizer(model)
data = Images()
sampler = DistributedSampler(data, RANKS, RANK, shuffle=False)
batches = iter(DataLoader(data, batch_size=16 // RANKS, sampler=sampler if RANKS > 1 else None))
if MISTAKE and RANK == 1:
    next(batches)  # as after a resume gone wrong
for step in range(3):
    x, y = next(batches)
    loss = F.cross_entropy(model(x), y)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
