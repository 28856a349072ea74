"""Triplets of the hardest in the batch, over the embeddings of all ranks.

package: PyTorch
parallel: data parallel by hand, 2 ranks
mistake: the labels of rank 1 are those of the next batch
shows: loss scalar
hint: --axes dp=2
"""

import torch.distributed.nn
import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.PReLU(), nn.LayerNorm(64), nn.Linear(64, 16))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def batch_hard(anchors, labels, everything, all_labels, offset=0, margin=0.3):
    d = torch.cdist(anchors, everything)
    same = labels[:, None] == all_labels[None]
    me = torch.arange(len(anchors))[:, None] + offset == torch.arange(len(everything))[None]
    hardest_pos = d.masked_fill(~same | me, -1.0).max(1).values
    hardest_neg = d.masked_fill(same, 1e9).min(1).values
    return F.relu(hardest_pos - hardest_neg + margin).mean()


def data(step):
    g = torch.Generator().manual_seed(step)
    return torch.randn(16, 20, generator=g), torch.randperm(16, generator=g) // 4


model = Embedder()
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
for step in range(3):
    x, y = (v.chunk(RANKS)[RANK] for v in data(step))
    if MISTAKE and RANK == 1:
        y = data(step + 1)[1].chunk(RANKS)[RANK]
    z = model(x)
    all_z, all_y = z, [y]
    if RANKS > 1:
        all_z = torch.cat(torch.distributed.nn.all_gather(z))
        all_y = [torch.empty_like(y) for _ in range(RANKS)]
        dist.all_gather(all_y, y.contiguous())
    loss = batch_hard(z, y, all_z, torch.cat(all_y), RANK * len(z))
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        flat /= RANKS
        for p, g in zip(model.parameters(), flat.split([p.numel() for p in model.parameters()])):
            p.grad.copy_(g.view_as(p))
    opt.step()
