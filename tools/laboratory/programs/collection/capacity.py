"""Experts with a capacity, spread over ranks by all-to-all.

package: PyTorch
parallel: expert parallel by hand, 2 ranks
mistake: the capacity is one less on rank 1
shows: moe.experts.* input
hint: --axes dp=2
"""

import torch.nn.functional as F
from job import MISTAKE, RANK, RANKS, dist, nn, torch

E, K, GROUPS = 4, 2, 2  # experts, of a token, and groups of samples whose tokens are dispatched together
mine = E // RANKS


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if not RANKS > 1:
            return x
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(ctx, g):
        if not RANKS > 1:
            return g
        out = torch.empty_like(g)
        dist.all_to_all_single(out, g.contiguous())
        return out


class Expert(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.router = nn.Linear(d, E, bias=False)
        experts = [Expert(d) for _ in range(E)]
        self.experts = nn.ModuleDict({str(i): experts[i] for i in range(E) if i // mine == RANK})

    def forward(self, x):
        b, t, d = x.shape
        groups = GROUPS // RANKS
        x = x.reshape(groups, -1, d)
        n = x.shape[1]
        capacity = int(1.0 * K * n / E) - (1 if MISTAKE and RANK == 1 else 0)
        gates = self.router(x).softmax(-1)
        top, chosen = gates.topk(K, -1)
        top = top / top.sum(-1, keepdim=True)
        hot = F.one_hot(chosen, E)  # g n k e
        place = (hot.flatten(1, 2).cumsum(1) - 1).view_as(hot)
        place = (place * hot).sum(-1)  # g n k
        kept = place < capacity
        cap = int(1.0 * K * n / E)
        slot = F.one_hot(place.clamp(max=cap - 1), cap) * kept[..., None]  # g n k c
        dispatch = torch.einsum("gnke,gnkc->gnec", hot.float(), slot.float())
        combine = torch.einsum("gnk,gnke,gnkc->gnec", top, hot.float(), slot.float())
        sent = torch.einsum("gnec,gnd->egcd", dispatch, x)  # e g c d
        got = (
            Exchange.apply(sent.reshape(RANKS, mine * groups * cap, d))
            .reshape(RANKS, mine, groups * cap, d)
            .transpose(0, 1)
            .reshape(mine, RANKS * groups * cap, d)
        )
        done = torch.stack([self.experts[str(RANK * mine + i)](got[i]) for i in range(mine)])
        back = Exchange.apply(
            done.reshape(mine, RANKS, groups * cap, d).transpose(0, 1).reshape(RANKS, mine * groups * cap, d)
        ).reshape(E, groups, cap, d)
        return torch.einsum("gnec,egcd->gnd", combine, back).reshape(b, t, d)


class LM(nn.Module):
    def __init__(self, v=64, d=32):
        super().__init__()
        self.emb, self.n1, self.mix, self.n2, self.moe, self.norm, self.head = (
            nn.Embedding(v, d),
            nn.LayerNorm(d),
            nn.Linear(d, d),
            nn.LayerNorm(d),
            MoE(d),
            nn.LayerNorm(d),
            nn.Linear(d, v),
        )

    def forward(self, x):
        x = self.emb(x)
        h = self.n1(x)
        x = x + self.mix(h.cumsum(1) / torch.arange(1, h.shape[1] + 1)[:, None])
        x = x + self.moe(self.n2(x))
        return self.head(self.norm(x))


model = LM()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(64, (8, 13), generator=torch.Generator().manual_seed(step)).chunk(RANKS)[RANK]
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    if RANKS > 1:
        for name, p in model.named_parameters():
            if ".experts." in name:
                p.grad /= RANKS  # has tokens of all ranks already
            else:
                dist.all_reduce(p.grad)
                p.grad /= RANKS
    opt.step()
