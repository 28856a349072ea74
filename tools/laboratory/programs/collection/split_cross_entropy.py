"""A head and a cross entropy that are split over the vocabulary, by hand.

package: PyTorch
parallel: tensor parallel by hand, 2 ranks
mistake: in backward rank 1 subtracts 1 at other ranks' targets, too
shows: (model) grad_output, head grad_output
hint: --axes tp=2
"""

from job import MISTAKE, RANK, RANKS, dist, nn, torch


class VocabCE(torch.autograd.Function):
    """Cross entropy of logits that are sharded over the vocabulary."""

    @staticmethod
    def forward(ctx, logits, target):
        m = logits.max(-1).values
        if RANKS > 1:
            dist.all_reduce(m, dist.ReduceOp.MAX)
        e = (logits - m[:, None]).exp()
        s = e.sum(-1)
        if RANKS > 1:
            dist.all_reduce(s)
        n = logits.shape[1]
        lo = RANK * n
        mask = (target < lo) | (target >= lo + n)
        t = (target - lo).masked_fill(mask, 0)
        p = (logits - m[:, None]).gather(1, t[:, None])[:, 0].masked_fill(mask, 0)
        if RANKS > 1:
            dist.all_reduce(p)
        ctx.save_for_backward(e / s[:, None], mask, t)
        return s.log() - p

    @staticmethod
    def backward(ctx, g):
        soft, mask, t = ctx.saved_tensors
        d = soft.clone()
        hit = torch.ones_like(mask, dtype=d.dtype) if MISTAKE and RANK == 1 else (~mask).to(d.dtype)
        d[torch.arange(len(t)), t] -= hit
        return d * g[:, None], None


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        if RANKS > 1:
            dist.all_reduce(g)
        return g


class Head(nn.Module):
    def __init__(self, d=32, v=64):
        super().__init__()
        w = torch.randn(v, d) * 0.1
        self.weight = nn.Parameter(w.chunk(RANKS)[RANK].clone())

    def forward(self, x):
        return Copy.apply(x) @ self.weight.t()


class LM(nn.Module):
    def __init__(self, d=32, v=64):
        super().__init__()
        self.emb, self.rnn, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.GRU(d, d, batch_first=True),
            nn.LayerNorm(d),
            Head(),
        )

    def forward(self, x):
        return self.head(self.norm(self.rnn(self.emb(x))[0]))


model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(64, (6, 13), generator=torch.Generator().manual_seed(step))
    loss = VocabCE.apply(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten()).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
