"""A mixture of experts that all-to-all reaches, with a loss that balances them by the fractions of all ranks.

package: PyTorch
parallel: expert parallel by hand, 2 ranks
mistake: the balancing loss is of each rank's own fractions
shows: layers.0:1 output
hint: --axes dp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out_splits, in_splits):
        ctx.splits = out_splits, in_splits
        y = x.new_empty(sum(out_splits), *x.shape[1:])
        dist.all_to_all_single(y, x.contiguous(), out_splits, in_splits)
        return y

    @staticmethod
    def backward(ctx, g):
        out_splits, in_splits = ctx.splits
        y = g.new_empty(sum(in_splits), *g.shape[1:])
        dist.all_to_all_single(y, g.contiguous(), in_splits, out_splits)
        return y, None, None


class MeanOverRanks(torch.autograd.Function):
    """mean over the ranks; gradient of a sum of the ranks' losses / world."""

    @staticmethod
    def forward(ctx, x):
        y = x.clone()
        dist.all_reduce(y)
        return y / dist.get_world_size()

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g)
        return g / dist.get_world_size()


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.w1, self.w2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)))


class MoE(nn.Module):
    def __init__(self, dim, experts, rank, world, bug):
        super().__init__()
        self.n, self.rank, self.world, self.bug = experts, rank, world, bug
        self.router = nn.Linear(dim, experts, bias=False)
        every = [Expert(dim) for _ in range(experts)]
        per = experts // world
        self.experts = nn.ModuleDict({str(i): every[i] for i in range(rank * per, (rank + 1) * per)})

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.router(x).softmax(-1)
        weight, index = probs.topk(2, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        fraction = F.one_hot(index, self.n).float().mean((0, 1))
        mean_prob = probs.mean(0)
        if self.world > 1 and not self.bug:
            dist.all_reduce(fraction)
            fraction = fraction / self.world
            mean_prob = MeanOverRanks.apply(mean_prob)
        aux = self.n * (fraction * mean_prob).sum()
        flat, token = index.flatten(), torch.arange(len(x)).repeat_interleave(2)
        order = flat.argsort(stable=True)
        sent = x[token[order]]
        counts = torch.bincount(flat, minlength=self.n)
        if self.world == 1:
            out = torch.cat([self.experts[str(i)](c) for i, c in enumerate(sent.split(counts.tolist()))])
        else:
            per = self.n // self.world
            theirs = torch.empty_like(counts)
            dist.all_to_all_single(theirs, counts)
            theirs = theirs.view(self.world, per)
            ins = counts.view(self.world, per).sum(1).tolist()
            outs = theirs.sum(1).tolist()
            got = AllToAll.apply(sent, outs, ins)
            pieces = got.split(theirs.flatten().tolist())
            results = [None] * len(pieces)
            for e in range(per):
                mine = [pieces[r * per + e] for r in range(self.world)]
                y = self.experts[str(self.rank * per + e)](torch.cat(mine))
                for r, part in enumerate(y.split([len(m) for m in mine])):
                    results[r * per + e] = part
            out = AllToAll.apply(torch.cat(results), ins, outs)
        y = torch.zeros_like(x).index_add(0, token[order], out * weight.flatten()[order, None])
        return y.view(shape), aux


class Net(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(2))
        self.layers = nn.ModuleList(MoE(dim, 4, RANK, RANKS, bool(MISTAKE)) for _ in range(2))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x, aux = self.embedding(ids), 0
        for n, l in zip(self.norms, self.layers):
            y, a = l(n(x))
            x, aux = x + y, aux + a
        return self.head(x), aux


def data(step):
    return torch.randint(40, (8, 13), generator=torch.Generator().manual_seed(step))


model = Net()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    ids = data(step).chunk(RANKS)[RANK]
    logits, aux = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()) + 0.1 * aux
    loss.backward()
    if RANKS > 1:
        for name, p in model.named_parameters():
            if "experts" not in name:
                dist.all_reduce(p.grad)
            p.grad /= RANKS  # experts have seen the tokens of all ranks
    opt.step()
    opt.zero_grad()
