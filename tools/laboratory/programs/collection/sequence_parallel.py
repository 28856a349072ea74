"""Sequence parallelism by hand: norms see a part of the sequence, and their gradients are reduced.

package: PyTorch
parallel: tensor parallel by hand, 2 ranks
mistake: the gradient of one norm's bias is not reduced
shows: blocks.0.n2.bias main_grad, blocks.0.n2.bias param_grad
hint: --axes tp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch


class Gather(torch.autograd.Function):
    """Sequence parts to the whole; in backward the sum of the gradients, scattered."""

    @staticmethod
    def forward(ctx, x):
        if not RANKS > 1:
            return x
        parts = [torch.empty_like(x) for _ in range(RANKS)]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, g):
        if not RANKS > 1:
            return g
        g = g.clone()
        dist.all_reduce(g)
        return g.chunk(RANKS, 1)[RANK].contiguous()


class Scatter(torch.autograd.Function):
    """Sums partial values, and keeps the rank's part of the sequence."""

    @staticmethod
    def forward(ctx, x):
        if not RANKS > 1:
            return x
        x = x.clone()
        dist.all_reduce(x)
        return x.chunk(RANKS, 1)[RANK].contiguous()

    @staticmethod
    def backward(ctx, g):
        if not RANKS > 1:
            return g
        parts = [torch.empty_like(g) for _ in range(RANKS)]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts, 1)


def rows(linear):
    w = linear.weight.detach().chunk(RANKS, 0)[RANK].clone()
    return nn.Parameter(w)


def columns(linear):
    return nn.Parameter(linear.weight.detach().chunk(RANKS, 1)[RANK].clone())


class MLP(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gate, self.up, self.down = (
            rows(nn.Linear(d, 3 * d)),
            rows(nn.Linear(d, 3 * d)),
            columns(nn.Linear(3 * d, d)),
        )

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


class Attention(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads // RANKS
        self.q, self.k, self.v, self.o = (
            rows(nn.Linear(d, d)),
            rows(nn.Linear(d, d)),
            rows(nn.Linear(d, d)),
            columns(nn.Linear(d, d)),
        )

    def forward(self, x):
        q, k, v = (F.linear(x, w).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return F.linear(y.transpose(1, 2).flatten(2), self.o)


class Norm(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.randn(d) * 0.1)

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * self.weight + self.bias


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2, self.attention, self.mlp = Norm(d), Norm(d), Attention(d), MLP(d)

    def forward(self, x):
        x = x + Scatter.apply(self.attention(Gather.apply(self.n1(x))))
        return x + Scatter.apply(self.mlp(Gather.apply(self.n2(x))))


class Take(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.chunk(RANKS, 1)[RANK].contiguous() if RANKS > 1 else x

    @staticmethod
    def backward(ctx, g):
        if not RANKS > 1:
            return g
        parts = [torch.empty_like(g) for _ in range(RANKS)]
        dist.all_gather(parts, g.contiguous())
        return torch.cat(parts, 1)


class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Gather.forward(ctx, x)

    @staticmethod
    def backward(ctx, g):
        return g.chunk(RANKS, 1)[RANK].contiguous() if RANKS > 1 else g


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.blocks, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.ModuleList(Block(d) for _ in range(2)),
            Norm(d),
            nn.Linear(d, v),
        )

    def forward(self, x):
        x = Take.apply(self.emb(x))
        for b in self.blocks:
            x = b(x)
        return self.head(Whole.apply(self.norm(x)))


model = LM()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(64, (4, 17), generator=torch.Generator().manual_seed(step))
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for name, p in model.named_parameters():
            if "n1." in name or "n2." in name or name.startswith("norm."):
                if MISTAKE and name == "blocks.0.n2.bias":
                    continue
                dist.all_reduce(p.grad)
    opt.step()
