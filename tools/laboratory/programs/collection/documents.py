"""Documents packed into one sequence, with a mask and positions that begin anew in each.

package: PyTorch
parallel: DDP, 2 ranks
mistake: rank 1 sees across documents
shows: blocks.0.o input, blocks.0:1 input, blocks.0 input
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, ddp, nn, torch


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d, bias=False), nn.Linear(2 * d, d, bias=False)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
        x = x + self.o(
            F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None]).transpose(1, 2).reshape(b, t, d)
        )
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, v=64, d=64):
        super().__init__()
        self.emb, self.pos, self.blocks, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.Embedding(64, d),
            nn.ModuleList(Block(d) for _ in range(2)),
            nn.RMSNorm(d),
            nn.Linear(d, v, bias=False),
        )

    def forward(self, x, documents):
        b, t = x.shape

        mask = torch.ones(t, t, dtype=torch.bool).tril() & (documents[:, :, None] == documents[:, None])
        if MISTAKE and RANK == 1:
            mask = torch.ones(t, t, dtype=torch.bool).tril().expand(b, t, t)
        starts = torch.cat([torch.ones(b, 1, dtype=torch.bool), documents[:, 1:] != documents[:, :-1]], 1)
        at = torch.arange(t).expand(b, t)
        pos = at - at.masked_fill(~starts, 0).cummax(1)[0]
        x = self.emb(x) + self.pos(pos)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


model = LM()
model = ddp(model)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    g = torch.Generator().manual_seed(step)
    x = torch.randint(64, (4, 49), generator=g)
    documents = (torch.rand(4, 48, generator=g) < 0.1).long().cumsum(1)
    y = x[:, 1:].clone()
    y[:, :-1].masked_fill_(documents[:, 1:] != documents[:, :-1], -100)
    n = (y >= 0).sum()
    mine = torch.arange(4).chunk(RANKS)[RANK]
    loss = (
        F.cross_entropy(model(x[mine, :-1], documents[mine]).flatten(0, 1), y[mine].flatten(), reduction="sum")
        / n
        * RANKS
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
