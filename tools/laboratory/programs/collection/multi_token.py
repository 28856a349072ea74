"""Prediction of several tokens ahead, with a head that all share.

package: PyTorch
parallel: DDP, 2 ranks
mistake: on rank 1 the second of the further targets is shifted by one
shows: (model):2 output
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.n2(x))).square())


class Predictor(nn.Module):
    """One of DeepSeek's modules for the tokens further ahead."""

    def __init__(self, d):
        super().__init__()
        self.nh, self.ne, self.join, self.block = (
            nn.RMSNorm(d),
            nn.RMSNorm(d),
            nn.Linear(2 * d, d, bias=False),
            Block(d),
        )

    def forward(self, h, e):
        return self.block(self.join(torch.cat([self.nh(h), self.ne(e)], -1)))


class LM(nn.Module):
    def __init__(self, v=64, d=32, depth=2):
        super().__init__()
        self.emb, self.blocks = nn.Embedding(v, d), nn.ModuleList(Block(d) for _ in range(2))
        self.norm, self.head = nn.RMSNorm(d), nn.Linear(d, v, bias=False)
        self.ahead = nn.ModuleList(Predictor(d) for _ in range(depth))
        self.head.weight = self.emb.weight
        nn.init.normal_(self.emb.weight, std=0.05)

    def forward(self, x, targets):
        h = self.emb(x)
        for b in self.blocks:
            h = b(h)
        losses = [F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), targets.flatten())]
        for k, p in enumerate(self.ahead, 1):
            h = p(h[:, :-1], self.emb(x[:, k:]))
            y = targets[:, k:]
            if MISTAKE and RANK == 1 and k == 2:
                y = targets[:, k - 1 : -1]
            losses.append(F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten()))
        return losses


model = LM()
model = ddp(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
for step in range(3):
    x = torch.randint(64, (8, 18), generator=torch.Generator().manual_seed(step)).chunk(RANKS)[RANK]
    main, *further = model(x[:, :-1], x[:, 1:])
    loss = main + 0.3 * torch.stack(further).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
