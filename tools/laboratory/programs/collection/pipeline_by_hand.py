"""A pipeline of two stages by hand, one forward ahead, with a tied embedding.

package: PyTorch
parallel: pipeline by hand, 2 ranks
mistake: the gradients of the tied embedding are not summed
shows: emb.weight main_grad
hint: --axes pp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

D, V, M = 32, 64, 4


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.mix, self.up, self.down = (
            nn.LayerNorm(d),
            nn.Linear(d, d),
            nn.Linear(d, 2 * d),
            nn.Linear(2 * d, d),
        )

    def forward(self, x):
        h = self.norm(x)
        x = x + self.mix(h.cumsum(1) / torch.arange(1, h.shape[1] + 1)[:, None])
        return x + self.down(F.gelu(self.up(x)))


class Stage(nn.Module):
    """The layers from `start` to `end`, under their names in the whole model."""

    def __init__(self, start, end, layers=4):
        super().__init__()
        emb = nn.Embedding(V, D)
        blocks = [Block(D) for _ in range(layers)]
        self.first, self.last = start == 0, end == layers
        if self.first or self.last:
            self.emb = emb  # tied with the head
        self.blocks = nn.ModuleDict({str(i): blocks[i] for i in range(start, end)})
        if self.last:
            self.norm = nn.LayerNorm(D)

    def forward(self, x):
        if self.first:
            x = self.emb(x)
        for b in self.blocks.values():
            x = b(x)
        if self.last:
            x = F.linear(self.norm(x), self.emb.weight)
        return x


per = 4 // RANKS
model = Stage(RANK * per, (RANK + 1) * per)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_of(logits, y):
    return F.cross_entropy(logits.flatten(0, 1), y.flatten()) / M


for step in range(3):
    x = torch.randint(V, (8, 13), generator=torch.Generator().manual_seed(step))
    micro = x.chunk(M)
    if not RANKS > 1:
        for m in micro:
            loss = loss_of(model(m[:, :-1]), m[:, 1:])
            loss.backward()
    elif RANK == 0:
        # one forward ahead (1F1B with two stages)
        outs, pending = {}, []

        def forward(i):
            outs[i] = model(micro[i][:, :-1])
            pending.append((dist.isend(outs[i].detach(), 1), outs[i]))

        def backward(i):
            g = torch.empty_like(outs[i])
            dist.recv(g, 1)
            outs.pop(i).backward(g)

        forward(0)
        for i in range(1, M):
            forward(i)
            backward(i - 1)
        backward(M - 1)
    else:
        for i in range(M):
            h = torch.empty(2, 12, D)
            dist.recv(h, 0)
            h.requires_grad_()
            loss = loss_of(model(h), micro[i][:, 1:])
            loss.backward()
            dist.isend(h.grad, 0).wait()
    if RANKS > 1 and not MISTAKE:
        dist.all_reduce(model.emb.weight.grad)
    opt.step()
    opt.zero_grad()
