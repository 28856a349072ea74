"""Message passing over graphs in one batch, with means over the edges of a node.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 loses the first of its edges
shows: (model)* input, layers.0* input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message, self.update = nn.Linear(2 * dim, dim), nn.Linear(2 * dim, dim)

    def forward(self, x, src, dst):
        m = F.relu(self.message(torch.cat([x[src], x[dst]], -1)))
        degree = torch.zeros(len(x)).index_add(0, dst, torch.ones(len(dst))).clamp(min=1)
        s = torch.zeros_like(x).index_add(0, dst, m) / degree[:, None]
        return x + self.update(torch.cat([x, s], -1))


class GNN(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.embed = nn.Linear(10, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(3))
        self.out = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x, src, dst, graph, n):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x, src, dst)
        return self.out(torch.zeros(n, x.shape[1]).index_add(0, graph, x)).squeeze(-1)


def graphs(step, n=8):
    g = torch.Generator().manual_seed(step)
    result = []
    for _ in range(n):
        v, e = int(torch.randint(4, 9, (1,), generator=g)), int(torch.randint(8, 20, (1,), generator=g))
        result.append(
            (torch.randn(v, 10, generator=g), torch.randint(v, (2, e), generator=g), torch.randn(1, generator=g))
        )
    return result


def batch(gs):
    offsets = [0]
    for x, _, _ in gs:
        offsets.append(offsets[-1] + len(x))
    edges = torch.cat([e + o for (_, e, _), o in zip(gs, offsets)], 1)
    graph = torch.repeat_interleave(torch.arange(len(gs)), torch.tensor([len(x) for x, _, _ in gs]))
    return torch.cat([x for x, _, _ in gs]), edges[0], edges[1], graph, torch.cat([y for _, _, y in gs])


model = GNN()
model = ddp(model)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    gs = graphs(step)
    n = len(gs) // RANKS
    x, src, dst, graph, y = batch(gs[RANK * n : (RANK + 1) * n])
    if MISTAKE and RANK == 1:
        src, dst = src[1:], dst[1:]
    loss = F.smooth_l1_loss(model(x, src, dst, graph, n), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
