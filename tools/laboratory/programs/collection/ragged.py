"""Two tasks over padded sequences, with learned weights, and a last micro-batch that is smaller.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 takes the mean of the smaller micro-batch
shows: loss scalar
"""

import contextlib

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Net(nn.Module):
    def __init__(self, v=40, d=32, c=6):
        super().__init__()
        self.emb = nn.Embedding(v, d, padding_idx=0)
        self.enc = nn.TransformerEncoderLayer(d, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.tag, self.cls = nn.Linear(d, c), nn.Linear(d, 3)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.enc(self.emb(x), src_key_padding_mask=x == 0)
        return self.tag(h), self.cls(h[:, 0])


model = Net()
model = ddp(model)
core = model.module if RANKS > 1 else model
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
weight = torch.tensor([0.2, 1.0, 2.0, 1.5, 0.7, 1.1])
for step in range(3):
    g = torch.Generator().manual_seed(step)
    N = 20
    x, y, z = (
        torch.randint(1, 40, (N, 9), generator=g),
        torch.randint(6, (N, 9), generator=g),
        torch.randint(3, (N,), generator=g),
    )
    lengths = torch.randint(4, 10, (N,), generator=g)
    pad = torch.arange(9) >= lengths[:, None]
    x, y = x.masked_fill(pad, 0), y.masked_fill(pad, -100)
    norm = weight[y[y >= 0]].sum()
    n = N // RANKS
    # the reference runs the micro-batches of both ranks as one: 4 + 4, 4 + 4, 2 + 2 samples
    bounds = [(0, 4), (4, 8), (8, 10)]
    for k, (a, b) in enumerate(bounds):
        rows = torch.arange(a, b) + RANK * n if RANKS > 1 else torch.cat([torch.arange(a, b), torch.arange(a, b) + 10])
        sync = contextlib.nullcontext() if not RANKS > 1 or k == 2 else model.no_sync()
        with sync:
            tag, cls = model(x[rows])
            l1 = (
                F.cross_entropy(tag.flatten(0, 1), y[rows].flatten(), weight, ignore_index=-100, reduction="sum") / norm
            )
            l2 = F.cross_entropy(cls, z[rows], reduction="sum") / N
            if MISTAKE and k == 2 and RANK == 1:
                l2 = F.cross_entropy(cls, z[rows]) / 3 / RANKS  # mean of a ragged micro-batch
            loss = (l1 * (-core.log_var[0]).exp() + l2 * (-core.log_var[1]).exp()) * RANKS + core.log_var.sum() / 3
            loss.backward()
    opt.step()
    opt.zero_grad()
