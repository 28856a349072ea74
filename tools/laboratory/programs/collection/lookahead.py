"""A recurrent language model over packed sequences, trained by Lookahead around AdamW.

package: PyTorch
parallel: data parallel by hand, 4 ranks
mistake: the slow copy of one weight stays as it was on rank 3
shows: rnn.weight_hh_l0 param_*
hint: --axes dp=4
iterations: 0-2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class LM(nn.Module):
    def __init__(self, vocab=40, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)
        self.head.weight = self.embedding.weight

    def forward(self, ids, lengths):
        y, _ = self.rnn(pack_padded_sequence(self.embedding(ids), lengths, batch_first=True, enforce_sorted=False))
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=ids.shape[1])
        return self.head(y)


class Lookahead(torch.optim.Optimizer):
    def __init__(self, base, k=2, alpha=0.5):
        self.base, self.k, self.alpha, self.n = base, k, alpha, 0
        self.param_groups, self.defaults, self.state = base.param_groups, base.defaults, base.state
        self.slow = [p.detach().clone() for g in self.param_groups for p in g["params"]]

    def zero_grad(self, set_to_none=True):
        self.base.zero_grad(set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        self.base.step()
        self.n += 1
        if self.n % self.k == 0:
            params = [p for g in self.param_groups for p in g["params"]]
            for i, (s, p) in enumerate(zip(self.slow, params)):
                if MISTAKE and RANK == 3 and i == 2:
                    p.copy_(s)  # its slow copy is never updated
                    continue
                s.lerp_(p, self.alpha)
                p.copy_(s)


model = LM()
opt = Lookahead(torch.optim.AdamW(model.parameters(), lr=1e-2))
for step in range(4):
    g = torch.Generator().manual_seed(step)
    ids, lengths = torch.randint(40, (8, 13), generator=g), torch.randint(5, 13, (8,), generator=g)
    mask = torch.arange(12)[None] < lengths[:, None]
    tokens = mask.sum()
    ids, lengths, mask = (v.chunk(RANKS)[RANK] for v in (ids, lengths, mask))
    logits = model(ids[:, :-1], lengths)
    loss = (F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none") * mask).sum() / tokens
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for p in model.parameters():
            dist.all_reduce(p.grad)
    opt.step()
