"""DINO: a student, a teacher that follows it, and a criterion with a centre that is averaged over ranks.

package: PyTorch
parallel: DDP, 2 ranks
mistake: each rank keeps a centre of its own samples
shows: *center buffer_after
"""

import copy

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.parallel import DistributedDataParallel as DDP


class Head(nn.Module):
    def __init__(self, d=32, k=48):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, 16))
        self.last = nn.Linear(16, k, bias=False)

    def forward(self, x):
        return self.last(F.normalize(self.mlp(x), dim=-1))


class DINOLoss(nn.Module):
    def __init__(self, k=48):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, k))

    def forward(self, student, teacher):
        s = [F.log_softmax(x / 0.1, -1) for x in student.chunk(2)]
        t = [F.softmax((x - self.center) / 0.04, -1).detach() for x in teacher.chunk(2)]
        loss = sum(-(t[i] * s[1 - i]).sum(-1).mean() for i in range(2)) / 2
        self.update(teacher)
        return loss

    @torch.no_grad()
    def update(self, teacher):
        c = teacher.sum(0, keepdim=True)
        if RANKS > 1 and not MISTAKE:
            dist.all_reduce(c)
        c = c / (len(teacher) * (1 if MISTAKE else RANKS))
        self.center.mul_(0.9).add_(c, alpha=0.1)


def backbone():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1),
        nn.GELU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


student = nn.Sequential(backbone(), Head())
teacher = copy.deepcopy(student).requires_grad_(False)
criterion = DINOLoss()
if RANKS > 1:
    student = DDP(student)
opt = torch.optim.AdamW(student.parameters(), lr=1e-3, weight_decay=0.04)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    views = torch.randn(2, 8, 3, 16, 16, generator=g)
    n = 8 // RANKS
    x = views[:, RANK * n : (RANK + 1) * n].reshape(-1, 3, 16, 16)
    with torch.no_grad():
        t = teacher(x)
    loss = criterion(student(x), t)
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 0.3)
    opt.step()
    with torch.no_grad():
        for p, q in zip((student.module if RANKS > 1 else student).parameters(), teacher.parameters()):
            q.mul_(0.99).add_(p, alpha=0.01)
